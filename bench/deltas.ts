import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { LoadClient } from './load.ts';
import { freePort, startPostgres } from './postgres.ts';
import { cpuOf, startServer } from './processes.ts';
import { sessionsPath } from './seed.ts';

/**
 * Invocations that stream, whose text is stored as it comes, beside those of an older state: `git worktree add --detach
 * /tmp/before <commit>`, `npm ci --prefix /tmp/before`, then `npm run bench -- deltas --before=/tmp/before`. Both in
 * turn, each on a database of its own, with a model that speaks for half a second. Without `--before` this state alone.
 */

const AT_ONCE = 150;
const ROUND_MS = 10_000;
const PIECES = 20;
const PIECE_MS = 25;
const KINDS = { streaming: { path: '/run_sse', streaming: true }, whole: { path: '/run', streaming: false } };

const { values } = parseArgs({ options: { before: { type: 'string' }, rounds: { type: 'string', default: '4' } } });

async function answer(response: ServerResponse, isStream: boolean): Promise<void> {
  const toChoice = (said: object, reason: string | null) => [{ index: 0, ...said, finish_reason: reason }];
  const head = { id: 'c', created: 1, model: 'speaker' };
  const words = Array.from({ length: PIECES }, (_, n) => `word ${n} of it `);
  if (!isStream) {
    await sleep(PIECES * PIECE_MS);
    const choices = toChoice({ message: { role: 'assistant', content: words.join('') } }, 'stop');
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ ...head, object: 'chat.completion', choices }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (delta: object, reason: string | null) =>
    response.write(
      `data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices: toChoice({ delta }, reason) })}\n\n`,
    );
  for (const content of words) {
    send({ role: 'assistant', content }, null);
    await sleep(PIECE_MS);
  }
  send({}, 'stop');
  response.end('data: [DONE]\n\n');
}

const speaker = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => (body += chunk.toString()));
  request.on('end', () => void answer(response, (JSON.parse(body) as { stream?: boolean }).stream === true));
});
await new Promise<void>((resolve) => speaker.listen(0, '127.0.0.1', resolve));
const postgres = await startPostgres();

async function startState(name: string, directory: string) {
  const port = await freePort();
  const server = await startServer([`${directory}/src/main.ts`], port, '/ready', {
    DATABASE_URL: await postgres.createDatabase(`deltas_${name}`),
    PORT: String(port),
    LOG_LEVEL: 'error',
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'speaker',
    MODEL_BASE_URL: `http://127.0.0.1:${(speaker.address() as AddressInfo).port}/v1`,
    MODEL_API_KEY: 'none',
    TOOLS: '',
  });
  const client = new LoadClient(server.url, AT_ONCE);
  const bodies = Array.from({ length: AT_ONCE }, (_, n) => ({ sessionId: `s-${n}` }));
  await Promise.all(bodies.map((body) => client.send({ method: 'POST', path: sessionsPath('u'), body })));
  return { name, server, client };
}
type State = Awaited<ReturnType<typeof startState>>;

/** Runs invocations for some seconds, in each session one after another. */
async function measure({ server, client }: State, { path, streaming }: (typeof KINDS)['whole']) {
  const [cpu, startedAt] = [cpuOf(server.pid), performance.now()];
  let count = 0;
  const run = async (n: number) => {
    const newMessage = { role: 'user', parts: [{ text: 'Speak.' }] };
    const body = { appName: 'harness_agent', userId: 'u', sessionId: `s-${n}`, newMessage, streaming };
    for (; performance.now() - startedAt < ROUND_MS; count += 1) await client.send({ method: 'POST', path, body });
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, n) => run(n)));
  const seconds = (performance.now() - startedAt) / 1_000;
  return { perSecond: count / seconds, cpuMs: (cpuOf(server.pid) - cpu) / count };
}

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;

const here = new URL('..', import.meta.url).pathname.replace(/\/$/, '');
const states = [await startState('now', here)];
if (values.before !== undefined) states.unshift(await startState('before', values.before));
console.log(`PostgreSQL ${postgres.version}; ${AT_ONCE} at once, answers of ${PIECES * PIECE_MS} ms`);
for (const [kind, options] of Object.entries(KINDS)) {
  const rows = states.map((state) => ({ state, found: [] as Awaited<ReturnType<typeof measure>>[] }));
  for (let round = 0; round <= Number(values.rounds); round += 1)
    for (const { state, found } of rows) {
      const measured = await measure(state, options);
      // The first round makes the code warm.
      if (round > 0) found.push(measured);
    }
  const table = rows.map(({ state: { name }, found }) => {
    const [perSecond, cpuMs] = [median(found.map((each) => each.perSecond)), median(found.map((each) => each.cpuMs))];
    return { kind, state: name, 'invocations/s': perSecond.toFixed(1), 'CPU ms each': cpuMs.toFixed(2) };
  });
  console.table(table);
  const [before, now] = table.map((row) => Number(row['invocations/s']));
  if (before && now) console.log(`${kind}: ${(now / before).toFixed(2)} of before`);
}
for (const { client, server } of states) {
  await client.close();
  await server.stop();
}
await postgres.stop();
speaker.close();
