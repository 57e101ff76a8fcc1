import { randomBytes, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { describe, expect, test, vi } from 'vitest';
import { ConflictError, LeaseLostError } from '../../src/core/errors.ts';
import { deleteRunCases } from '../../src/features/evals/erase-store.ts';
import {
  endCase,
  findCaseOfJob,
  restartCase,
  type RunningCase,
  toRunningCase,
} from '../../src/features/evals/runs/case-store.ts';
import { EVALUATION_JOB } from '../../src/core/names.ts';
import { deleteEvalSet, type EvalSetKey, insertEvalSet } from '../../src/features/evals/sets/eval-set-store.ts';
import { replaceEvalCase, findRunnableSet } from '../../src/features/evals/cases/eval-case-store.ts';
import {
  forgetOldRuns,
  cancelEvalRun,
  insertEvalRun,
  listEndedCases,
  listEvalRuns,
  listResultMoments,
  toResultTime,
} from '../../src/features/evals/runs/eval-run-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { claimSession, type Lease } from '../../src/invocations/lock-store.ts';
import { runAsUser } from '../../src/platform/context.ts';
import type { ListPlace } from '../../src/platform/http/operation/cursor.ts';
import { claimJobs, endJob, type Job } from '../../src/platform/jobs/job-store.ts';
import { testPool } from '../support/store.ts';
import { MINUTE } from '../support/patience.ts';

/** Model and tools as they are deployed. */
const LIVE = { modelExecutionMode: 'live', toolExecutionMode: 'live' } as const;
const store = testPool();
const HOUR_MS = 3_600_000;
const turn = (text: string) => ({ userContent: { role: 'user', parts: [{ text }] } });
const evalCase = (evalId: string, text = 'hi') => ({
  evalId,
  conversation: [turn(text)],
  sessionInput: { appName: 'a', userId: `u-${evalId}` },
});

/** An application of its own with a set of these cases and a run of them. */
async function newRun(
  ids: string[],
  more: { trials?: number; parallelism?: number; appName?: string; again?: EvalSetKey; requestedBy?: string } = {},
) {
  const { trials = 1, parallelism = 100, appName = `app-${randomUUID()}` } = more;
  const key = more.again ?? { appName, evalSetId: `set_${randomUUID().replaceAll('-', '')}` };
  if (!more.again) await insertEvalSet(store.pool.db, key, { eval_cases: ids.map((id) => evalCase(id)) });
  const cases = ((await findRunnableSet(store.pool.db, key))?.cases ?? []).map((one) => ({
    ...one,
    userId: one.userId ?? '',
  }));
  const runId = randomUUID();
  const settings = {
    requestedBy: more.requestedBy,
    metrics: [],
    userSimulator: undefined,
    ...LIVE,
    agentHash: 'h',
    modelName: 'm',
  };
  await insertEvalRun(
    store.pool.db,
    { ...key, runId, ...settings, trials, parallelism, maxJudgeTokens: 1_000, cases },
    1000,
  );
  return { appName, runId, key };
}

const claimSteps = async (appName: string, slots = 100, leaseMs = HOUR_MS) =>
  (await claimJobs(store.pool.db, { kind: EVALUATION_JOB, appNames: [appName], slots, leaseMs, limits: {} })).claimed;
const places = (jobs: Job[]) => jobs.map(({ id }) => id.split('.').slice(1).join('.')).toSorted();
const outcome = { lastSequence: 2, error: { message: 'no', failedTurn: 1 } };
const end = (job: Job | undefined) =>
  endCase(store.pool.db, job as Job, outcome)
    .then(({ runEnd }) => runEnd)
    .catch((error: unknown) => {
      if (error instanceof LeaseLostError) return 'lost';
      throw error;
    });
/** Reads the case of a job anew. */
async function find(claimed: Job | undefined): Promise<RunningCase> {
  const job = claimed as Job;
  const { rows } = await store.pool.db.execute<{ work: unknown }>(
    sql`select evaluation_work(${job.appName}, ${job.userId}, ${job.id}) as work`,
  );
  const work = rows[0]?.work ?? undefined;
  return (work && { ...toRunningCase({ ...job, work }), job }) as RunningCase;
}
const runOf = async ({ appName, runId }: { appName: string; runId: string }) =>
  (await listEvalRuns(store.pool.db, { appName, runId, requestedBy: undefined }))[0];
const newLease = (current: RunningCase, more: Partial<Lease> = {}): Lease => ({
  key: { appName: current.appName, userId: current.userId, sessionId: current.sessionId },
  invocationId: `e-${randomUUID()}`,
  token: randomUUID(),
  durationMs: HOUR_MS,
  job: { ...current.job, kind: EVALUATION_JOB, step: current.lastTurn ? current.lastTurn.turn + 1 : 0 },
  storedRequest: { version: 1 },
  ...more,
});
const finish = (lease: Lease, status: 'succeeded' | 'paused' | 'interrupted') =>
  finishInvocation(store.pool.db, lease, [], { status, hasDeltas: false });

describe('cases', () => {
  test('start in the order of the set, trial by trial, as they were when the run was requested', async () => {
    const { appName, runId, key } = await newRun(['b', 'a'], { trials: 2, parallelism: 3 });
    await replaceEvalCase(store.pool.db, key, evalCase('b', 'edited'));
    expect(await runOf({ appName, runId })).toMatchObject({ status: 'running', counts: { running: 3, waiting: 1 } });
    const jobs = await claimSteps(appName);
    expect(places(jobs)).toEqual(['1.1', '1.2', '2.1']);
    const job = jobs.find(({ id }) => id.endsWith('.1.1'));
    expect(await find(job)).toEqual({
      ...LIVE,
      ...key,
      job,
      runId,
      place: 1,
      trial: 1,
      evalId: 'b',
      userId: 'u-b',
      sessionId: expect.stringMatching(/^adk-eval-session-[0-9a-f-]{36}$/),
      sessionCount: 1,
      metrics: [],
      userSimulator: null,
      isJudging: false,
      lastSequence: null,
      lastTurn: undefined,
    });
  });

  test('that end start the next ones, and no more than the parallelism of their run, which ends with the last one', async () => {
    const run = await newRun(['a', 'b', 'c', 'd', 'e'], { parallelism: 2 });
    const ended: string[] = [];
    for (let jobs = await claimSteps(run.appName); jobs.length > 0; jobs = await claimSteps(run.appName)) {
      expect(await runOf(run)).toMatchObject({ status: 'running', counts: { running: jobs.length } });
      ended.push(...places(jobs));
      expect(await Promise.all(jobs.map(end))).not.toContain('lost');
    }
    expect(ended).toEqual(['1.1', '2.1', '3.1', '4.1', '5.1']);
    const counts = { total: 5, waiting: 0, running: 0, errors: 5, cancelled: 0, passed: 0, failed: 0, notEvaluated: 0 };
    expect(await runOf(run)).toMatchObject({ status: 'done', counts, endTime: expect.any(Number) });
  });

  test('of 40 that end at once in two runs the last ones end the runs', async () => {
    const appName = `app-${randomUUID()}`;
    const ids = Array.from({ length: 20 }, (_, n) => `c${n}`);
    const runs = [await newRun(ids, { appName, parallelism: 5 }), await newRun(ids, { appName, parallelism: 7 })];
    const worker = async () => {
      for (let jobs = await claimSteps(appName, 3); jobs.length > 0; jobs = await claimSteps(appName, 3))
        await Promise.all(jobs.map(end));
    };
    await Promise.all(Array.from({ length: 4 }, worker));
    // A claim beside an end may find no job, because it postpones their lane by 50 ms (`end_turn`).
    await vi.waitFor(async () => {
      await worker();
      for (const run of runs) expect(await runOf(run)).toMatchObject({ status: 'done', counts: { errors: 20 } });
    }, MINUTE);
  });

  test('are claimed without what they say, which may be megabytes', async () => {
    const { appName } = await newRun(['a']);
    const claim = { kind: EVALUATION_JOB, appNames: [appName], slots: 1, leaseMs: HOUR_MS, work: 'evaluation_work' };
    const { claimed } = await claimJobs(store.pool.db, claim);
    expect(claimed).toMatchObject([{ work: { place: 1 } }]);
    expect(JSON.stringify(claimed)).not.toContain('conversation');
  });

  test('of requesters take turns, however many cases one of them runs', async () => {
    const appName = `app-${randomUUID()}`;
    const ids = Array.from({ length: 20 }, (_, n) => `c${n}`);
    for (let run = 0; run < 3; run += 1) await newRun(ids, { appName, requestedBy: 'many' });
    const turns = async () => (await claimSteps(appName, 2)).map(({ userId }) => userId).toSorted();
    expect(await turns()).toEqual(['many', 'many']);
    await newRun(ids, { appName, requestedBy: 'few' });
    for (let round = 0; round < 5; round += 1) expect(await turns()).toEqual(['few', 'many']);
  });

  test('of applications that a process does not serve are left to others', async () => {
    const { appName } = await newRun(['a']);
    expect(await claimSteps('another')).toEqual([]);
    expect(await claimSteps(appName)).toHaveLength(1);
  });

  test('whose job another process has taken over are not ended by the first one', async () => {
    const { appName } = await newRun(['a']);
    const [lost] = await claimSteps(appName, 1, 0);
    const [taken] = await claimSteps(appName);
    expect(taken).toEqual({ ...lost, attempt: 2, losses: 1, token: expect.any(String) });
    expect([await end(lost), await end(taken), await end(taken)]).toEqual(['lost', 'over', 'lost']);
    expect(await find(taken)).toBeUndefined();
  });

  test('start the next one of their run, and tell whether there is one', async () => {
    const { appName } = await newRun(['a', 'b', 'c'], { parallelism: 2 });
    const [first, second] = await claimSteps(appName);
    expect(await end(first)).toBe('waits');
    const [third] = await claimSteps(appName);
    expect([await end(second), await end(third)]).toEqual(['over', 'over']);
  });

  test('get a further session once, in which no turn has begun', async () => {
    const { appName } = await newRun(['a']);
    const [job] = await claimSteps(appName);
    const first = await find(job);
    const lease = newLease(first);
    await claimSession(store.pool.db, lease, [], true);
    await finish(lease, 'interrupted');
    const interrupted = await find(job);
    expect(interrupted.lastTurn).toMatchObject({ turn: 0, status: 'interrupted' });
    const sessionId = await restartCase(store.pool.db, interrupted);
    expect(sessionId).not.toBe(first.sessionId);
    expect(await restartCase(store.pool.db, interrupted)).toBeUndefined();
    expect(await find(job)).toEqual({ ...interrupted, sessionId, sessionCount: 2, lastTurn: undefined });
  });

  test('of others that are deleted in an erasure start the next ones, and end the run', async () => {
    const run = await newRun(['a', 'b', 'c'], { parallelism: 1, requestedBy: 'requester' });
    const erase = (userId: string) =>
      store.pool.transaction((tx) => deleteRunCases(tx, { appName: run.appName, userId }));
    expect(places(await claimSteps(run.appName))).toEqual(['1.1']);
    expect(await erase('u-a')).toMatchObject({ count: 1 });
    expect(places(await claimSteps(run.appName))).toEqual(['2.1']);
    await erase('u-c');
    await erase('u-b');
    expect(await runOf(run)).toMatchObject({ status: 'done', counts: { total: 0 } });
    const { rows } = await store.pool.db.execute(sql`select from jobs where app_name = ${run.appName}`);
    expect(rows).toEqual([]);
  });
});

describe('a turn', () => {
  const begin = async (leaseMs = HOUR_MS) => {
    const { appName } = await newRun(['a']);
    const [job] = await claimSteps(appName, 1, leaseMs);
    const lease = newLease(await find(job));
    expect(await claimSession(store.pool.db, lease, [], true)).toBe(true);
    await sleep(2);
    return { appName, job: job as Job, lease };
  };

  test('leaves the job of its case to its process, which goes on when the turn ends or pauses', async () => {
    const { appName, job, lease } = await begin();
    await finish(lease, 'succeeded');
    const second = await find(job);
    expect(second.lastTurn).toEqual({ turn: 0, status: 'succeeded', attempt: 1, error: '' });
    const secondLease = newLease(second);
    await claimSession(store.pool.db, secondLease, [], false);
    await finish(secondLease, 'paused');
    expect((await find(job)).lastTurn).toMatchObject({ turn: 1, status: 'paused' });
    expect(await claimSteps(appName)).toEqual([]);
    expect(await end(job)).toBe('over');
    const { rows } = await store.pool.db.execute(sql`
      select id from jobs where app_name = ${appName} union all select lane from job_lanes where app_name = ${appName}`);
    expect(rows).toEqual([]);
  });

  test('makes the job due when it ends if its process has died, whether or not another one has looked', async () => {
    for (const hasLooked of [false, true]) {
      const { appName, job, lease } = await begin(0);
      if (hasLooked) {
        const [taken] = await claimSteps(appName);
        expect((await find(taken)).lastTurn).toMatchObject({ status: 'running' });
        await endJob(store.pool.db, EVALUATION_JOB, taken as Job);
      }
      await finish(lease, 'succeeded');
      expect(await claimSteps(appName)).toEqual([{ ...job, token: expect.any(String), attempt: 1, losses: 0 }]);
    }
  });

  test('that ends while its process gives the job away makes it due', async () => {
    const { appName, job, lease } = await begin();
    await finish(lease, 'succeeded');
    await endJob(store.pool.db, EVALUATION_JOB, job);
    expect(await claimSteps(appName)).toMatchObject([{ id: job.id }]);
  });

  test('does not begin for a process whose job another one has, or whose case was cancelled', async () => {
    const run = await newRun(['a']);
    const [lost] = await claimSteps(run.appName, 1, 0);
    const [taken] = await claimSteps(run.appName);
    const claimFor = async (job: Job | undefined) =>
      claimSession(store.pool.db, newLease({ ...(await find(taken)), job: job as Job }), [], true);
    await expect(claimFor(lost)).rejects.toThrow(LeaseLostError);
    const lease = newLease(await find(taken));
    await cancelEvalRun(store.pool.db, run);
    await expect(claimSession(store.pool.db, lease, [], true)).rejects.toThrow(LeaseLostError);
    const { rows } = await store.pool.db.execute(sql`select id from sessions where app_name = ${run.appName}`);
    expect(rows).toEqual([]);
  });

  test.each([
    ['is ended by a sweep', sql`update invocations set status = 'interrupted', end_time = now()`, 'interrupted'],
    ['is deleted with its session', sql`delete from sessions`, undefined],
  ])('that %s makes the job due, by whatever user', async (_, change, status) => {
    const { appName, lease } = await begin(0);
    await runAsUser(lease.key.userId, () => store.pool.db.execute(sql`${change} where app_name = ${appName}`));
    const [job] = await claimSteps(appName);
    const found = await find(job);
    expect([job?.losses, found.lastTurn?.status, found.userId]).toEqual([0, status, lease.key.userId]);
  });
});

describe('runs', () => {
  test.each([
    ['a whole second', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00.000001'],
    ['any other time', '2026-01-01T00:00:00.5Z', '2026-01-01T00:00:00.500000'],
  ])('that start at %s', async (_, moment, expected) => {
    const time = toResultTime(sql`${moment}::timestamptz`);
    const { rows } = await store.pool.db.execute(
      sql`select to_char(${time} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US') as time`,
    );
    expect(rows).toEqual([{ time: expected }]);
  });

  test('50 at once have 50 results, none at a whole second', async () => {
    const appName = `app-${randomUUID()}`;
    const runs = await Promise.all(Array.from({ length: 50 }, () => newRun(['a'], { appName })));
    const jobs = await claimSteps(appName);
    expect(jobs).toHaveLength(runs.length);
    for (const job of jobs) await end(job);
    const list = (after?: ListPlace) =>
      listResultMoments(store.pool.db, { appName, requestedBy: undefined, after, limit: 30 });
    const newest = await list();
    const listed = [...newest, ...(await list(newest.at(-1)?.place))];
    const times = listed.map(({ resultMicroseconds }) => resultMicroseconds);
    expect(new Set(times).size).toBe(50);
    expect(times).toEqual(times.toSorted((a, b) => b - a));
    expect(times.filter((time) => !Number.isSafeInteger(time) || time % 1_000_000 === 0)).toEqual([]);
  });

  test('a cancelled run ends with its cases, and what was at work on them can write nothing more', async () => {
    const run = await newRun(['a', 'b', 'c'], { parallelism: 2 });
    const [first, second] = await claimSteps(run.appName);
    await end(first);
    const { sessionId } = await find(second);
    expect((await cancelEvalRun(store.pool.db, run)).map(({ key }) => key.sessionId)).toContain(sessionId);
    expect(await cancelEvalRun(store.pool.db, run)).toEqual([]);
    expect(await end(second)).toBe('lost');
    expect(await claimSteps(run.appName)).toEqual([]);
    const counts = { total: 3, waiting: 0, running: 0, errors: 1, cancelled: 2, passed: 0, failed: 0, notEvaluated: 0 };
    expect(await runOf(run)).toMatchObject({ status: 'cancelled', counts });
  });

  test('there are no more open ones than are allowed', async () => {
    const { appName, key } = await newRun(['a']);
    const settings = {
      requestedBy: undefined,
      metrics: [],
      userSimulator: undefined,
      ...LIVE,
      agentHash: 'h',
      modelName: 'm',
    };
    const cases = [{ evalId: 'a', version: 1, userId: 'u' }];
    const another = {
      ...key,
      runId: randomUUID(),
      ...settings,
      trials: 1,
      parallelism: 1,
      maxJudgeTokens: 1_000,
      cases,
    };
    await expect(insertEvalRun(store.pool.db, another, 1)).rejects.toEqual(
      new ConflictError(`1 of your evaluation runs of ${appName} have not ended yet. Wait, or cancel one.`),
    );
  });

  test('a run keeps what its cases said when the set is edited and deleted; a new set begins behind that', async () => {
    const { key, ...run } = await newRun(['a']);
    await replaceEvalCase(store.pool.db, key, evalCase('a', 'edited'));
    await deleteEvalSet(store.pool.db, key);
    const [job] = await claimSteps(run.appName);
    expect(await findCaseOfJob(store.pool.db, job as Job)).toMatchObject({ conversation: [turn('hi')] });
    await insertEvalSet(store.pool.db, key, { eval_cases: [evalCase('a', 'new')] });
    expect((await findRunnableSet(store.pool.db, key))?.cases).toEqual([
      { evalId: 'a', version: 3, appName: 'a', userId: 'u-a', writesSharedState: false },
    ]);
  });

  test('the ended cases of a run are read in pages of limited size, in the order of the set', async () => {
    const appName = `app-${randomUUID()}`;
    const key = { appName, evalSetId: 'large' };
    const large = (evalId: string) => evalCase(evalId, randomBytes(110_000).toString('base64'));
    await insertEvalSet(store.pool.db, key, { eval_cases: [large('a'), large('b'), evalCase('c'), large('d')] });
    const run = await newRun([], { appName, again: key, trials: 2 });
    const pages = async () => {
      const read: string[] = [];
      for await (const page of listEndedCases(store.pool.db, run))
        read.push(page.map(({ evalId, trial }) => `${evalId}${trial}`).join(' '));
      return read;
    };
    expect(await pages()).toEqual(['']);
    for (const job of await claimSteps(appName)) if (!job.id.endsWith('.2.2')) await end(job);
    expect(await pages()).toEqual(['a1 a2', 'b1 c1 c2 d1', 'd2']);
  });

  test('a write that changes nothing but the time has the same hash, any other another one', async () => {
    const { key } = await newRun(['a']);
    await replaceEvalCase(store.pool.db, key, { ...evalCase('a', 'hi'), creationTimestamp: 5 });
    await replaceEvalCase(store.pool.db, key, evalCase('a', 'edited'));
    const { rows } = await store.pool.db.execute<{ hash: string }>(
      sql`select hash from eval_case_versions where app_name = ${key.appName} order by version`,
    );
    const [first, second, third] = rows.map(({ hash }) => hash);
    expect(first).toMatch(/^[0-9a-f]{64}$/);
    expect([second === first, third === first]).toEqual([true, false]);
  });
});

describe('retention', () => {
  test('runs that are too old, or too many of a set, go with the sessions that no other run needs', async () => {
    const appName = `app-${randomUUID()}`;
    const first = await newRun(['a'], { appName });
    const second = await newRun(['a'], { appName, again: first.key });
    await newRun(['a'], { appName, again: first.key });
    const sessions: string[] = [];
    for (const job of await claimSteps(appName)) {
      const { userId, sessionId } = await find(job);
      sessions.push(sessionId);
      await insertSession(store.pool.db, { appName, userId, sessionId }, {}, []);
      await end(job);
    }
    const left = async () => {
      const found = await listEvalRuns(store.pool.db, { appName, requestedBy: undefined });
      const { rows } = await store.pool.db.execute(sql`select id from sessions where app_name = ${appName}`);
      return [found.length, rows.length];
    };
    expect(sessions).toHaveLength(3);
    await forgetOldRuns(store.pool.db, { days: 1, count: 3 });
    expect(await left()).toEqual([3, 3]);
    await forgetOldRuns(store.pool.db, { days: 1, count: 2 });
    expect(await left()).toEqual([2, 2]);
    await store.pool.db.execute(
      sql`update eval_runs set end_time = end_time - interval '2 days' where app_name = ${appName} and id =
          ${second.runId}`,
    );
    await forgetOldRuns(store.pool.db, { days: 1, count: 2 });
    expect(await left()).toEqual([1, 1]);
  });
});

test.each([
  ['what is no list', { uses: null }, null],
  ['what is no use', [5, null, {}], 0],
  ['a text as tokens', [{ model: 'm', promptTokens: '7', outputTokens: 2 }], 2],
  ['large numbers', [{ model: 'm', promptTokens: 1e308, outputTokens: -1e308 }], 1e15],
])('the cost of stored uses never fails: %s', async (_, uses, cost) => {
  await store.pool.db.execute(
    sql`insert into model_prices (model, prompt_price, output_price) values ('*', 1000000, 1000000) on conflict do nothing`,
  );
  const { rows } = await store.pool.db.execute(sql`select uses_cost(${JSON.stringify(uses)}::jsonb) as cost`);
  expect(rows).toEqual([{ cost }]);
});
