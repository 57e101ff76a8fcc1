import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import { forgetRuns, listRuns, queueManualRun, requeueRuns, skipRuns } from '../../src/features/cronjobs/run-store.ts';
import {
  type NewCronjob,
  deleteCronjob,
  findCronjob,
  insertCronjob,
  type CronjobRow,
} from '../../src/features/cronjobs/cronjob-store.ts';
import { changeCronjob } from '../../src/features/cronjobs/change-cronjob.ts';
import { listNextCronjobs } from '../../src/features/cronjobs/cronjob-store.ts';
import { fireDueCronjobs } from '../../src/features/cronjobs/fire.ts';
import { requestCancelOfRun } from '../../src/invocations/cancel.ts';
import { LeaseLostError } from '../../src/core/errors.ts';
import { claimQueued, claimSession, enqueueInvocation, type Lease } from '../../src/invocations/lock-store.ts';
import { readStoredRequest } from '../../src/invocations/request.ts';
import { findQueued } from '../../src/invocations/queue-store.ts';
import { takeOver } from '../../src/invocations/take-over.ts';
import { createSecrets } from '../../src/platform/secrets.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { deleteSession } from '../../src/conversation/sessions/session-store.ts';
import { beginRuns, endRun, fireAll } from '../support/cronjobs.ts';
import { takerOn, testPool } from '../support/store.ts';

const store = testPool();
const keyOf = ({ appName, userId, id }: CronjobRow) => ({ appName, userId, id });
const notifications = { publish: () => undefined };

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

const fire = () => fireAll(store.pool);
const runsOf = (cronjob: CronjobRow) => listRuns(store.pool.db, keyOf(cronjob), 1000, undefined);
const statusesOf = async (cronjob: CronjobRow) => (await runsOf(cronjob)).map(({ status }) => status);
const begin = (limits = {}) => beginRuns(store.pool, limits);
const runOf = async (cronjob: CronjobRow, { invocationId }: Lease) =>
  (await runsOf(cronjob)).find((run) => run.invocationId === invocationId);
/** The runs of a cronjob among those that were begun. */
const ofCronjob = async (cronjob: CronjobRow, begun: Lease[]): Promise<Lease[]> => {
  const { rows } = await store.pool.db.execute<{ id: string }>(
    sql`select id from invocations where cronjob_id = ${cronjob.id}`,
  );
  return begun.filter(({ invocationId }) => rows.some(({ id }) => id === invocationId));
};
const queueManual = async (job: CronjobRow, due = new Date()) => {
  const id = randomUUID();
  const { rows } = await store.pool.db.execute(sql`
    select queue_run(${job.appName}, ${job.userId}, ${job.id}, ${id}, ${due.toISOString()}, true, 1, now(), ${due.toISOString()}) as queued`);
  expect(rows).toEqual([{ queued: true }]);
  return id;
};
/** The number of connections that wait for a lock. */
const countWaiting = async () => {
  const { rows } = await store.pool.db.execute(sql`
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`);
  return rows.length;
};
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

  test('with a schedule that cannot be read is disabled and says so; the others fire', async () => {
    const [wrong, sound] = [await newCronjob(2), await newCronjob(1)];
    await store.pool.db.execute(sql`
      update cronjobs set schedule = '{"type": "cron", "cron": "every day", "timezone": "Mars/Base"}'
      where id = ${wrong.id}`);
    await fire();
    expect([await statusesOf(wrong), await statusesOf(sound)]).toEqual([[], ['queued']]);
    expect(await rowOf(wrong)).toEqual({
      enabled: false,
      disabled_reason: expect.stringMatching(/^Its schedule is wrong: .*5 fields/),
      run_count: 0,
    });
  });

  test('is left out if a manual run was queued since the scheduler looked', async () => {
    const job = await newCronjob(1);
    // The scheduler's transaction waits until the manual run is there.
    const transaction: typeof store.pool.transaction = async (work) => {
      await queueManual(job);
      return store.pool.transaction(work);
    };
    await fireDueCronjobs({
      database: { ...store.pool, db: store.pool.db, transaction },
      newId: randomUUID,
      notifications,
    });
    expect((await statusesOf(job)).toSorted()).toEqual(['queued', 'skipped']);
  });

  test('is fired for its due time though its end is changed before the scheduler looks', async () => {
    const job = await newCronjob(1);
    const limits = { CRONJOBS_MIN_INTERVAL_SECONDS: 30 };
    await store.pool.transaction((tx) => changeCronjob(tx, job, { until: '2999-01-01T00:00:00Z' }, limits));
    await fire();
    expect((await runsOf(job)).map(({ dueTime }) => dueTime)).toEqual([job.nextRunTime]);
  });

  test('locks the sessions of all runs before the lanes of deliveries about those that are left out', async () => {
    const userId = `user-${randomUUID()}`;
    const url = 'https://hooks.example/runs';
    await store.pool.db.execute(sql`
      insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
      values ('harness_agent', ${userId}, ${randomUUID()}, ${url}, 'hooks.example', false, 'whsec_AAAA')`);
    await store.pool.db.execute(sql`
      select add_job_lane('delivery', 'harness_agent', ${userId}, 'hooks.example', now() + interval '1 hour', false)`);
    const skips = await newCronjob(2, { webhookUrl: url }, userId);
    await queueManual(skips);
    const queues = await newCronjob(1, { sessionPolicy: 'fixed', sessionId: 'deleted' }, userId);
    await store.pool.db.execute(sql`
      insert into sessions (app_name, user_id, id) values ('harness_agent', ${userId}, 'deleted')`);
    const deletion = new Client({ connectionString: store.url });
    await deletion.connect();
    await deletion.query('begin');
    await deletion.query(`delete from sessions where user_id = $1 and id = 'deleted'`, [userId]);
    const firing = fire();
    await expect.poll(countWaiting).toBe(1);
    const lane = `select from job_lanes where user_id = $1 and kind = 'delivery' for update nowait`;
    expect((await deletion.query(lane, [userId])).rowCount).toBe(1);
    await deletion.query('commit');
    await deletion.end();
    await firing;
    expect([(await statusesOf(skips)).toSorted(), await statusesOf(queues)]).toEqual([
      ['queued', 'skipped'],
      ['queued'],
    ]);
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
  test('is begun once by ten processes, the oldest first, one of a cronjob at a time', async () => {
    const job = await newCronjob(245, { missedRuns: 'all', overlap: 'queue' });
    await fire();
    const begun = (await Promise.all(Array.from({ length: 10 }, () => begin()))).flat();
    const mine = await ofCronjob(job, begun);
    const runs = await runsOf(job);
    expect(mine.map(({ key }) => key.sessionId)).toEqual([runs.at(-1)?.id]);
    expect(runs.at(-1)).toMatchObject({ status: 'running', attempt: 1, sessionId: runs.at(-1)?.id });
    expect(runs.filter(({ status }) => status === 'running')).toHaveLength(1);
  });

  test('runs one after another, each in a session of its own, in the order of their due times', async () => {
    const job = await newCronjob(245, { missedRuns: 'all', overlap: 'queue' });
    await fire();
    const order = (await runsOf(job)).map(({ id }) => id).toReversed();
    const begun: (string | undefined)[] = [];
    for (let n = 0; n < order.length; n += 1) {
      const [lease, ...others] = await ofCronjob(job, await begin());
      expect(others).toEqual([]);
      if (!lease) throw new Error('no run was begun');
      expect(await ofCronjob(job, await begin())).toEqual([]);
      begun.push(lease.key.sessionId);
      await endRun(store.pool, lease, { status: 'succeeded', answer: 'done' });
    }
    expect(begun).toEqual(order);
  });

  test('waits for a place among those of its user, whoever begins it', async () => {
    const userId = `user-${randomUUID()}`;
    for (let n = 0; n < 6; n++) await newCronjob(1, {}, userId);
    await fire();
    const begun = (await Promise.all(Array.from({ length: 6 }, () => begin({ perUser: 2 })))).flat();
    expect(begun.filter(({ key }) => key.userId === userId)).toHaveLength(2);
  });

  test('of a request is shown as it waits; of nothing is refused', async () => {
    const job = await newCronjob(-100);
    const run = (userId?: string, most = 2) => queueManualRun(store.pool.db, job.id, userId, randomUUID(), most);
    expect(await run()).toMatchObject({ refusal: null, run: { cronjobId: job.id, status: 'queued', isManual: true } });
    const second = await run(job.userId);
    expect(second.run).toEqual({ ...(await runsOf(job))[0], fits: undefined, place: undefined });
    expect((await run()).refusal).toBe('full');
    expect((await run('somebody')).refusal).toBe('absent');
    await store.pool.db.execute(sql`update cronjobs set enabled = false, next_run_time = null where id = ${job.id}`);
    expect((await run()).refusal).toBe('disabled');
  });

  test('of a request never takes a due time of the schedule', async () => {
    const job = await newCronjob(-100);
    for (let n = 0; n < 20; n++) await queueManualRun(store.pool.db, job.id, undefined, randomUUID(), 100);
    const { rows } = await store.pool.db.execute<{ due_time: Date; n: number }>(sql`
      select count(*)::int as n, count(*) filter (where date_trunc('milliseconds', due_time) = due_time)::int as whole
      from invocations where cronjob_id = ${job.id}`);
    expect(rows).toEqual([{ n: 20, whole: 0 }]);
  });

  test('holds no place in the queue of its session', async () => {
    const job = await newCronjob(1, { sessionPolicy: 'fixed', sessionId: 'busy' });
    await fire();
    const key = { appName: job.appName, userId: job.userId, sessionId: 'busy' };
    const lease = { key, invocationId: 'e-user', token: randomUUID(), durationMs: 60_000 };
    expect(await claimSession(store.pool.db, lease, [], false)).toBe(true);
  });

  test('takes its place in the queue of a busy session, before those that come later', async () => {
    const job = await newCronjob(1, { sessionPolicy: 'fixed', sessionId: 'line' });
    const key = { appName: job.appName, userId: job.userId, sessionId: 'line' };
    const newLease = (invocationId: string) => ({ key, invocationId, token: randomUUID(), durationMs: 60_000 });
    await fire();
    const [running, later] = [newLease('e-running'), newLease('e-later')];
    expect(await claimSession(store.pool.db, running, [], false)).toBe(true);
    expect(await ofCronjob(job, await begin({ perUser: 1 }))).toEqual([]);
    expect(await enqueueInvocation(store.pool.db, later, 8)).toMatchObject({ kind: 'queued' });
    await finishInvocation(store.pool.db, running, [], { status: 'succeeded' });
    expect(await claimQueued(store.pool.db, later, [])).toBe(false);
    const begun = await ofCronjob(job, await begin({ perUser: 1 }));
    expect(begun).toHaveLength(1);
    await finishInvocation(store.pool.db, begun[0] as Lease, [], { status: 'succeeded' });
    expect(await statusesOf(job)).toEqual(['success']);
    expect(await claimQueued(store.pool.db, later, [])).toBe(true);
  });

  test('whose session is being deleted is not begun: its claim waits for the session before it locks the run', async () => {
    const job = await newCronjob(1);
    await fire();
    const deletion = new Client({ connectionString: store.url });
    await deletion.connect();
    await deletion.query('begin');
    await deletion.query('select from sessions where user_id = $1 for update', [job.userId]);
    const claiming = begin();
    await expect.poll(countWaiting).toBe(1);
    const run = 'select from invocations where cronjob_id = $1 for update nowait';
    expect((await deletion.query(run, [job.id])).rowCount).toBe(1);
    await deletion.query('delete from sessions where user_id = $1', [job.userId]);
    await deletion.query('commit');
    await deletion.end();
    expect((await claiming).filter(({ key }) => key.userId === job.userId)).toEqual([]);
    expect(await statusesOf(job)).toEqual(['skipped']);
  });

  test('that a claim and a change of its cronjob want at once: the change waits, and neither is aborted', async () => {
    const job = await newCronjob(1);
    await fire();
    const claiming = new Client({ connectionString: store.url });
    await claiming.connect();
    await claiming.query('begin');
    await claiming.query('select from sessions where user_id = $1 for key share', [job.userId]);
    const change = store.pool.transaction((tx) => requeueRuns(tx, keyOf(job)));
    await expect.poll(countWaiting).toBe(1);
    const run = 'select from invocations where cronjob_id = $1 for update nowait';
    expect((await claiming.query(run, [job.id])).rowCount).toBe(1);
    await claiming.query('commit');
    await claiming.end();
    await change;
    expect(await statusesOf(job)).toEqual(['queued']);
  });

  test('has the settings that its cronjob has when it begins', async () => {
    const job = await newCronjob(1);
    await fire();
    await store.pool.transaction(async (tx) => {
      await tx.execute(sql`
        update cronjobs set prompt = 'changed', session_policy = 'fixed', session_id = 'the-one', timeout_seconds = 7
        where id = ${job.id}`);
      await requeueRuns(tx, keyOf(job));
    });
    const { rows } = await store.pool.db.execute<{ id: string }>(
      sql`select id from invocations where cronjob_id = ${job.id}`,
    );
    const key = { appName: job.appName, userId: job.userId, sessionId: 'the-one' };
    const queued = await findQueued(store.pool.db, { key, invocationId: rows[0]?.id ?? '' });
    const { request } = readStoredRequest(queued?.request, createSecrets([]), { key, invocationId: '' });
    expect(request).toMatchObject({
      content: { role: 'user', parts: [{ text: 'changed' }] },
      overrides: { timeAtMostMs: 7_000 },
      answer: { kind: 'output' },
      isRun: true,
    });
    const { rows: sessions } = await store.pool.db.execute(sql`select id from sessions where user_id = ${job.userId}`);
    expect(sessions).toEqual([{ id: 'the-one' }]);
  });

  test('goes with its cronjob; one that runs keeps it', async () => {
    const [waiting, running] = [await newCronjob(1), await newCronjob(1)];
    await fire();
    await store.pool.db.execute(sql`update invocations set not_before = clock_timestamp() + interval '1 hour'
                                    where cronjob_id = ${waiting.id}`);
    await begin();
    const remove = (job: CronjobRow) => store.pool.transaction((tx) => deleteCronjob(tx, keyOf(job)));
    expect([await remove(waiting), await remove(running), await remove(waiting)]).toEqual([true, false, true]);
    expect(await runsOf(waiting)).toEqual([]);
    expect(await statusesOf(running)).toEqual(['running']);
  });

  test('that is cancelled ends; one that runs is asked to', async () => {
    const job = await newCronjob(1);
    await fire();
    const cancel = (id = '') => requestCancelOfRun({ database: store.pool, notifications }, keyOf(job), id);
    const [begun] = await ofCronjob(job, await begin());
    if (!begun) throw new Error('the run was not begun');
    await cancel((await runOf(job, begun))?.id);
    await cancel(await queueManual(job));
    const runs = await runsOf(job);
    expect(runs.map(({ status }) => status)).toEqual(['cancelled', 'running']);
    for (const { cancelRequestTime } of runs) expect(cancelRequestTime).toBeInstanceOf(Date);
  });
});

describe('a running run', () => {
  const started = async (changes: Partial<NewCronjob> = {}) => {
    const job = await newCronjob(1, changes);
    await fire();
    const [lease] = await ofCronjob(job, await begin());
    if (!lease) throw new Error('the run was not begun');
    return { job, lease };
  };
  const failed = { status: 'failed', error: { code: 'internal', message: "it's broken" } } as const;

  test('whose process died is taken over once, as any invocation, and the late process writes nothing', async () => {
    const { job, lease } = await started();
    await store.pool.db.execute(sql`update invocations set lease_expire_time = clock_timestamp() - interval '1 second'
                                    where cronjob_id = ${job.id}`);
    await Promise.all(Array.from({ length: 5 }, () => takeOver(takerOn(store.pool), lease.key)));
    expect(await statusesOf(job)).toEqual(['running']);
    await expect(endRun(store.pool, lease, { status: 'succeeded', answer: 'late' })).rejects.toThrow(LeaseLostError);
    expect(await statusesOf(job)).toEqual(['running']);
  });

  test('that fails counts; too many in a row disable the cronjob with the reason, a success forgives', async () => {
    const { job, lease } = await started({ maxFailures: 2 });
    await endRun(store.pool, lease, failed);
    const again = async () => {
      await queueManual(job);
      const [next] = await ofCronjob(job, await begin());
      if (!next) throw new Error('the run was not begun');
      return next;
    };
    await endRun(store.pool, await again(), { status: 'succeeded', answer: 'done' });
    await endRun(store.pool, await again(), failed);
    expect(await rowOf(job)).toMatchObject({ enabled: true });
    await endRun(store.pool, await again(), failed);
    expect(await rowOf(job)).toMatchObject({
      enabled: false,
      disabled_reason: "It failed 2 times in a row; the last time: it's broken",
    });
  });

  test('that is paused has failed; its later end counts for nothing', async () => {
    const { job, lease } = await started();
    const failures = async () =>
      (await store.pool.db.execute(sql`select failure_count as n from cronjobs where id = ${job.id}`)).rows;
    await endRun(store.pool, lease, { status: 'paused', answer: 'May I?' });
    expect(await runOf(job, lease)).toMatchObject({ status: 'failed', errorCode: 'paused', output: 'May I?' });
    expect(await failures()).toEqual([{ n: 1 }]);
    await store.pool.db.execute(
      sql`update invocations set status = 'running', end_time = null where cronjob_id = ${job.id}`,
    );
    expect(await runOf(job, lease)).toMatchObject({ status: 'failed' });
    await store.pool.db.execute(
      sql`update invocations set status = 'failed', end_time = clock_timestamp() where cronjob_id = ${job.id}`,
    );
    expect(await failures()).toEqual([{ n: 1 }]);
  });

  test('that is tried again has a session of its own, after a pause', async () => {
    const { job, lease } = await started({ maxAttempts: 2, retryPauseSeconds: 60 });
    const away = { status: 'failed', error: { code: 'model_unavailable', message: 'away' } } as const;
    await endRun(store.pool, lease, away);
    const [run] = await runsOf(job);
    expect(run).toMatchObject({ status: 'retrying', attempt: 1, sessionId: run?.id, errorCode: 'model_unavailable' });
    expect(run?.nextAttemptTime?.getTime()).toBeGreaterThan(Date.now() + 20_000);
    expect(await ofCronjob(job, await begin())).toEqual([]);
    await store.pool.db.execute(
      sql`update invocations set not_before = clock_timestamp() where cronjob_id = ${job.id} and try = 2`,
    );
    const [second] = await ofCronjob(job, await begin());
    if (!second) throw new Error('the run was not begun');
    expect(second.key.sessionId).toBe(`${run?.id}-2`);
    expect(await runOf(job, second)).toMatchObject({ status: 'running', attempt: 2, errorCode: null });
    await endRun(store.pool, second, away);
    expect(await runsOf(job)).toMatchObject([{ id: run?.id, status: 'failed', attempt: 2 }]);
  });

  test('that waits to be tried again holds up no other; then it goes on, one at a time', async () => {
    const { job, lease } = await started({ maxAttempts: 2, retryPauseSeconds: 60, overlap: 'queue' });
    await endRun(store.pool, lease, { status: 'failed', error: { code: 'model_unavailable', message: 'away' } });
    const manual = await queueManual(job);
    const [next, ...others] = await ofCronjob(job, await begin());
    if (!next) throw new Error('the run was not begun');
    expect([next.key.sessionId, others]).toEqual([manual, []]);
    await store.pool.db.execute(
      sql`update invocations set not_before = clock_timestamp() where cronjob_id = ${job.id} and try = 2`,
    );
    expect(await ofCronjob(job, await begin())).toEqual([]);
    await endRun(store.pool, next, { status: 'succeeded', answer: 'done' });
    const [second] = await ofCronjob(job, await begin());
    expect(second?.key.sessionId).toBe(`${lease.key.sessionId}-2`);
  });

  test('is alone even if another process has seen another one first', async () => {
    const { job, lease } = await started({ overlap: 'queue' });
    const other = await queueManual(job);
    const { rows } = await store.pool.db.execute<{ id: string }>(
      sql`select id from invocations where session_id = ${other}`,
    );
    const key = { ...lease.key, sessionId: other };
    const claim = async () => {
      const queued = await findQueued(store.pool.db, { key, invocationId: rows[0]?.id ?? '' });
      const claimed = { key, invocationId: rows[0]?.id ?? '', token: randomUUID(), durationMs: 60_000, places: 100 };
      return claimQueued(store.pool.db, { ...claimed, readToken: queued?.token ?? '' }, []);
    };
    expect(await claim()).toBe(false);
    await endRun(store.pool, lease, { status: 'succeeded', answer: 'done' });
    expect(await claim()).toBe(true);
  });

  test('is asked to stop in the transaction that fires the one that replaces it, or neither happens', async () => {
    const { job, lease } = await started({ overlap: 'replace' });
    const due = () =>
      store.pool.db.execute(sql`
        update cronjobs set next_run_time = date_trunc('milliseconds', clock_timestamp()) where id = ${job.id}`);
    await due();
    await store.pool.db.execute(sql`
      create function refuse_stop() returns trigger language plpgsql as $$ begin raise 'no stop'; end $$`);
    await store.pool.db.execute(sql`
      create trigger refuse_stop before update of stop_requested_as on invocations for each row
      when (new.stop_requested_as is not null) execute function refuse_stop()`);
    await expect(fire()).rejects.toThrow(/Failed query: .* request_stop/);
    expect(await statusesOf(job)).toEqual(['running']);
    await store.pool.db.execute(sql`drop function refuse_stop cascade`);
    await fire();
    expect(await statusesOf(job)).toEqual(['queued', 'running']);
    expect((await runOf(job, lease))?.cancelRequestTime).toBeInstanceOf(Date);
  });

  test('whose row is locked, as by its end, leaves the cronjob due that replaces it', async () => {
    const { job, lease } = await started({ overlap: 'replace' });
    await store.pool.db.execute(sql`
      update cronjobs set next_run_time = date_trunc('milliseconds', clock_timestamp()) where id = ${job.id}`);
    await store.pool.transaction(async (tx) => {
      await tx.execute(sql`select from invocations where id = ${lease.invocationId} for update`);
      expect(await fireDueCronjobs({ database: store.pool, newId: randomUUID, notifications })).toMatchObject({
        fired: 0,
        nextMs: 100,
      });
    });
    await fire();
    expect(await statusesOf(job)).toEqual(['queued', 'running']);
  });

  test('whose session is deleted is left out, and the next one of its cronjob begins', async () => {
    const { job, lease } = await started({ overlap: 'queue' });
    const manual = await queueManual(job);
    await deleteSession(store.pool.db, lease.key);
    expect((await runsOf(job)).map(({ id, status, errorMessage }) => [id, status, errorMessage])).toEqual([
      [manual, 'queued', null],
      [lease.key.sessionId, 'skipped', 'Its session was deleted.'],
    ]);
    expect(await ofCronjob(job, await begin())).toHaveLength(1);
  });

  test('goes with the session of its last try, whatever tries it had before', async () => {
    const { job, lease } = await started({ maxAttempts: 2 });
    await endRun(store.pool, lease, { status: 'failed', error: { code: 'model_timeout', message: 'slow' } });
    await store.pool.db.execute(
      sql`update invocations set not_before = clock_timestamp() where cronjob_id = ${job.id} and try = 2`,
    );
    const [second] = await ofCronjob(job, await begin());
    if (!second) throw new Error('the run was not begun');
    await endRun(store.pool, second, { status: 'succeeded', answer: 'done' });
    expect(await statusesOf(job)).toEqual(['success']);
    await deleteSession(store.pool.db, second.key);
    expect(await runsOf(job)).toEqual([]);
    expect((await findCronjob(store.pool.db, job.id, undefined))?.latestRun).toBe(null);
  });

  test('locks the sessions of runs that it leaves out before the lane of its delivery', async () => {
    const userId = `user-${randomUUID()}`;
    const url = 'https://hooks.example/ends';
    await store.pool.db.execute(sql`
      insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
      values ('harness_agent', ${userId}, ${randomUUID()}, ${url}, 'hooks.example', false, 'whsec_AAAA')`);
    const job = await newCronjob(65, { webhookUrl: url, maxFailures: 1, missedRuns: 'all', overlap: 'queue' }, userId);
    await fire();
    await store.pool.db.execute(sql`
      select add_job_lane('delivery', 'harness_agent', ${userId}, 'hooks.example', now() + interval '1 hour', false)`);
    const [lease] = await ofCronjob(job, await begin());
    if (!lease) throw new Error('the run was not begun');
    const deletion = new Client({ connectionString: store.url });
    await deletion.connect();
    await deletion.query('begin');
    const waiting = `select from sessions where user_id = $1 and id <> $2 for update`;
    expect((await deletion.query(waiting, [userId, lease.key.sessionId])).rowCount).toBe(1);
    const ending = endRun(store.pool, lease, failed);
    await expect.poll(countWaiting).toBe(1);
    const lane = `select from job_lanes where user_id = $1 and kind = 'delivery' for update nowait`;
    expect((await deletion.query(lane, [userId])).rowCount).toBe(1);
    await deletion.query('commit');
    await deletion.end();
    await ending;
    expect(await statusesOf(job)).toEqual(['skipped', 'failed']);
  });

  test('that waits to be tried again is left out with the session of its last try', async () => {
    const { job, lease } = await started({ maxAttempts: 2 });
    await endRun(store.pool, lease, { status: 'failed', error: { code: 'model_timeout', message: 'slow' } });
    const manual = await queueManual(job);
    await store.pool.transaction((tx) => skipRuns(tx, keyOf(job), 'The cronjob was disabled.'));
    const [waiting, skipped] = await runsOf(job);
    expect(waiting).toMatchObject({ id: manual, status: 'queued' });
    expect(skipped).toMatchObject({
      status: 'skipped',
      attempt: 1,
      sessionId: lease.key.sessionId,
      errorCode: 'skipped',
      errorMessage: 'The cronjob was disabled.',
    });
  });
});

test('the cronjobs that are due next are listed first', async () => {
  await store.pool.db.execute(sql`delete from cronjobs`);
  expect(await listNextCronjobs(store.pool.db, 10)).toEqual([]);
  expect(await fireDueCronjobs({ database: store.pool, newId: randomUUID, notifications })).toEqual({
    fired: 0,
    nextMs: Infinity,
  });
  const [later, sooner] = [await newCronjob(-100), await newCronjob(-50)];
  const listed = await listNextCronjobs(store.pool.db, 10);
  expect(listed.map(({ cronjob }) => cronjob.id)).toEqual([sooner.id, later.id]);
  expect(listed[1]?.dueMs).toBeGreaterThan(90_000);
});

test('old runs are forgotten by age and by count, those that go on are not; their sessions stay', async () => {
  const job = await newCronjob(60_000, { missedRuns: 'all', overlap: 'queue' });
  await fire();
  const oldest = (await runsOf(job)).at(-1);
  for (let n = 0; n < 12; n += 1) {
    const [lease] = await ofCronjob(job, await begin());
    if (lease) await endRun(store.pool, lease, { status: 'succeeded', answer: 'done' });
  }
  await store.pool.transaction((tx) => skipRuns(tx, keyOf(job), 'The schedule was changed.'));
  const waiting = await queueManual(job);
  expect(await runsOf(job)).toHaveLength(101);
  await forgetRuns(store.pool.db, 30, 10);
  expect((await statusesOf(job)).toSorted()).toEqual(['queued', ...Array.from({ length: 9 }, () => 'skipped')]);
  await store.pool.db.execute(sql`
    update skipped_runs set due_time = due_time - interval '31 days', end_time = end_time - interval '31 days'`);
  await forgetRuns(store.pool.db, 30, 10);
  expect((await runsOf(job)).map(({ id }) => id)).toEqual([waiting]);
  const { rows } = await store.pool.db.execute(sql`select 1 as one from sessions where id = ${oldest?.id}`);
  expect(rows).toEqual([{ one: 1 }]);
});

test('what is forgotten is found in indexes: runs that are kept are not read', async () => {
  const job = await newCronjob(-100);
  await store.pool.db.execute(sql`
    insert into sessions (app_name, user_id, id) values (${job.appName}, ${job.userId}, 'all')`);
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time,
                             start_time, end_time, first_end_time, cronjob_id, run_id, due_time, is_manual, try)
    select ${job.appName}, ${job.userId}, 'all', 'e' || n, 'succeeded', gen_random_uuid(), now(), due, due, due, due,
           ${job.id}, 'r' || n, due, false, 1
    from generate_series(1, 3000) n, lateral (select now() - (n + 0.5) * interval '1 hour' as due) d`);
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query('vacuum analyze invocations');
  await client.end();
  const read = await store.pool.transaction(async (tx) => {
    const count = async () => {
      const { rows } = await tx.execute<{ n: number }>(sql`
        select (pg_stat_get_xact_tuples_fetched('invocations'::regclass)
                + pg_stat_get_xact_tuples_returned('invocations'::regclass))::int as n`);
      return rows[0]?.n ?? 0;
    };
    const before = await count();
    await forgetRuns(tx, 124, 2990);
    return (await count()) - before;
  });
  const { rows } = await store.pool.db.execute<{ n: number }>(
    sql`select count(*)::int as n from invocations where cronjob_id = ${job.id}`,
  );
  expect(rows).toEqual([{ n: 2975 }]);
  expect(read).toBeLessThan(300);
});

test('the runs of a user that go on are counted without reading those that wait', async () => {
  const job = await newCronjob(-100);
  await store.pool.db.execute(sql`
    insert into sessions (app_name, user_id, id) values (${job.appName}, ${job.userId}, 'all')`);
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, not_before,
                             start_time, request, cronjob_id, run_id, due_time, is_manual, try)
    select ${job.appName}, ${job.userId}, 'all', 'e' || n, 'queued', gen_random_uuid(), now(),
           case when n > 3 then now() + interval '1 day' end, case when n <= 3 then now() end, '{}',
           ${job.id}, 'r' || n, now() + n * interval '1 second', false, 1
    from generate_series(1, 3000) n`);
  await store.pool.db.execute(sql`analyze invocations`);
  const [count, read] = await store.pool.transaction(async (tx) => {
    const readSoFar = async () => {
      const { rows } = await tx.execute<{ n: number }>(sql`
        select (pg_stat_get_xact_tuples_fetched('invocations'::regclass)
                + pg_stat_get_xact_tuples_returned('invocations'::regclass))::int as n`);
      return rows[0]?.n ?? 0;
    };
    const before = await readSoFar();
    const { rows } = await tx.execute<{ n: number }>(sql`select begun_runs(${job.userId}) as n`);
    return [rows[0]?.n, (await readSoFar()) - before];
  });
  expect(count).toBe(3);
  expect(read).toBeLessThan(50);
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
