import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '../src/core/config.ts';
import { startEmbedded } from '../src/db/embedded/embedded.ts';
import { createLog } from '../src/core/log.ts';
import { startRuntime } from '../src/runtime.ts';

/**
 * Speed of the whole service over HTTP on a PostgreSQL of its own with durable commits (fsync on). One client process
 * on the same machine, so the figures are floors. `npm run bench`; quote the median of several runs.
 */

const postgres = await startEmbedded({ dir: await mkdtemp(join(tmpdir(), 'agent-runtime-bench-')) });
const config = readConfig({ DATABASE_URL: postgres.url, PORT: '0', LOG_LEVEL: 'silent', MAX_INVOCATIONS: '64' });
const runtime = await startRuntime({ config, log: createLog('silent'), version: 'bench' });
const sessions = '/apps/harness_agent/users/u/sessions';

async function send(method: string, path: string, body?: unknown): Promise<{ status: number; bytes: number }> {
  const sent =
    body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
  const response = await fetch(`${runtime.url}${path}`, { method, ...sent });
  const { byteLength } = await response.arrayBuffer();
  return { status: response.status, bytes: byteLength };
}

const event = (n: number) => ({
  author: 'user',
  content: { role: 'user', parts: [{ text: `event ${n} `.repeat(20) }] },
});
const append = (session: string, n: number) => send('POST', `${sessions}/${session}/events`, event(n));
const invoke = (session: string) =>
  send('POST', '/harness/invoke', {
    prompt: 'Hello',
    harness_name: 'bench',
    run_agent_request: { user_id: 'u', session_id: session },
  });

/** Runs `work` so often, `width` at a time, and prints the rate and the latencies. */
async function measure(name: string, times: number, width: number, work: (n: number) => Promise<{ status: number }>) {
  const latencies: number[] = [];
  const statuses = new Map<number, number>();
  let next = 0;
  const worker = async () => {
    for (let n = next++; n < times; n = next++) {
      const startedAt = performance.now();
      const { status } = await work(n);
      latencies.push(performance.now() - startedAt);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: width }, worker));
  const seconds = (performance.now() - startedAt) / 1000;
  const sorted = latencies.toSorted((a, b) => a - b);
  const at = (share: number) => `${(sorted[Math.floor((sorted.length - 1) * share)] ?? 0).toFixed(1)} ms`;
  const answered = [...statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
  console.log(
    `${name.padEnd(52)} ${(times / seconds).toFixed(0).padStart(6)}/s  p50 ${at(0.5).padStart(9)}` +
      `  p99 ${at(0.99).padStart(9)}  ${answered}`,
  );
}

await send('POST', sessions, { sessionId: 'hot' });
for (let n = 0; n < 20; n++) await send('POST', sessions, { sessionId: `s${n}` });
await measure('append to one session, one at a time', 500, 1, (n) => append('hot', n));
await measure('append to one session, 20 writers', 1_000, 20, (n) => append('hot', n));
await measure('append to 20 sessions, 20 writers', 1_000, 20, (n) => append(`s${n % 20}`, n));
await measure('get a session of 1,500 events', 50, 1, () => send('GET', `${sessions}/hot`));
await measure('invoke, new sessions, 16 at a time', 500, 16, (n) => invoke(`i${n}`));
await measure('list 520 sessions', 50, 1, () => send('GET', sessions));
await measure('500 invocations at once where 64 have room', 500, 500, (n) => invoke(`o${n}`));

await runtime.close();
await postgres.stop();
