import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { describe, expect, test } from 'vitest';
import type { SessionKey } from '../../src/core/session.ts';
import { LeaseLostError } from '../../src/core/errors.ts';
import { insertCronjob, type CronjobRow } from '../../src/features/cronjobs/cronjob-store.ts';
import { listRuns, skipRuns } from '../../src/features/cronjobs/run-store.ts';
import { requestCancelOfRun } from '../../src/invocations/cancel.ts';
import { endDeadWaiters, endLostInvocations, takeOver } from '../../src/invocations/take-over.ts';
import { requestStop } from '../../src/invocations/invocation-store.ts';
import { claimSession, enqueueInvocation, type Lease } from '../../src/invocations/lock-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import {
  deleteOldDeliveries,
  type DeliveryRow,
  endDelivery,
  findDelivery,
  postponeDelivery,
  replayDelivery,
} from '../../src/invocations/webhooks/delivery-store.ts';
import { newSecret } from '../../src/invocations/webhooks/address.ts';
import { deleteWebhook, insertWebhook, type WebhookRow } from '../../src/invocations/webhooks/webhook-store.ts';
import { beginRuns, endRun, fireAll } from '../support/cronjobs.ts';
import { claimDeliveries } from '../support/jobs.ts';
import { newKey, takerOn, testPool, textEvent } from '../support/store.ts';

const store = testPool();
const LIMITS = { slots: 100, perHost: 100, perUser: 100, leaseMs: 15_000 };

const register = ({ appName, userId }: Pick<SessionKey, 'appName' | 'userId'>, host = `${randomUUID()}.example`) =>
  store.pool.transaction((tx) =>
    insertWebhook(
      tx,
      {
        appName,
        userId,
        id: randomUUID(),
        url: `https://${host}/${randomUUID()}`,
        host,
        includesOutput: false,
        secret: newSecret(),
        isSilent: false,
      },
      100,
    ),
  );
const deliveriesOf = async ({ id }: WebhookRow) => {
  const { rows } = await store.pool.db.execute<{ payload: string; status: string }>(
    sql`select payload, status from webhook_deliveries where webhook_id = ${id} order by create_time, id`,
  );
  return rows.map(({ payload, status }) => {
    const { type, data } = JSON.parse(payload) as { type: string; data: { status: string; errorCode?: string } };
    return { type, ended: data.status, errorCode: data.errorCode, status };
  });
};
const pending = (type: string, ended: string, errorCode?: string) => ({ type, ended, errorCode, status: 'pending' });

describe('an invocation with a webhook leaves one delivery when it', () => {
  const begun = async (more: Partial<Lease> = {}) => {
    const key = newKey();
    const webhook = await register(key);
    const lease = {
      key,
      invocationId: 'e-1',
      token: randomUUID(),
      durationMs: 60_000,
      webhookUrl: webhook.url,
      ...more,
    };
    expect(await claimSession(store.pool.db, lease, [textEvent('hi')], true)).toBe(true);
    return { key, webhook, lease };
  };
  const queued = async (body?: object) => {
    const { key, webhook, lease } = await begun();
    const waiter = { ...lease, invocationId: 'e-2', token: randomUUID() };
    expect(await enqueueInvocation(store.pool.db, waiter, 8, body)).toMatchObject({ kind: 'queued' });
    return { key, webhook, lease, waiter };
  };
  const expire = (key: SessionKey) =>
    store.pool.db.execute(sql`
      update invocations set lease_expire_time = statement_timestamp() - interval '1 second'
      where session_id = ${key.sessionId}`);

  test('ends, and none while it runs or when its end is rolled back', async () => {
    const { webhook, lease } = await begun();
    const end = (db = store.pool.db) => finishInvocation(db, lease, [textEvent('bye')], { status: 'succeeded' });
    const undone = store.pool.transaction(async (tx) => {
      await end(tx);
      throw new Error('undone');
    });
    await expect(undone).rejects.toThrow('undone');
    expect(await deliveriesOf(webhook)).toEqual([]);
    await end();
    expect(await deliveriesOf(webhook)).toEqual([pending('invocation.ended', 'succeeded')]);
    // A late writer, which holds the session no more, ends nothing and tells nothing.
    await expect(end()).rejects.toThrow('no longer holds');
    expect(await deliveriesOf(webhook)).toHaveLength(1);
  });

  test('pauses, and another when it is cancelled then', async () => {
    const { key, webhook, lease } = await begun();
    await finishInvocation(store.pool.db, lease, [], { status: 'paused' });
    for (let n = 0; n < 2; n++) await requestStop(store.pool.db, key, 'e-1', 'cancelled');
    expect(await deliveriesOf(webhook)).toEqual([
      pending('invocation.paused', 'paused'),
      pending('invocation.ended', 'cancelled', 'cancelled'),
    ]);
  });

  test('is cancelled while it waits', async () => {
    const { key, webhook } = await queued({ newMessage: {} });
    await requestStop(store.pool.db, key, 'e-2', 'cancelled');
    expect(await deliveriesOf(webhook)).toEqual([pending('invocation.ended', 'cancelled', 'cancelled')]);
  });

  test('is asked to stop while it runs: not before it has', async () => {
    const { key, webhook } = await begun();
    await requestStop(store.pool.db, key, 'e-1', 'cancelled');
    expect(await deliveriesOf(webhook)).toEqual([]);
  });

  test('waited for a process that is gone', async () => {
    const { key, webhook } = await queued();
    await expire(key);
    await endDeadWaiters(store.pool.db);
    // Several nodes of a cluster commit one after the other.
    const told = () => deliveriesOf(webhook);
    await expect.poll(told).toEqual([pending('invocation.ended', 'interrupted', 'interrupted')]);
  });

  test('ran in a process that is gone: the take-over ends it', async () => {
    const { key, webhook } = await begun();
    await expire(key);
    await Promise.all([1, 2, 3].map(() => takeOver(takerOn(store.pool), key)));
    expect(await deliveriesOf(webhook)).toEqual([pending('invocation.ended', 'interrupted', 'interrupted')]);
  });

  test('lost its session', async () => {
    const { key, webhook } = await begun();
    await store.pool.db.execute(sql`update sessions set lease_token = null where id = ${key.sessionId}`);
    await expire(key);
    await endLostInvocations(store.pool.db);
    expect(await deliveriesOf(webhook)).toEqual([pending('invocation.ended', 'interrupted', 'interrupted')]);
  });

  test('ends although its webhook was deleted, or is just being deleted: then none', async () => {
    const { webhook, lease } = await begun();
    const deleting = Promise.withResolvers<void>();
    const deleted = store.pool.transaction(async (tx) => {
      await deleteWebhook(tx, webhook);
      await deleting.promise;
    });
    const ended = finishInvocation(store.pool.db, lease, [], { status: 'succeeded' });
    deleting.resolve();
    await Promise.all([deleted, ended]);
    expect(await deliveriesOf(webhook)).toEqual([]);
  });
});

describe('a run with a webhook leaves one delivery when it', () => {
  const newJob = async (overlap: 'skip' | 'queue' = 'queue') => {
    const user = { appName: 'harness_agent', userId: `user-${randomUUID()}` };
    const webhook = await register(user);
    const job = await store.pool.transaction((tx) =>
      insertCronjob(
        tx,
        {
          ...user,
          id: randomUUID(),
          name: 'n',
          prompt: 'p',
          schedule: { type: 'interval', intervalSeconds: 60, anchorAt: '2026-01-01T00:00:00Z' },
          enabled: true,
          sessionPolicy: 'new',
          missedRuns: 'once',
          overlap,
          maxAttempts: 2,
          retryPauseSeconds: 30,
          maxRetryPauseSeconds: 600,
          maxFailures: 10,
          webhookUrl: webhook.url,
          nextRunTime: new Date(),
        },
        10,
      ),
    );
    return { webhook, job };
  };
  const fire = async (job: CronjobRow) => {
    await store.pool.db.execute(sql`
      update cronjobs set next_run_time = date_trunc('milliseconds', clock_timestamp()) where id = ${job.id}`);
    await fireAll(store.pool);
    const [newest] = await listRuns(store.pool.db, job, 1, undefined);
    if (!newest) throw new Error('nothing was fired');
    return newest;
  };
  /** Begins the run of a job, whose pause is over. */
  const begin = async ({ id, userId }: CronjobRow) => {
    await store.pool.db.execute(sql`
      update invocations set not_before = clock_timestamp() where cronjob_id = ${id} and not_before is not null`);
    const lease = (await beginRuns(store.pool)).find(({ key }) => key.userId === userId);
    if (!lease) throw new Error('the run was not begun');
    return lease;
  };

  test('ends after a second try, and none before', async () => {
    const { webhook, job } = await newJob();
    await fire(job);
    const failure = { status: 'failed', error: { code: 'model_unavailable', message: 'away' } } as const;
    await endRun(store.pool, await begin(job), failure);
    expect(await deliveriesOf(webhook)).toEqual([]);
    await endRun(store.pool, await begin(job), failure);
    expect(await deliveriesOf(webhook)).toEqual([pending('cronjob_run.ended', 'failed', 'model_unavailable')]);
  });

  test('is cancelled or left out while it waits, or is left out at once', async () => {
    const { webhook, job } = await newJob('skip');
    const first = await fire(job);
    await fire(job);
    const context = { database: store.pool, notifications: { publish: () => undefined } };
    for (let n = 0; n < 2; n++) await requestCancelOfRun(context, job, first.id);
    await fire(job);
    await store.pool.transaction((tx) => skipRuns(tx, job, 'The schedule was changed.'));
    expect(await deliveriesOf(webhook)).toEqual([
      pending('cronjob_run.ended', 'skipped', 'skipped'),
      pending('cronjob_run.ended', 'cancelled'),
      pending('cronjob_run.ended', 'skipped', 'skipped'),
    ]);
  });
});

describe('a delivery', () => {
  /** So many deliveries that wait, each of an invocation of its own. */
  const waiting = async (count: number, webhook: WebhookRow) => {
    await store.pool.db.execute(sql`
      insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time)
      select ${webhook.appName}, ${webhook.userId}, ${webhook.id} || '-' || n, ${webhook.id}, ${webhook.host}, '{}',
             'pending', clock_timestamp() + interval '24 hours'
      from generate_series(1, ${count}::int) n`);
  };
  const claim = async (webhook: WebhookRow, limits: Partial<typeof LIMITS> = {}) => {
    const claimed = await claimDeliveries(store.pool, { ...LIMITS, ...limits });
    return claimed.filter((each) => each.webhook.userId === webhook.userId);
  };
  const rowOf = async (webhook: WebhookRow, { delivery }: { delivery: DeliveryRow }) =>
    findDelivery(store.pool.db, webhook, delivery.id);
  const answer = { at: '2026-01-01T00:00:00.000Z', status: 500 };

  test('is claimed once by ten senders, again when its lease is over, and the late one writes nothing', async () => {
    const webhook = await register(newKey());
    await waiting(20, webhook);
    const claimed = (await Promise.all(Array.from({ length: 10 }, () => claim(webhook, { leaseMs: 0 })))).flat();
    expect(claimed.length).toBeGreaterThanOrEqual(20);
    await store.pool.db.execute(sql`
      update jobs set lease_expire_time = clock_timestamp(), attempt = 0 where kind = 'delivery'`);
    const once = (await Promise.all(Array.from({ length: 10 }, () => claim(webhook)))).flat();
    const idOf = ({ delivery }: { delivery: DeliveryRow }) => delivery.id;
    expect(once.map(idOf).toSorted()).toEqual([...new Set(claimed.map(idOf))].toSorted());
    const [late] = claimed;
    if (!late) throw new Error('nothing was claimed');
    await expect(endDelivery(store.pool.db, late, 'delivered', [answer])).rejects.toThrow(LeaseLostError);
    await expect(postponeDelivery(store.pool.db, late, 0, [answer])).rejects.toThrow(LeaseLostError);
    expect(await rowOf(webhook, late)).toMatchObject({ status: 'pending', attempt: 1, answers: [] });
  });

  test('waits for a place at its host and among those of its user, whoever sends', async () => {
    const host = `${randomUUID()}.example`;
    const users = [newKey(), newKey()];
    const hooks = await Promise.all(users.map((user) => register(user, host)));
    for (const hook of hooks) await waiting(5, hook);
    const taken = async (limits: Partial<typeof LIMITS>) =>
      (await claimDeliveries(store.pool, { ...LIMITS, ...limits }))
        .filter((each) => each.webhook.host === host)
        .map(({ webhook }) => webhook.userId);
    const first = await taken({ perHost: 3 });
    expect([first.length, await taken({ perHost: 3 })]).toEqual([3, []]);
    const second = [...first, ...(await taken({ perUser: 5 }))];
    expect(users.map(({ userId }) => second.filter((each) => each === userId).length)).toEqual([4, 4]);
  });

  test('is put back for a pause, and given up when its time is over', async () => {
    const webhook = await register(newKey());
    await waiting(2, webhook);
    const [first, second] = await claim(webhook);
    if (!first || !second) throw new Error('nothing was claimed');
    await postponeDelivery(store.pool.db, first, 3_600_000, [answer]);
    await postponeDelivery(store.pool.db, second, 90_000_000, [answer]);
    expect(await rowOf(webhook, first)).toMatchObject({ status: 'pending', attempt: 1, answers: [answer] });
    expect(await rowOf(webhook, second)).toMatchObject({ status: 'failed', nextAttemptTime: null, answers: [answer] });
    await store.pool.transaction((tx) => replayDelivery(tx, second.delivery));
    expect(await rowOf(webhook, second)).toMatchObject({ status: 'pending', attempt: 0, endTime: null });
    expect(await claim(webhook)).toMatchObject([{ delivery: { id: second.delivery.id } }]);
  });

  test('beyond those of a user that may wait is kept and not sent', async () => {
    const key = newKey();
    const webhook = await register(key);
    await waiting(1_000, webhook);
    const lease = { key, invocationId: 'e-1', token: randomUUID(), durationMs: 60_000, webhookUrl: webhook.url };
    await claimSession(store.pool.db, lease, [textEvent('hi')], true);
    await finishInvocation(store.pool.db, lease, [], { status: 'succeeded' });
    const { rows } = await store.pool.db.execute(sql`
      select status, answers -> 0 ->> 'error' as error from webhook_deliveries
      where webhook_id = ${webhook.id} and payload <> '{}'`);
    expect(rows).toEqual([{ status: 'failed', error: 'Not sent: 1000 deliveries of the user wait already.' }]);
    await deleteWebhook(store.pool.db, webhook);
    const left = await store.pool.db.execute(sql`select id from jobs where user_id = ${key.userId}`);
    expect(left.rows).toEqual([]);
  });

  test('that has ended is deleted by age and by count, one that waits is not', async () => {
    const webhook = await register(newKey());
    await waiting(12, webhook);
    const [oldest, ...others] = await claim(webhook);
    for (const each of others) await endDelivery(store.pool.db, each, 'delivered', [answer]);
    const left = async () => (await deliveriesLeft(webhook)).toSorted();
    await deleteOldDeliveries(store.pool.db, 7, 5);
    expect(await left()).toEqual(['delivered', 'delivered', 'delivered', 'delivered', 'delivered', 'pending']);
    await store.pool.db.execute(sql`
      update webhook_deliveries set end_time = end_time - interval '8 days' where webhook_id = ${webhook.id}`);
    await deleteOldDeliveries(store.pool.db, 7, 5);
    expect([await left(), oldest?.delivery.status]).toEqual([['pending'], 'pending']);
  });
  const deliveriesLeft = async ({ id }: WebhookRow) => {
    const { rows } = await store.pool.db.execute<{ status: string }>(
      sql`select status from webhook_deliveries where webhook_id = ${id}`,
    );
    return rows.map(({ status }) => status);
  };
});

test('inspect.webhook_deliveries shows what receivers answered, and no secret', async () => {
  const key = newKey();
  const webhook = await register(key);
  const lease = { key, invocationId: 'e-1', token: randomUUID(), durationMs: 60_000, webhookUrl: webhook.url };
  await claimSession(store.pool.db, lease, [textEvent('hi')], true);
  await finishInvocation(store.pool.db, lease, [], { status: 'succeeded' });
  const claimed = (await claimDeliveries(store.pool, LIMITS)).find((each) => each.webhook.id === webhook.id);
  if (!claimed) throw new Error('nothing was claimed');
  await endDelivery(store.pool.db, claimed, 'failed', [{ at: '2026-01-01T00:00:00.000Z', status: 410 }]);
  const { rows } = await store.pool.db.execute(sql`
    select * from inspect.webhook_deliveries where user_id = ${key.userId}`);
  expect(rows).toEqual([
    expect.objectContaining({
      url: webhook.url,
      type: 'invocation.ended',
      ended_as: 'succeeded',
      status: 'failed',
      attempt: 1,
      last_status: '410',
      last_error: null,
    }),
  ]);
  expect(JSON.stringify(rows)).not.toContain(webhook.secret);
});
