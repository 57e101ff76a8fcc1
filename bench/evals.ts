import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { readConfig } from '../src/core/config.ts';
import { createLog } from '../src/core/log.ts';
import { startEmbedded } from '../src/db/embedded/embedded.ts';
import { startRuntime } from '../src/runtime.ts';

/**
 * Speed and size of evaluation runs with the offline model, on a PostgreSQL of its own with durable commits: cases with
 * one turn that calls one tool, two metrics without a judge. `npm run bench:evals`; quote the median of several runs.
 */

const CASES = 200;
const READS = 50;
const postgres = await startEmbedded({ dir: await mkdtemp(join(tmpdir(), 'agent-runtime-bench-')) });
const config = readConfig({
  DATABASE_URL: postgres.url,
  PORT: '0',
  DEV_UI: 'true',
  LOG_LEVEL: 'silent',
  EVALS_PARALLELISM: '16',
});
const runtime = await startRuntime({ config, log: createLog('silent') });
const D = `${runtime.url}/dev/apps/harness_agent`;

async function send(method: string, path: string, body?: unknown): Promise<{ text: string; ms: number }> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const startedAt = performance.now();
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${D}${path}`, { method, headers, ...sent });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return { text, ms: performance.now() - startedAt };
}

const evalCase = (n: number) => ({
  evalId: `case-${n}`,
  conversation: [
    {
      userContent: { role: 'user', parts: [{ text: `What is ${n} + 3? Use the calculator.` }] },
      intermediateData: { toolUses: [{ name: 'calculator', args: { expression: `${n} + 3` } }] },
    },
  ],
});
const eval_cases = Array.from({ length: CASES }, (_, n) => evalCase(n));
await send('POST', '/eval-sets', { evalSet: { eval_set_id: 'bench', eval_cases } });
const evalMetrics = [
  { metricName: 'tool_trajectory_avg_score', threshold: 1 },
  { metricName: 'response_match_score', threshold: 0.7 },
];
const run = () => send('POST', '/eval-sets/bench/run', { evalMetrics });
await run();
const { ms, text } = await run();

const database = new Client({ connectionString: postgres.url });
await database.connect();
const { rows } = await database.query<{ bytes: number }>(
  `select (sum(pg_column_size(c.*)) / count(*))::int as bytes from eval_run_cases c`,
);
await database.end();
const ids = JSON.parse((await send('GET', '/eval_results')).text) as string[];
const reads: number[] = [];
for (let n = 0; n < READS; n += 1) reads.push((await send('GET', `/eval_results/${ids.at(-1)}`)).ms);
const sorted = reads.toSorted((a, b) => a - b);
console.log(`${CASES} cases of one turn with one tool: ${(CASES / (ms / 1000)).toFixed(1)} cases a second`);
console.log(`${rows[0]?.bytes} bytes a case beyond its session`);
console.log(
  `one result of ${CASES} cases: ${(Buffer.byteLength(text) / 1024).toFixed(0)} KiB, ` +
    `p50 ${sorted[READS / 2]?.toFixed(1)} ms, p99 ${sorted.at(-1)?.toFixed(1)} ms`,
);
await runtime.close();
await postgres.stop();
