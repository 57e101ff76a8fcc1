import { parseArgs } from 'node:util';
import { LoadClient, median } from './load.ts';
import { freePort, startPostgres } from './postgres.ts';
import { cpuOf, cpuOfFamily, startServer } from './processes.ts';

/**
 * CPU of a chat completion beside that of `/harness/invoke`, in turn in one process, with the model that answers at
 * once: each request in a new session, and of the door also without one, whose session goes with the answer.
 */

const AT_ONCE = 8;
const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '8' }, count: { type: 'string', default: '400' } },
});

const PROMPT = 'What is the weather?';
const chat = (session_id?: string) => ({
  path: '/v1/chat/completions',
  body: {
    model: 'harness_agent',
    user: 'u',
    messages: [{ role: 'user', content: PROMPT }],
    ...(session_id && { metadata: { session_id } }),
  },
});
/** What is sent, by a name of its own for its session. */
const KINDS: Record<string, (name: string) => { path: string; body: object }> = {
  '/harness/invoke': (session_id) => ({
    path: '/harness/invoke',
    body: { prompt: PROMPT, harness_name: 'h', run_agent_request: { user_id: 'u', session_id } },
  }),
  'chat completion': chat,
  'chat completion without a session': () => chat(),
};

const postgres = await startPostgres();
const port = await freePort();
const server = await startServer([new URL('../src/main.ts', import.meta.url).pathname], port, '/ready', {
  DATABASE_URL: await postgres.createDatabase('doors'),
  PORT: String(port),
  LOG_LEVEL: 'error',
  MODEL_PROVIDER: 'offline',
});
const client = new LoadClient(server.url, AT_ONCE);
const cpuNow = () => [cpuOf(server.pid), cpuOfFamily(postgres.pid)] as const;

const found = Object.keys(KINDS).map((kind) => ({ kind, service: [] as number[], database: [] as number[] }));
for (let round = 0; round <= Number(values.rounds); round += 1)
  for (const { kind, service, database } of found) {
    const count = Number(values.count);
    let next = 0;
    const [before, databaseBefore] = cpuNow();
    const work = async () => {
      while (next < count)
        await client.send({ method: 'POST', ...KINDS[kind]!(`${kind.slice(0, 5)}-${round}-${next++}`) });
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const [after, databaseAfter] = cpuNow();
    // The first round makes the code warm.
    if (round === 0) continue;
    service.push((after - before) / count);
    database.push((databaseAfter - databaseBefore) / count);
  }
const [base] = found;
console.table(
  found.map(({ kind, service, database }) => ({
    kind,
    'CPU ms': median(service).toFixed(2),
    'of /harness/invoke': median(service.map((ms, n) => ms / (base?.service[n] ?? 0))).toFixed(2),
    'database ms': median(database).toFixed(2),
  })),
);
await client.close();
await server.stop();
await postgres.stop();
