import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { eventually, report, stage } from './support/faults.ts';
import { answerFor, promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { startProxy } from './support/postgres-proxy.ts';
import { either } from './support/seed.ts';
import { startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

const here = stage();
const LEASE_MS = paced(600);
const CASES = 200;
const KILLS = either(2, 10);
const D = '/dev/apps/harness_agent';
const text = (said: string, role: string) => ({ role, parts: [{ text: said }] });
const evalCase = (n: number, delayMs = 5) => ({
  evalId: `case-${String(n).padStart(3, '0')}`,
  conversation: [0, 1].map((turn) => {
    const id = `${n}-${turn}`;
    return { userContent: text(promptFor({ id, delayMs }), 'user'), finalResponse: text(answerFor(id), 'model') };
  }),
});

interface Run {
  runId: string;
  status: string;
  evalSetResultId: string;
  counts: Record<string, number>;
}
interface CaseResult {
  evalId: string;
  finalEvalStatus: number;
  evalMetricResultPerInvocation: unknown[];
  error?: string;
}

describe('a process that is killed at half of an evaluation run', () => {
  test('another one ends the run: no case is lost, none is there twice, each with all of its turns', async () => {
    const settings = here.environment({
      SESSION_LEASE_MS: String(LEASE_MS),
    });
    let restarted = 0;
    for (let kill = 0; kill < KILLS; kill += 1) {
      const victim = await startServer(here.databaseUrl, settings);
      const evalSetId = `set_${kill}`;
      const eval_cases = Array.from({ length: CASES }, (_, n) => evalCase(n));
      await victim.post(`${D}/eval-sets`, { evalSet: { eval_set_id: evalSetId, eval_cases } });
      const metrics = [{ metricName: 'response_match_score', threshold: 1 }];
      const started = await victim.post(`${D}/eval-runs`, { evalSetId, evalMetrics: metrics, parallelism: 8 });
      const path = `${D}/eval-runs/${(started.body as Run).runId}`;
      for (let ended = 0; ended < CASES / 2; await sleep(10)) {
        ended = ((await victim.get(path)).body as Run).counts['passed'] ?? 0;
      }
      await victim.kill();
      const survivor = await startServer(here.databaseUrl, settings);
      const frames = (await survivor.get(`${path}/stream`)).text.trim().split('\n\n');
      const run = JSON.parse(frames.at(-1)?.replace('data: ', '') ?? '') as Run;
      expect([run.status, run.counts]).toEqual(['done', expect.objectContaining({ total: CASES, passed: CASES })]);
      const result = (await survivor.get(`${D}/eval-results/${run.evalSetResultId}`)).body as {
        evalCaseResults: CaseResult[];
      };
      expect(result.evalCaseResults.map(({ evalId }) => evalId)).toEqual(eval_cases.map(({ evalId }) => evalId));
      expect(result.evalCaseResults.filter((one) => one.evalMetricResultPerInvocation.length !== 2)).toEqual([]);
      await survivor.kill();
      const { rows } = await here.sql.query<{ count: number }>(
        'select count(*)::int as count from eval_run_cases where session_count = 2 and eval_set_id = $1',
        [evalSetId],
      );
      restarted += rows[0]?.count ?? 0;
    }
    report('evaluation runs', `${KILLS} kills, ${KILLS * CASES} cases, ${restarted} restarted in a new session`);
  });
});

test('one process freezes, twice, then the other is cut off: every case passes, none is there twice', async () => {
  const [RUNS, TOGETHER, SLOTS] = [2, 60, 16];
  const settings = here.environment({ SESSION_LEASE_MS: String(LEASE_MS) });
  await using stack = new AsyncDisposableStack();
  const proxy = await startProxy(here.databaseUrl);
  stack.defer(() => proxy.close());
  const frozen = await startServer(here.databaseUrl, settings);
  stack.defer(() => frozen.kill());
  const cut = await startServer(proxy.url, settings);
  stack.defer(() => cut.kill());

  const eval_cases = Array.from({ length: TOGETHER }, (_, n) => evalCase(n, 250));
  await frozen.post(`${D}/eval-sets`, { evalSet: { eval_set_id: 'together', eval_cases } });
  const evalMetrics = [{ metricName: 'response_match_score', threshold: 1 }];
  const start = () => frozen.post(`${D}/eval-runs`, { evalSetId: 'together', evalMetrics, parallelism: SLOTS });
  const started = await Promise.all(Array.from({ length: RUNS }, start));
  const runIds = started.map(({ body }) => (body as Run).runId);
  const countEnded = `select from eval_run_cases where run_id = any($1) and status = 'done'`;
  const hasEnded = (count: number) => async () => ((await here.sql.query(countEnded, [runIds])).rowCount ?? 0) >= count;
  const count = async (where: string) =>
    (await here.sql.query(`select from invocations where job is not null and ${where}`)).rowCount ?? 0;
  /** Ends `cases` in all, then holds the answers back until both processes are full. @returns what releases them */
  const fill = async (cases: number) => {
    await eventually('cases end', 2 * MINUTE, hasEnded(cases));
    const release = here.model.hold();
    await eventually('both are full', 2 * MINUTE, async () => (await count(`status = 'running'`)) === RUNS * SLOTS);
    return release;
  };
  /** @returns how many turns were taken over */
  const untilTakenOver = async () => {
    await eventually('turns are taken over', 2 * MINUTE, async () => {
      const late = await count(`status = 'running' and attempt = 1 and lease_expire_time < now()`);
      return late === 0 && (await count(`status = 'running' and attempt > 1`)) > 0;
    });
    return count(`status = 'running' and attempt > 1`);
  };

  const takenOver: number[] = [];
  for (const cases of [8, 24]) {
    const release = await fill(cases);
    frozen.signal('SIGSTOP');
    takenOver.push(await untilTakenOver());
    frozen.signal('SIGCONT');
    await frozen.get('/health');
    release();
  }
  const release = await fill(40);
  proxy.isBlackHole = true;
  takenOver.push(await untilTakenOver());
  proxy.isBlackHole = false;
  release();

  for (const runId of runIds) {
    const path = `${D}/eval-runs/${runId}`;
    await eventually('the run ends', 2 * MINUTE, async () => ((await frozen.get(path)).body as Run).status === 'done');
    const run = (await frozen.get(path)).body as Run;
    const { body } = await frozen.get(`${D}/eval-results/${run.evalSetResultId}`);
    const { evalCaseResults } = body as { evalCaseResults: CaseResult[] };
    expect(evalCaseResults.flatMap(({ error }) => error ?? [])).toEqual([]);
    expect(run.counts).toEqual(expect.objectContaining({ total: TOGETHER, passed: TOGETHER }));
    expect(evalCaseResults.map(({ evalId }) => evalId)).toEqual(eval_cases.map(({ evalId }) => evalId));
    expect(evalCaseResults.filter((one) => one.evalMetricResultPerInvocation.length !== 2)).toEqual([]);
  }
  report('evaluation together', `turns taken over: ${takenOver.join(', ')}`);
});
