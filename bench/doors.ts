import { parseArgs } from 'node:util';
import { call, DOORS } from './growth-doors.ts';
import type { Request } from './growth-request.ts';
import { LoadClient, median } from './load.ts';
import { freePort, startPostgres } from './postgres.ts';
import { cpuOf, cpuOfFamily, startServer } from './processes.ts';
import { APP } from './seed.ts';

/**
 * CPU and time of a whole answer at each door beside that of `/harness/invoke`, in turn in one process, with the model
 * that answers at once. Each request begins a session; without a session, it goes with the answer.
 */

const AT_ONCE = 8;
const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '8' }, count: { type: 'string', default: '400' } },
});

const PROMPT = 'What is the weather?';
const chat = (session_id?: string): Request => ({
  method: 'POST',
  path: '/v1/chat/completions',
  body: {
    model: APP,
    user: 'u',
    messages: [{ role: 'user', content: PROMPT }],
    ...(session_id && { metadata: { session_id } }),
  },
});
/** Requests, each with a number of its own. */
const KINDS: Record<string, (n: number) => Request> = {
  '/harness/invoke': (n) => ({
    method: 'POST',
    path: '/harness/invoke',
    body: { prompt: PROMPT, harness_name: 'h', run_agent_request: { user_id: 'u', session_id: `s${n}` } },
  }),
  'chat completion': (n) => chat(`chat${n}`),
  'chat completion without a session': () => chat(),
  response: DOORS['OpenAI: answer']!,
  'AG-UI': DOORS['AG-UI: run']!,
  'AI SDK': DOORS['AI SDK: send a message']!,
  A2A: DOORS['A2A: send a message']!,
  MCP: () => call('tools/call', { name: APP, arguments: { prompt: PROMPT } }, { canDoTasks: false }),
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

const found = Object.keys(KINDS).map((kind) => ({
  kind,
  service: [] as number[],
  database: [] as number[],
  perSecond: [] as number[],
}));
let sent = 0;
for (let round = 0; round <= Number(values.rounds); round += 1)
  for (const { kind, service, database, perSecond } of found) {
    const count = Number(values.count);
    const last = sent + count;
    const [before, databaseBefore] = cpuNow();
    const startedAt = performance.now();
    const work = async () => {
      while (sent < last) await client.send(KINDS[kind]!(sent++));
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const seconds = (performance.now() - startedAt) / 1_000;
    const [after, databaseAfter] = cpuNow();
    // The first round makes the code warm.
    if (round === 0) continue;
    service.push((after - before) / count);
    database.push((databaseAfter - databaseBefore) / count);
    perSecond.push(count / seconds);
  }
const [base] = found;
console.table(
  found.map(({ kind, service, database, perSecond }) => ({
    kind,
    'CPU ms': median(service).toFixed(2),
    'of /harness/invoke': median(service.map((ms, n) => ms / (base?.service[n] ?? 0))).toFixed(2),
    'database ms': median(database).toFixed(2),
    'a second': median(perSecond).toFixed(0),
  })),
);
await client.close();
await server.stop();
await postgres.stop();
