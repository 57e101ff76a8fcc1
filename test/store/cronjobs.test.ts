import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { describe, expect, test } from 'vitest';
import { claimRuns, findAgenda, renewRuns } from '../../src/features/cronjobs/claim-store.ts';
import {
  type NewCronjob,
  deleteCronjob,
  insertCronjob,
  type CronjobRow,
} from '../../src/features/cronjobs/cronjob-store.ts';
import { fireDueCronjobs } from '../../src/features/cronjobs/fire.ts';
import {
  cancelRun,
  deleteOldRuns,
  endRun,
  insertManualRun,
  listRuns,
  retryRun,
} from '../../src/features/cronjobs/run-store.ts';
import { testPool } from '../support/store.ts';

const store = testPool();
const LIMITS = { slots: 100, perUser: 100, active: [], takesOver: true, leaseMs: 15_000 };
const keyOf = ({ appName, userId, id }: CronjobRow) => ({ appName, userId, id });
const newId = randomUUID;

/** A cronjob that was due so many seconds ago, every minute. */
function newCronjob(lateSeconds: number, changes: Partial<NewCronjob> = {}, userId = `user-${randomUUID()}`) {
  const due = new Date(Math.floor(Date.now() / 1000) * 1000 - lateSeconds * 1000);
  return store.pool.transaction((tx) =>
    insertCronjob(
      tx,
      {
        appName: 'harness_agent',
        userId,
        id: randomUUID(),
        name: 'a cronjob',
        prompt: 'hello',
        schedule: { type: 'interval', intervalSeconds: 60, anchorAt: due.toISOString() },
        enabled: true,
        sessionPolicy: 'new',
        missedRuns: 'once',
        overlap: 'skip',
        maxAttempts: 1,
        retryPauseSeconds: 30,
        maxRetryPauseSeconds: 600,
        maxFailures: 10,
        nextRunTime: due,
        ...changes,
      },
      1000,
    ),
  );
}

const fire = async () => {
  while ((await fireDueCronjobs({ database: store.pool, newId })) > 0);
};
const runsOf = (cronjob: CronjobRow) => listRuns(store.pool.db, keyOf(cronjob), 1000, undefined);
const statusesOf = async (cronjob: CronjobRow) => (await runsOf(cronjob)).map(({ status }) => status);
const claim = (limits = LIMITS) => store.pool.transaction((tx) => claimRuns(tx, limits));
const rowOf = async (cronjob: CronjobRow) => {
  const { rows } = await store.pool.db.execute<{ enabled: boolean; disabled_reason: string | null; run_count: number }>(
    sql`select enabled, disabled_reason, run_count from cronjobs where id = ${cronjob.id}`,
  );
  return rows[0];
};

describe('a due cronjob', () => {
  test('that ten schedulers fire at once has one run and its next time', async () => {
    const jobs = await Promise.all(Array.from({ length: 30 }, () => newCronjob(1)));
    await Promise.all(Array.from({ length: 10 }, fire));
    for (const job of jobs) expect(await statusesOf(job)).toEqual(['queued']);
    const { rows } = await store.pool.db.execute(
      sql`select count(*)::int as n from cronjobs where next_run_time <= clock_timestamp() or run_count <> 1`,
    );
    expect(rows).toEqual([{ n: 0 }]);
  });

  test.each([
    ['skip', ['queued', 'skipped']],
    ['once', ['queued', 'queued']],
    ['all', ['queued', 'queued', 'queued', 'queued', 'queued']],
  ] as const)('that was missed for four minutes: %s', async (missedRuns, statuses) => {
    const job = await newCronjob(245, { missedRuns, overlap: 'queue' });
    await fire();
    expect((await statusesOf(job)).toSorted()).toEqual([...statuses].toSorted());
  });

  test('that was missed 1,000 times is made up for 100 times at most', async () => {
    const job = await newCronjob(60_000, { missedRuns: 'all' });
    await fire();
    expect(await statusesOf(job)).toHaveLength(100);
  });

  test.each([
    ['skip', ['skipped', 'queued']],
    ['queue', ['queued', 'queued']],
    ['replace', ['queued', 'cancelled']],
  ] as const)('whose earlier run waits: %s', async (overlap, statuses) => {
    const job = await newCronjob(1, { overlap });
    await fire();
    await store.pool.db.execute(
      sql`update cronjobs set next_run_time = date_trunc('second', clock_timestamp()) where id = ${job.id}`,
    );
    await fire();
    expect(await statusesOf(job)).toEqual(statuses);
  });

  test('of the last time is disabled and says why', async () => {
    const ended = await newCronjob(1, { until: new Date(Date.now() + 1000) });
    const counted = await newCronjob(1, { maxRuns: 1 });
    await fire();
    expect([await statusesOf(ended), await statusesOf(counted)]).toEqual([['queued'], ['queued']]);
    expect(await rowOf(ended)).toEqual({
      enabled: false,
      disabled_reason: 'Its schedule has come to its end.',
      run_count: 1,
    });
    expect(await rowOf(counted)).toEqual({
      enabled: false,
      disabled_reason: 'It ran 1 times, as often as it should.',
      run_count: 1,
    });
  });
});

describe('a waiting run', () => {
  test('is claimed once by ten claimers, the oldest first, one of a cronjob at a time', async () => {
    const job = await newCronjob(245, { missedRuns: 'all', overlap: 'queue' });
    await fire();
    const claimed = (await Promise.all(Array.from({ length: 10 }, () => claim()))).flat();
    const mine = claimed.filter(({ cronjob }) => cronjob.id === job.id);
    expect(mine.map(({ run }) => [run.status, run.attempt, run.sessionId])).toEqual([['running', 1, mine[0]?.run.id]]);
    expect((await runsOf(job)).at(-1)?.id).toBe(mine[0]?.run.id);
    expect((await statusesOf(job)).filter((status) => status === 'running')).toHaveLength(1);
  });

  test('waits for a place among those of its user, whoever claims', async () => {
    const userId = `user-${randomUUID()}`;
    for (let n = 0; n < 6; n++) await newCronjob(1, {}, userId);
    await fire();
    const claimed = (await Promise.all(Array.from({ length: 6 }, () => claim({ ...LIMITS, perUser: 2 })))).flat();
    expect(claimed.filter(({ cronjob }) => cronjob.userId === userId)).toHaveLength(2);
  });

  test('has the settings that its cronjob has when it begins', async () => {
    const job = await newCronjob(1, { sessionPolicy: 'fixed', sessionId: 'the-one' });
    await fire();
    await store.pool.db.execute(sql`update cronjobs set prompt = 'changed' where id = ${job.id}`);
    const [claimed] = (await claim()).filter(({ cronjob }) => cronjob.id === job.id);
    expect([claimed?.cronjob.prompt, claimed?.run.sessionId]).toEqual(['changed', 'the-one']);
  });

  test('goes with its cronjob; one that runs keeps it', async () => {
    const [waiting, running] = [await newCronjob(1), await newCronjob(1)];
    await fire();
    await store.pool.db.execute(sql`update cronjob_runs set next_attempt_time = clock_timestamp() + interval '1 hour'
                                    where cronjob_id = ${waiting.id}`);
    await claim();
    const remove = (job: CronjobRow) => store.pool.transaction((tx) => deleteCronjob(tx, keyOf(job)));
    expect([await remove(waiting), await remove(running), await remove(waiting)]).toEqual([true, false, false]);
    expect(await runsOf(waiting)).toEqual([]);
  });

  test('that is cancelled ends; one that runs is asked to', async () => {
    const job = await newCronjob(1);
    await fire();
    const cancel = async (id = '') => store.pool.transaction((tx) => cancelRun(tx, keyOf(job), id));
    const [claimed] = (await claim()).filter(({ cronjob }) => cronjob.id === job.id);
    await cancel(claimed?.run.id);
    const manual = await store.pool.transaction((tx) => insertManualRun(tx, keyOf(job), randomUUID(), new Date()));
    await cancel(manual?.id);
    expect(await statusesOf(job)).toEqual(['cancelled', 'running']);
    if (!claimed) throw new Error('the run was not claimed');
    expect(await renewRuns(store.pool.db, [claimed.run], 15_000)).toEqual([{ id: claimed.run.id, isCancelled: true }]);
  });
});

describe('a running run', () => {
  const started = async (changes: Partial<NewCronjob> = {}) => {
    const job = await newCronjob(1, changes);
    await fire();
    const [claimed] = (await claim()).filter(({ cronjob }) => cronjob.id === job.id);
    if (!claimed) throw new Error('the run was not claimed');
    return { job, run: claimed.run };
  };
  const expire = (id: string) =>
    store.pool.db.execute(
      sql`update cronjob_runs set lease_expire_time = clock_timestamp() - interval '1 second' where id = ${id}`,
    );

  test('whose lease is over is taken over once, and the late process writes nothing', async () => {
    const { job, run } = await started();
    await expire(run.id);
    expect(await claim({ ...LIMITS, active: [run.id] as never })).toEqual([]);
    const taken = (await Promise.all(Array.from({ length: 5 }, () => claim()))).flat();
    expect(taken.map((each) => [each.run.id, each.run.attempt])).toEqual([[run.id, 1]]);
    const late = { status: 'success', invocationId: 'e-1', output: 'late' } as const;
    expect(await endRun(store.pool.db, run, late)).toBe(undefined);
    await retryRun(store.pool.db, run, 0, { invocationId: undefined });
    expect(await renewRuns(store.pool.db, [run], 15_000)).toEqual([]);
    expect(await statusesOf(job)).toEqual(['running']);
    const [holder] = taken;
    expect(holder && (await endRun(store.pool.db, holder.run, late))).toEqual({ disabled: false });
    expect((await runsOf(job)).map(({ status, output, leaseToken }) => [status, output, leaseToken])).toEqual([
      ['success', 'late', null],
    ]);
  });

  test('that fails counts; too many in a row disable the cronjob with the reason, a success forgives', async () => {
    const { job, run } = await started({ maxFailures: 2 });
    const failed = { status: 'failed', invocationId: 'e-1', error: { code: 'c', message: "it's broken" } } as const;
    expect(await endRun(store.pool.db, run, failed)).toEqual({ disabled: false });
    const again = async () => {
      await store.pool.transaction((tx) => insertManualRun(tx, keyOf(job), randomUUID(), new Date()));
      const [claimed] = (await claim()).filter(({ cronjob }) => cronjob.id === job.id);
      if (!claimed) throw new Error('the run was not claimed');
      return claimed.run;
    };
    expect(await endRun(store.pool.db, await again(), { status: 'success', invocationId: 'e-2' })).toEqual({
      disabled: false,
    });
    expect(await endRun(store.pool.db, await again(), failed)).toEqual({ disabled: false });
    expect(await endRun(store.pool.db, await again(), failed)).toEqual({ disabled: true });
    expect(await rowOf(job)).toMatchObject({
      enabled: false,
      disabled_reason: "It failed 2 times in a row; the last time: it's broken",
    });
  });

  test('that is tried again has a session of its own', async () => {
    const { job, run } = await started();
    await retryRun(store.pool.db, run, 0, { invocationId: 'e-1', error: { code: 'c', message: 'm' } });
    expect(await statusesOf(job)).toEqual(['retrying']);
    const [claimed] = (await claim()).filter(({ cronjob }) => cronjob.id === job.id);
    expect([claimed?.run.attempt, claimed?.run.sessionId]).toEqual([2, `${run.id}-2`]);
  });
});

test('the agenda is the next due time, the next attempt and the next end of a lease', async () => {
  await store.pool.db.execute(sql`delete from cronjobs`);
  expect(await findAgenda(store.pool.db)).toEqual({ dueMs: undefined, waitingMs: undefined, leaseMs: undefined });
  await newCronjob(-100);
  const { dueMs = 0, ...others } = await findAgenda(store.pool.db);
  expect([dueMs > 90_000 && dueMs <= 100_000, others]).toEqual([true, { waitingMs: undefined, leaseMs: undefined }]);
});

test('old runs are deleted by age and by count, those that go on are not', async () => {
  const job = await newCronjob(60_000, { missedRuns: 'all' });
  await fire();
  await store.pool.db.execute(sql`
    update cronjob_runs set status = 'skipped', next_attempt_time = null, end_time = clock_timestamp()
    where cronjob_id = ${job.id} and due_time > (select min(due_time) from cronjob_runs where cronjob_id = ${job.id})`);
  await deleteOldRuns(store.pool.db, 30, 10, 1000);
  expect((await statusesOf(job)).toSorted()).toEqual(['queued', ...Array.from({ length: 10 }, () => 'skipped')]);
  await store.pool.db.execute(
    sql`update cronjob_runs set end_time = end_time - interval '31 days' where end_time is not null`,
  );
  await deleteOldRuns(store.pool.db, 30, 10, 1000);
  expect(await statusesOf(job)).toEqual(['queued']);
});

test('a user has so many cronjobs at most, also of requests at once', async () => {
  const userId = `user-${randomUUID()}`;
  const { nextRunTime, ...row } = await newCronjob(-100, {}, userId);
  const insert = () => store.pool.transaction((tx) => insertCronjob(tx, { ...row, id: randomUUID(), nextRunTime }, 3));
  const results = await Promise.allSettled(Array.from({ length: 5 }, insert));
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
  const reasons = results.flatMap((result) => (result.status === 'rejected' ? [String(result.reason)] : []));
  expect(new Set(reasons)).toEqual(
    new Set(['Error: The user has 3 cronjobs; CRONJOBS_MAX_PER_USER allows 3. Delete one first.']),
  );
});
