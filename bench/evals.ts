import { mkdtemp } from 'node:fs/promises';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { readConfig } from '../src/process/config.ts';
import { createLog } from '../src/platform/log.ts';
import { startEmbedded } from '../src/platform/db/embedded/embedded.ts';
import { startRuntime } from '../src/process/runtime.ts';

/**
 * Speed and size of evaluation runs with the offline model, on a PostgreSQL of its own with durable commits: cases with
 * one turn that calls one tool, two metrics without a judge. `npm run bench -- evals`; quote the median of several runs.
 */

const CASES = 200;
/** Of them, those of the run whose result is read: what the ADK's own server stores 3.9 MB for. */
const RESULT_CASES = 100;
const READS = 50;
const postgres = await startEmbedded({ dir: await mkdtemp(join(tmpdir(), 'agent-runtime-bench-')) });
const config = readConfig({
  DATABASE_URL: postgres.url,
  PORT: '0',
  DEV_UI: 'true',
  LOG_LEVEL: 'silent',
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
const run = (evalIds: string[] = []) => send('POST', '/eval-sets/bench/run', { evalMetrics, evalIds });
const database = new Client({ connectionString: postgres.url });
await database.connect();
const figure = async (query: string) => Number((await database.query<{ n: number }>(query)).rows[0]?.n);
const transactions = () => figure('select xact_commit as n from pg_stat_database where datname = current_database()');

/** The CPU time of this process that `work` takes, milliseconds; the load of the machine does not change it much. */
async function cpuMs<Result>(work: () => Promise<Result>): Promise<[Result, number]> {
  const before = process.cpuUsage();
  const result = await work();
  const { user, system } = process.cpuUsage(before);
  return [result, (user + system) / 1_000];
}

const read = async (path: string) => {
  const times: number[] = [];
  const [, cpu] = await cpuMs(async () => {
    for (let n = 0; n < READS; n += 1) times.push((await send('GET', path)).ms);
  });
  const sorted = times.toSorted((a, b) => a - b);
  const at = (place: number) => sorted[place]?.toFixed(1);
  return `p50 ${at(READS / 2)} ms, p99 ${at(READS - 1)} ms, CPU ${(cpu / READS).toFixed(1)} ms`;
};

await run();
const before = await transactions();
const [{ ms }, cpu] = await cpuMs(run);
const statements = (await transactions()) - before;
console.log(`${CASES} cases of one turn with one tool: ${(CASES / (ms / 1000)).toFixed(1)} cases a second`);
console.log(`a case: CPU ${(cpu / CASES).toFixed(1)} ms, ${(statements / CASES).toFixed(1)} transactions`);
const size = 'select sum(pg_column_size(c.*)) / count(*) as n from eval_run_cases c';
console.log(`${(await figure(size)).toFixed(0)} bytes a case beyond its session`);

const { text } = await run(eval_cases.slice(0, RESULT_CASES).map(({ evalId }) => evalId));
const ids = JSON.parse((await send('GET', '/eval_results')).text) as string[];
const sent = await rawBytes(`/eval_results/${ids.at(-1)}`);
const kib = (bytes: number) => `${(bytes / 1024).toFixed(0)} KiB`;
console.log(`one result of ${RESULT_CASES} cases: ${kib(sent)} sent, ${kib(Buffer.byteLength(text))} as JSON`);
console.log(`  ${await read(`/eval_results/${ids.at(-1)}`)}`);

await database.query(`insert into eval_runs (app_name, id, eval_set_id, status, metrics, trials, parallelism,
    agent_hash, model_name, result_time, end_time)
  select 'harness_agent', gen_random_uuid(), 'bench', 'done', '[]', 1, 1, '', '', now() - n * interval '1 second', now()
  from generate_series(1, 1000) n`);
console.log(`the list of 1,000 results: ${await read('/eval_results')}`);
await database.end();
await runtime.close();
await postgres.stop();

/** Bytes of the body as a client gets it that takes gzip. */
function rawBytes(path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { 'accept-encoding': 'gzip' };
    get(`${D}${path}`, { headers }, (response) => {
      let bytes = 0;
      response.on('data', (chunk: Buffer) => (bytes += chunk.length)).on('end', () => resolve(bytes));
    }).on('error', reject);
  });
}
