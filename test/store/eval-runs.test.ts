import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { describe, expect, test } from 'vitest';
import { ConflictError } from '../../src/core/errors.ts';
import {
  claimEvalCases,
  type ClaimedCase,
  finishEvalCase,
  releaseEvalCase,
  renewEvalCases,
  restartEvalCase,
} from '../../src/features/evals/runs/claim-store.ts';
import { deleteEvalSet, type EvalSetKey, insertEvalSet } from '../../src/features/evals/sets/eval-set-store.ts';
import { replaceEvalCase, listRunnableCases } from '../../src/features/evals/cases/eval-case-store.ts';
import { forgetOldRuns } from '../../src/features/evals/runs/trend-store.ts';
import {
  cancelEvalRun,
  endFinishedRuns,
  insertEvalRun,
  listEvalRuns,
  listResultMoments,
  listRunCases,
  readRunCases,
} from '../../src/features/evals/runs/eval-run-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { testPool } from '../support/store.ts';

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
  more: { trials?: number; parallelism?: number; appName?: string; again?: EvalSetKey } = {},
) {
  const { trials = 1, parallelism = 100, appName = `app-${randomUUID()}` } = more;
  const key = more.again ?? { appName, evalSetId: `set_${randomUUID().replaceAll('-', '')}` };
  if (!more.again) await insertEvalSet(store.pool.db, key, { eval_cases: ids.map((id) => evalCase(id)) });
  const cases = (await listRunnableCases(store.pool.db, key)).map((one) => ({ ...one, userId: one.userId ?? '' }));
  const runId = randomUUID();
  const settings = {
    requestedBy: undefined,
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

const claim = (appName: string, slots = 100, leaseMs = HOUR_MS) =>
  claimEvalCases(store.pool, { slots, held: [], appNames: [appName], leaseMs });
const places = (cases: ClaimedCase[]) => cases.map(({ place, trial }) => `${place}.${trial}`).toSorted();
const outcome = { lastSequence: 2, error: { message: 'no', failedTurn: 1 } };
const runOf = async ({ appName, runId }: { appName: string; runId: string }) =>
  (await listEvalRuns(store.pool.db, { appName, runId, requestedBy: undefined }))[0];

describe('claims', () => {
  test('take the cases in the order of the set, trial by trial, as they were when the run was requested', async () => {
    const { appName, runId, key } = await newRun(['b', 'a'], { trials: 2 });
    await replaceEvalCase(store.pool.db, key, evalCase('b', 'edited'));
    const first = await claim(appName, 3);
    expect(places(first)).toEqual(['1.1', '1.2', '2.1']);
    const one = first.find(({ place, trial }) => place === 1 && trial === 1);
    expect(one).toEqual({
      ...LIVE,
      ...key,
      runId,
      place: 1,
      trial: 1,
      evalId: 'b',
      userId: 'u-b',
      sessionId: expect.stringMatching(/^adk-eval-session-[0-9a-f-]{36}$/),
      sessionCount: 1,
      losses: 0,
      leaseToken: expect.any(String),
      metrics: [],
      userSimulator: null,
      caseText: expect.stringContaining('"hi"'),
      isJudging: false,
      lastSequence: null,
    });
    expect(places(await claim(appName))).toEqual(['2.2']);
    expect(await runOf({ appName, runId })).toMatchObject({ status: 'running', counts: { total: 4, running: 4 } });
  });

  test('of 20 claimers at once each case goes to one', async () => {
    const { appName } = await newRun(Array.from({ length: 30 }, (_, n) => `c${n}`));
    const claimed = (await Promise.all(Array.from({ length: 20 }, () => claim(appName, 3)))).flat();
    claimed.push(...(await claim(appName)));
    expect(new Set(places(claimed)).size).toBe(30);
    expect(claimed).toHaveLength(30);
  });

  test('the parallelism of a run holds over all claimers, other runs go on beside it', async () => {
    const { appName } = await newRun(['a', 'b', 'c', 'd'], { parallelism: 2 });
    const claimed = (await Promise.all(Array.from({ length: 8 }, () => claim(appName, 4)))).flat();
    expect(places(claimed)).toEqual(['1.1', '2.1']);
    await newRun(['z'], { appName });
    expect((await claim(appName)).map(({ evalId }) => evalId)).toEqual(['z']);
    await finishEvalCase(store.pool.db, claimed[0] as ClaimedCase, outcome);
    expect((await claim(appName)).map(({ evalId }) => evalId)).toEqual(['c']);
  });

  test('applications that this process does not host are left to others', async () => {
    const { appName } = await newRun(['a']);
    expect(await claim('another')).toEqual([]);
    expect(await claim(appName)).toHaveLength(1);
  });
});

describe('survival', () => {
  test('a case whose lease is over is claimed again, in its session; its first owner writes nothing more', async () => {
    const { appName, runId } = await newRun(['a']);
    const [lost] = (await claim(appName, 1, 0)) as [ClaimedCase];
    const [taken] = (await claim(appName)) as [ClaimedCase];
    expect(taken).toEqual({ ...lost, losses: 1, leaseToken: expect.any(String) });
    expect(taken.leaseToken).not.toBe(lost.leaseToken);
    expect(await finishEvalCase(store.pool.db, lost, outcome)).toBe(false);
    expect(await restartEvalCase(store.pool.db, lost)).toBeUndefined();
    await releaseEvalCase(store.pool.db, lost);
    expect(await renewEvalCases(store.pool.db, [lost.leaseToken, taken.leaseToken], HOUR_MS)).toEqual([
      taken.leaseToken,
    ]);
    expect(await endFinishedRuns(store.pool.db)).toEqual([]);
    expect(await finishEvalCase(store.pool.db, taken, outcome)).toBe(true);
    expect(await finishEvalCase(store.pool.db, taken, outcome)).toBe(false);
    expect(await endFinishedRuns(store.pool.db)).toEqual([{ appName, runId }]);
    expect(await runOf({ appName, runId })).toMatchObject({
      status: 'done',
      counts: { total: 1, waiting: 0, running: 0, errors: 1, cancelled: 0, passed: 0, failed: 0, notEvaluated: 0 },
    });
  });

  test('a case that is given back keeps its session; a holder gets a further session once', async () => {
    const { appName } = await newRun(['a']);
    const [first] = (await claim(appName)) as [ClaimedCase];
    await releaseEvalCase(store.pool.db, first);
    const [second] = (await claim(appName)) as [ClaimedCase];
    expect(second.sessionId).toBe(first.sessionId);
    const restarted = await restartEvalCase(store.pool.db, second);
    expect(restarted).not.toBe(first.sessionId);
    expect(await restartEvalCase(store.pool.db, second)).toBeUndefined();
    await releaseEvalCase(store.pool.db, second);
    const [third] = (await claim(appName)) as [ClaimedCase];
    expect([third.sessionId, third.sessionCount]).toEqual([restarted, 2]);
  });

  test('of two last cases that end at once one ends the run', async () => {
    const run = await newRun(['a', 'b']);
    const claimed = await claim(run.appName);
    const ended = await Promise.all(
      claimed.map(async (one) => {
        await finishEvalCase(store.pool.db, one, outcome);
        return endFinishedRuns(store.pool.db);
      }),
    );
    expect(ended.flat()).toEqual([{ appName: run.appName, runId: run.runId }]);
  });
});

describe('runs', () => {
  test('50 at once have 50 results, none at a whole second', async () => {
    const appName = `app-${randomUUID()}`;
    const runs = await Promise.all(Array.from({ length: 50 }, () => newRun(['a'], { appName })));
    for (const claimed of await claim(appName)) await finishEvalCase(store.pool.db, claimed, outcome);
    expect(await endFinishedRuns(store.pool.db)).toHaveLength(runs.length);
    const list = async (limit: number, before?: number) =>
      (await listResultMoments(store.pool.db, { appName, requestedBy: undefined, before, limit })).map(
        ({ resultMicroseconds }) => resultMicroseconds,
      );
    const newest = await list(30);
    const times = [...newest, ...(await list(30, newest.at(-1)))];
    expect(new Set(times).size).toBe(50);
    expect(times).toEqual(times.toSorted((a, b) => b - a));
    expect(times.filter((time) => !Number.isSafeInteger(time) || time % 1_000_000 === 0)).toEqual([]);
  });

  test('a cancelled run ends with its cases, and what was at work on them can write nothing more', async () => {
    const run = await newRun(['a', 'b', 'c'], { parallelism: 2 });
    const [first, second] = (await claim(run.appName)) as [ClaimedCase, ClaimedCase];
    await finishEvalCase(store.pool.db, first, outcome);
    expect(await cancelEvalRun(store.pool.db, run)).toBe(true);
    expect(await cancelEvalRun(store.pool.db, run)).toBe(false);
    expect(await finishEvalCase(store.pool.db, second, outcome)).toBe(false);
    expect(await claim(run.appName)).toEqual([]);
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
    const cases = await listRunCases(store.pool.db, run);
    expect((await readRunCases(store.pool.db, run, cases)).map(({ caseText }) => JSON.parse(caseText))).toEqual([
      { ...evalCase('a', 'hi'), creationTimestamp: expect.any(Number) },
    ]);
    await insertEvalSet(store.pool.db, key, { eval_cases: [evalCase('a', 'new')] });
    expect(await listRunnableCases(store.pool.db, key)).toEqual([
      { evalId: 'a', version: 3, appName: 'a', userId: 'u-a', writesSharedState: false },
    ]);
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
    for (const claimed of await claim(appName)) {
      sessions.push(claimed.sessionId);
      await insertSession(store.pool.db, { appName, userId: claimed.userId, sessionId: claimed.sessionId }, {}, []);
      await finishEvalCase(store.pool.db, claimed, outcome);
    }
    await endFinishedRuns(store.pool.db);
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
