import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { openNotifications } from '../../src/platform/db/notifications.ts';
import { toArtifactContent } from '../../src/conversation/artifacts/artifact.ts';
import { findArtifactVersionText, saveArtifactVersion } from '../../src/conversation/artifacts/artifact-store.ts';
import { LeaseLostError } from '../../src/core/errors.ts';
import { WaitQueue } from '../../src/invocations/wait-queue.ts';
import { acquireOnce, acquireSession } from '../../src/invocations/session-lock.ts';
import {
  claimQueued,
  claimSession,
  enqueueInvocation,
  findLockHolder,
  hasFinished,
  type Lease,
  putBack,
  renewLease,
} from '../../src/invocations/lock-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { requestStop } from '../../src/invocations/invocation-store.ts';
import { endDeadWaiters, takeOver } from '../../src/invocations/take-over.ts';
import type { SessionKey } from '../../src/core/session.ts';
import {
  dequeueInvocation,
  findQueued,
  listHeads,
  type QueueHead,
  renewPlaces,
} from '../../src/invocations/queue-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { findHistory } from '../../src/conversation/sessions/history.ts';
import { newKey, statementsOf, takerOn, testPool, textEvent } from '../support/store.ts';
import { sql } from 'drizzle-orm';

/** What a process that serves the application of a session would take up from it. */
async function headsOf({ appName, sessionId }: SessionKey, without: string[] = []): Promise<QueueHead[]> {
  const choice = { appNames: [appName], without, limit: 100, runs: 0, runsPerUser: 0, aheadMs: 0 };
  const { begun, waiting } = await listHeads(store.pool.db, choice, 3);
  return [...begun, ...waiting].filter(({ key }) => key.sessionId === sessionId);
}

const store = testPool(20);
const taker = () => takerOn(store.pool);
const newWaitQueue = () =>
  new WaitQueue((leases) => renewPlaces(store.pool.db, leases, 60_000), 20_000, { warn: () => undefined });
/** What the row of a run keeps of its request. */
const storedRequest = { version: 1 };
/** A lease for an invocation as its row is read. */
const reading = async (lease: Lease): Promise<Lease> => {
  const readToken = (await findQueued(store.pool.db, lease))?.token ?? '';
  return { ...lease, token: randomUUID(), readToken };
};
const newLease = (durationMs = 60_000): Lease => ({
  key: newKey(),
  invocationId: `e-${randomUUID()}`,
  token: randomUUID(),
  durationMs,
});
const claim = (lease: Lease, text = 'hello') =>
  claimSession(store.pool.db, lease, [textEvent(text, { invocationId: lease.invocationId })], true);
const invocation = async (lease: Lease) => {
  const { rows } = await store.pool.db.execute(
    sql`select status, response_body as answer, error_code, error_message, llm_calls, end_time is not null as ended
        from invocations where id = ${lease.invocationId}`,
  );
  return rows[0];
};
const texts = async (lease: Lease) =>
  (await findHistory(store.pool.db, lease.key))?.events.map(({ content }) => content?.parts?.[0]?.text);

describe('claim', () => {
  test('one statement creates session, event and invocation; a second claim finds the session busy', async () => {
    const lease = newLease();
    const statements = await statementsOf(async () => expect(await claim(lease)).toBe(true));
    expect(statements).toHaveLength(1);
    expect(await claim({ ...newLease(), key: lease.key }, 'second')).toBe(false);
    expect(await texts(lease)).toEqual(['hello']);
    expect(await findLockHolder(store.pool.db, lease.key)).toEqual({
      kind: 'live',
      invocationId: lease.invocationId,
      token: lease.token,
    });
  });

  test('the claim of a session without events says its whole history, that of another does not', async () => {
    const lease = newLease();
    await insertSession(store.pool.db, lease.key, { mood: 'good', 'user:name': 'Ann' }, []);
    expect(await claim(lease)).toBe(true);
    const read = await findHistory(store.pool.db, lease.key);
    expect(lease.history).toMatchObject({ events: read?.events, state: { mood: 'good', 'user:name': 'Ann' } });
    expect(lease.history?.state).toEqual(read?.state);
    await finishInvocation(store.pool.db, lease, [], { status: 'succeeded' });
    const second = { ...newLease(), key: lease.key };
    expect(await claim(second, 'again')).toBe(true);
    expect(second.history).toBeUndefined();
  });

  test('of 10 claims of a new session at once one wins', async () => {
    const first = newLease();
    const claims = await Promise.all(Array.from({ length: 10 }, () => claim({ ...newLease(), key: first.key })));
    expect(claims.filter(Boolean)).toHaveLength(1);
    expect(await texts(first)).toEqual(['hello']);
  });

  test('a claim whose answer was lost is known by its token, also when its lease has run out', async () => {
    const lease = newLease(0);
    const events = [textEvent('hello', { invocationId: lease.invocationId })];
    const tryAgain = (durationMs: number) => claimSession(store.pool.db, { ...lease, durationMs }, events, true);
    expect(await tryAgain(0)).toBe(true);
    expect(await tryAgain(60_000)).toBe(true);
    const { invocationId, token } = lease;
    expect(await findLockHolder(store.pool.db, lease.key)).toEqual({ kind: 'live', invocationId, token });
    expect(await texts(lease)).toEqual(['hello']);
    // Another with the same name, and no lease.
    expect(await claimSession(store.pool.db, { ...lease, token: randomUUID() }, events, true)).toBe(false);
  });

  test('a claim whose answer was lost until another process took it over has lost its lease', async () => {
    const lease = newLease(0);
    const events = [textEvent('hello', { invocationId: lease.invocationId })];
    await claimSession(store.pool.db, lease, events, true);
    await takeOver(taker(), lease.key);
    await expect(claimSession(store.pool.db, lease, events, true)).rejects.toThrow(LeaseLostError);
    expect(await findLockHolder(store.pool.db, lease.key)).toEqual({ kind: 'free' });
  });

  test('without leave to create, an absent session is not claimed', async () => {
    const lease = newLease();
    expect(await claimSession(store.pool.db, lease, [textEvent('x')], false)).toBe(false);
    expect(await findLockHolder(store.pool.db, lease.key)).toEqual({ kind: 'absent' });
  });
});

test('a claim that has looked at the queue does not pass the invocation that is left meanwhile', async () => {
  const left = { ...newLease(), storedRequest: { version: 1 } };
  await claim(left);
  const next = { ...newLease(), key: left.key };
  let claimed: Promise<boolean> | undefined;
  const isBlocked = async () => {
    const { rows } = await store.pool.db.execute(
      sql`select from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock' and query like '%claim_session%'`,
    );
    return rows.length;
  };
  await store.pool.transaction(async (tx) => {
    // It stops between its look at those that wait and the row of the session.
    await tx.execute(sql`lock table sessions in share mode`);
    claimed = claim(next, 'next');
    await expect.poll(isBlocked).toBe(1);
    await putBack(tx, left, randomUUID(), { isHandedOver: true });
  });
  expect(await claimed).toBe(false);
  expect([(await invocation(left))?.['status'], await texts(left)]).toEqual(['queued', ['hello']]);
});

describe('a dead invocation whose request is kept', () => {
  test.each([
    { attempt: 1, status: 'queued', pause: 0, message: null },
    { attempt: 2, status: 'queued', pause: 120, message: null },
    {
      attempt: 3,
      status: 'interrupted',
      pause: 0,
      message: 'The invocation was interrupted: its process stopped before the answer, which happened 3 times.',
    },
  ])(
    'begun $attempt times is $status, for another process in $pause s',
    async ({ attempt, status, pause, message }) => {
      const lease = { ...newLease(0), storedRequest: { version: 1 } };
      await claim(lease);
      await store.pool.db.execute(sql`update invocations set attempt = ${attempt} where id = ${lease.invocationId}`);
      expect(await takeOver(taker(), lease.key)).toEqual({ kind: 'free' });
      const { rows } = await store.pool.db.execute(sql`
      select status, error_message as message,
        greatest(0, round(extract(epoch from lease_expire_time - update_time) / 60) * 60)::int as pause
      from (select i.*, s.update_time from invocations i
            join sessions s on s.app_name = i.app_name and s.user_id = i.user_id and s.id = i.session_id
            where i.id = ${lease.invocationId}) taken`);
      expect(rows).toEqual([{ status, message, pause }]);
    },
  );

  test('may lose any number of processes that store two answers of models; of others, or of some that hand it over, three', async () => {
    const lease = { ...newLease(0), storedRequest };
    const { db } = store.pool;
    await claim(lease);
    let held: Lease = lease;
    /** A process stores so many answers and dies. Returns what the row says, with the pause in minutes. */
    const die = async (answers: number) => {
      for (let answer = 0; answer < answers; answer += 1) {
        const { invocationId } = lease;
        const counts = { invocationId, llmCalls: 1, toolCalls: 0, promptTokens: 0, outputTokens: 0 };
        const events = [textEvent('step', { author: 'agent', invocationId })];
        await appendEvents(db, lease.key, events, { leaseToken: held.token, counts });
      }
      await db.execute(sql`update invocations set lease_expire_time = now() where id = ${lease.invocationId}`);
      expect(await takeOver(taker(), lease.key)).toEqual({ kind: 'free' });
      const { rows } = await db.execute(sql`
        select status, attempt, greatest(0, round(extract(epoch from lease_expire_time - now()) / 60))::int as minutes
        from invocations where id = ${lease.invocationId}`);
      return rows[0];
    };
    const goOn = async () => {
      await db.execute(sql`update invocations set lease_expire_time = now() where id = ${lease.invocationId}`);
      held = await reading(lease);
      expect(await claimQueued(db, held, [])).toBe(true);
    };
    for (let death = 0; death < 5; death += 1) {
      expect(await die(2)).toEqual({ status: 'queued', attempt: 1, minutes: 0 });
      await goOn();
    }
    expect(await die(1)).toEqual({ status: 'queued', attempt: 2, minutes: 2 });
    await goOn();
    // What one process left counts for none of the next.
    expect(await putBack(db, held, randomUUID(), { isHandedOver: true })).toBe(true);
    await goOn();
    expect(await die(1)).toMatchObject({ status: 'interrupted', attempt: 3 });
  });

  test('has used the time of its processes, and not that between them', async () => {
    const lease = { ...newLease(0), storedRequest };
    await claim(lease);
    const shift = (began: number, ended: number) =>
      store.pool.db.execute(sql`
        update invocations set lease_expire_time = now() - ${ended} * interval '1 s',
          request = jsonb_set(request, '{began,at}', ((request #>> '{began,at}')::numeric - ${began})::text::jsonb)
        where id = ${lease.invocationId}`);
    for (const attempt of [1, 2]) {
      await shift(5_000, 4_000);
      expect(await takeOver(taker(), lease.key)).toEqual({ kind: 'free' });
      await shift(0, 0);
      const queued = await findQueued(store.pool.db, lease);
      const { began } = (queued?.request ?? {}) as { began?: { spentMs?: number } };
      expect(Math.round((began?.spentMs ?? 0) / 100_000)).toBe(10 * attempt);
      expect(await claimQueued(store.pool.db, await reading(lease), [])).toBe(true);
    }
  });

  test('goes on before one that came earlier, whose place was taken for dead when it began', async () => {
    const running = newLease();
    await claim(running);
    const early = { ...newLease(0), key: running.key };
    await enqueueInvocation(store.pool.db, early, 8);
    await finishInvocation(store.pool.db, running, [], { status: 'succeeded' });
    const next = { ...newLease(0), key: running.key, storedRequest };
    expect(await claim(next)).toBe(true);
    expect(await takeOver(taker(), running.key)).toEqual({ kind: 'free' });
    expect(await enqueueInvocation(store.pool.db, { ...early, durationMs: 60_000 }, 8)).toMatchObject({
      kind: 'queued',
    });
    expect(await headsOf(running.key)).toMatchObject([{ invocationId: next.invocationId }]);
    expect(await claimQueued(store.pool.db, early, [textEvent('early')])).toBe(false);
    expect(await claimQueued(store.pool.db, { ...(await reading(next)), durationMs: 60_000 }, [])).toBe(true);
  });
});

describe('finish', () => {
  test('stores events, status and answer in one statement and gives the session free', async () => {
    const lease = newLease();
    await claim(lease);
    const statements = await statementsOf(() =>
      finishInvocation(store.pool.db, lease, [textEvent('bye')], {
        status: 'succeeded',
        answer: '{"a":1}',
        counts: { llmCalls: 2, toolCalls: 0, promptTokens: 0, outputTokens: 0 },
      }),
    );
    expect(statements).toHaveLength(1);
    expect(await invocation(lease)).toEqual({
      status: 'succeeded',
      answer: '{"a":1}',
      error_code: null,
      error_message: null,
      llm_calls: 2,
      ended: true,
    });
    expect(await texts(lease)).toEqual(['hello', 'bye']);
    expect(await claim({ ...newLease(), key: lease.key }, 'next')).toBe(true);
  });

  test('a writer whose token is gone writes nothing: no event, no status, no renewal', async () => {
    const dead = newLease(0);
    await claim(dead);
    expect(await takeOver(taker(), dead.key)).toEqual({ kind: 'free' });
    const lost = new LeaseLostError(`The invocation no longer holds session ${dead.key.sessionId}.`);
    await expect(
      appendEvents(store.pool.db, dead.key, [textEvent('late')], { leaseToken: dead.token }),
    ).rejects.toEqual(lost);
    await expect(finishInvocation(store.pool.db, dead, [textEvent('late')], { status: 'succeeded' })).rejects.toEqual(
      lost,
    );
    expect(await renewLease(store.pool.db, dead)).toBe('lost');
    expect(await invocation(dead)).toMatchObject({ status: 'interrupted', error_code: 'interrupted', ended: true });
    expect(await texts(dead)).not.toContain('late');
  });
});

describe('take over', () => {
  test('ends a dead invocation: its open calls are answered in order, and it says it was interrupted', async () => {
    const dead = newLease(0);
    await claim(dead);
    const calls = ['one', 'two'].map((id) => ({ functionCall: { id, name: `tool_${id}`, args: {} } }));
    const called = textEvent('', {
      invocationId: dead.invocationId,
      author: 'helper',
      nodeInfo: { path: 'team@1/helper@1' },
      content: { role: 'model', parts: calls },
    });
    await appendEvents(store.pool.db, dead.key, [called], { leaseToken: dead.token });
    const answered = textEvent('', {
      invocationId: dead.invocationId,
      author: 'helper',
      nodeInfo: { path: 'team@1/helper@1' },
      content: { role: 'user', parts: [{ functionResponse: { id: 'one', name: 'tool_one', response: { ok: true } } }] },
    });
    await appendEvents(store.pool.db, dead.key, [answered], { leaseToken: dead.token });
    await takeOver(taker(), dead.key);
    const history = await findHistory(store.pool.db, dead.key);
    const message = 'The invocation was interrupted: its process stopped before the answer.';
    expect(history?.events.slice(3)).toEqual([
      {
        id: expect.any(String),
        invocationId: dead.invocationId,
        author: 'helper',
        nodeInfo: { path: 'team@1/helper@1' },
        timestamp: expect.any(Number),
        content: {
          role: 'user',
          parts: [
            {
              functionResponse: {
                id: 'two',
                name: 'tool_two',
                response: { error: 'The call was interrupted before it answered.' },
              },
            },
          ],
        },
      },
      {
        id: expect.any(String),
        invocationId: dead.invocationId,
        author: 'helper',
        nodeInfo: { path: 'team@1/helper@1' },
        timestamp: expect.any(Number),
        interrupted: true,
        errorCode: 'interrupted',
        errorMessage: message,
      },
    ]);
  });

  test('leaves a live invocation alone, and of 10 takers of a dead one each finds it free', async () => {
    const live = newLease();
    await claim(live);
    expect(await takeOver(taker(), live.key)).toMatchObject({
      kind: 'live',
      token: live.token,
    });
    const dead = newLease(0);
    await claim(dead);
    const holders = await Promise.all(Array.from({ length: 10 }, () => takeOver(taker(), dead.key)));
    expect(holders).toEqual(Array.from({ length: 10 }, () => ({ kind: 'free' })));
    expect((await findHistory(store.pool.db, dead.key))?.events).toHaveLength(2);
  });

  test('the next claim of a session takes it over by itself', async () => {
    const dead = newLease(0);
    await claim(dead);
    const next = { ...newLease(), key: dead.key };
    const events = [textEvent('next', { invocationId: next.invocationId })];
    const notifications = openNotifications({ url: store.url }, () => undefined);
    await acquireSession(
      { ...taker(), notifications, waitQueue: newWaitQueue() },
      {
        lease: next,
        events,
        createSession: false,
        busyPolicy: 'enqueue',
        resumes: false,
        times: { durationMs: 60_000, renewalMs: 20_000, waitMs: 0 },
        queueDepth: 8,
        signal: new AbortController().signal,
      },
    );
    await notifications.close();
    expect(await texts(dead)).toEqual(['hello', undefined, 'next']);
  });

  test('a message whose queuing was not confirmed, and which the run took and answered since, does not begin again', async () => {
    const run = newLease();
    await claim(run);
    const message = { ...newLease(), key: run.key };
    const event = { id: message.invocationId, author: 'user', actions: {} };
    const body = { ...storedRequest, content: { role: 'user', parts: [{ text: 'message' }] }, steer: event };
    const { db } = store.pool;
    let isLost = false;
    const query = async (asked: { text: string }) => {
      const answer = await db.$client.query(asked);
      if (isLost || !asked.text.includes('enqueue_invocation(')) return answer;
      isLost = true;
      const step = textEvent('step', { invocationId: run.invocationId });
      const counts = { invocationId: run.invocationId, llmCalls: 1, toolCalls: 0, promptTokens: 0, outputTokens: 0 };
      await appendEvents(db, run.key, [step], { leaseToken: run.token, counts, takesMessages: { keys: [] } });
      await finishInvocation(db, run, [], { status: 'succeeded' });
      throw Object.assign(new Error('The connection was lost.'), { code: '08006' });
    };
    const lossy = Object.create(db, { $client: { value: Object.create(db.$client, { query: { value: query } }) } });
    const database = Object.create(store.pool, { db: { value: lossy } }) as typeof store.pool;
    const notifications = openNotifications({ url: store.url }, () => undefined);
    const begins = await acquireOnce(
      { ...takerOn(database), notifications, waitQueue: newWaitQueue() },
      {
        lease: { ...message, storedRequest: body },
        events: [textEvent('message', { invocationId: message.invocationId })],
        createSession: false,
        busyPolicy: 'steer',
        resumes: false,
        times: { durationMs: 60_000, renewalMs: 20_000, waitMs: 0 },
        queueDepth: 8,
        signal: new AbortController().signal,
        body,
      },
    );
    await notifications.close();
    expect([isLost, begins]).toEqual([true, false]);
    expect(await texts(run)).toEqual(['hello', 'step', 'message']);
  });
});

describe('races', () => {
  test('a look that had to wait for a claim finds it alive, not the invocation of an older snapshot', async () => {
    const lease = newLease();
    await claim(lease);
    await finishInvocation(store.pool.db, lease, [], { status: 'succeeded' });
    const next = { ...newLease(), key: lease.key };
    const claimed = Promise.withResolvers<void>();
    const look = Promise.withResolvers<void>();
    const claiming = store.pool.transaction(async (tx) => {
      await claimSession(tx, next, [textEvent('next', { invocationId: next.invocationId })], true);
      claimed.resolve();
      await look.promise;
    });
    await claimed.promise;
    const looking = takeOver(taker(), lease.key);
    // The look is certainly waiting when the database says that it waits for a lock.
    for (let waiting = 0; waiting === 0; ) {
      const { rows } = await store.pool.db.execute<{ n: number }>(
        sql`select count(*)::int as n from pg_stat_activity
            where wait_event_type = 'Lock' and datname = current_database()`,
      );
      waiting = rows[0]?.n ?? 0;
    }
    look.resolve();
    await claiming;
    expect(await looking).toEqual({ kind: 'live', invocationId: next.invocationId, token: next.token });
    expect(await texts(lease)).toEqual(['hello', 'next']);
  });

  test('a zombie that was taken over does not take the take-over for its own end', async () => {
    const zombie = newLease(0);
    await claim(zombie);
    await takeOver(taker(), zombie.key);
    expect(await hasFinished(store.pool.db, zombie)).toBe(false);
  });

  test('a cancelled place in the queue is not claimed any more', async () => {
    const running = newLease();
    await claim(running);
    const queued = { ...newLease(), key: running.key };
    expect(await enqueueInvocation(store.pool.db, queued, 8)).toMatchObject({ kind: 'queued' });
    expect(await requestStop(store.pool.db, queued.key, queued.invocationId, 'cancelled')).toMatchObject({
      status: 'cancelled',
    });
    await finishInvocation(store.pool.db, running, [], { status: 'succeeded' });
    expect(await claimQueued(store.pool.db, queued, [textEvent('late')])).toBe(false);
    expect(await invocation(queued)).toMatchObject({ status: 'cancelled' });
  });

  test('asking twice for a place in the queue keeps the one place', async () => {
    const running = newLease();
    await claim(running);
    const queued = { ...newLease(), key: running.key };
    expect(await enqueueInvocation(store.pool.db, queued, 1)).toMatchObject({ kind: 'queued' });
    expect(await enqueueInvocation(store.pool.db, queued, 1)).toMatchObject({ kind: 'queued' });
    expect(await enqueueInvocation(store.pool.db, { ...newLease(), key: running.key }, 1)).toMatchObject({
      kind: 'full',
    });
  });

  test('a place that was stopped, and a session that is gone, are not a full queue', async () => {
    const running = newLease();
    await claim(running);
    const queued = { ...newLease(), key: running.key };
    expect(await enqueueInvocation(store.pool.db, queued, 8)).toMatchObject({ kind: 'queued' });
    await requestStop(store.pool.db, queued.key, queued.invocationId, 'cancelled');
    expect(await enqueueInvocation(store.pool.db, queued, 8)).toMatchObject({ kind: 'lost' });
    expect(await enqueueInvocation(store.pool.db, newLease(), 8)).toMatchObject({ kind: 'absent' });
  });

  test('a heartbeat keeps the places of those that wait, and the sweep ends the others', async () => {
    const running = newLease();
    await claim(running);
    const waiters = Array.from({ length: 4 }, () => ({ ...newLease(0), key: running.key }));
    for (const lease of waiters) await enqueueInvocation(store.pool.db, lease, 8);
    const others = waiters.map((lease) => ({ ...lease, token: randomUUID() }));
    expect(await renewPlaces(store.pool.db, others, 60_000)).toEqual(new Set());
    const kept = waiters.slice(1);
    expect(await renewPlaces(store.pool.db, kept, 60_000)).toEqual(new Set(kept.map(({ token }) => token)));
    await endDeadWaiters(store.pool.db);
    const left = await Promise.all(waiters.map(invocation));
    expect(left.map((row) => row?.['status'])).toEqual(['interrupted', 'queued', 'queued', 'queued']);
    expect(await renewPlaces(store.pool.db, waiters, 60_000)).toEqual(new Set(kept.map(({ token }) => token)));
  });

  test.each(['stopped', 'begun'] as const)('a wait that was %s is not ended as one in vain', async (how) => {
    const running = newLease();
    await claim(running);
    const waiter = { ...newLease(), key: running.key };
    await enqueueInvocation(store.pool.db, waiter, 8);
    expect(await dequeueInvocation(store.pool.db, { ...waiter, token: randomUUID() })).toBe(false);
    if (how === 'stopped') await requestStop(store.pool.db, waiter.key, waiter.invocationId, 'cancelled');
    else {
      await finishInvocation(store.pool.db, running, [], { status: 'succeeded' });
      expect(await claimQueued(store.pool.db, waiter, [])).toBe(true);
    }
    expect(await renewPlaces(store.pool.db, [waiter], 60_000)).toEqual(new Set());
    expect(await dequeueInvocation(store.pool.db, waiter)).toBe(false);
    expect(await invocation(waiter)).toMatchObject({ status: how === 'stopped' ? 'cancelled' : 'running' });
  });

  test('what waits in the background needs no process: it keeps its place until it is claimed', async () => {
    const running = newLease();
    await claim(running);
    const queued = { ...newLease(0), key: running.key };
    const body = { newMessage: { parts: [{ text: 'nul \u0000' }] } };
    // Free, and of another user, with the same id.
    await insertSession(store.pool.db, { ...running.key, userId: randomUUID() }, {}, []);
    expect(await enqueueInvocation(store.pool.db, queued, 8, body)).toMatchObject({ kind: 'queued' });
    await endDeadWaiters(store.pool.db);
    const head = {
      key: queued.key,
      invocationId: queued.invocationId,
      attempts: 0,
      ageSeconds: expect.any(Number) as unknown,
      waitSeconds: expect.any(Number) as unknown,
      bytes: expect.any(Number) as unknown,
      isRun: false,
    };
    expect(await headsOf(queued.key)).toEqual([]);
    const row = await findQueued(store.pool.db, queued);
    expect(row).toMatchObject({ request: body, hasBegun: false });
    await finishInvocation(store.pool.db, running, [], { status: 'succeeded' });
    expect(await headsOf(queued.key)).toEqual([{ ...head, queued: row }]);
    // A request of 160 KB that compresses to less than 2 KB is read later too.
    await store.pool.db.execute(sql`
      update invocations set request = request || jsonb_build_object('long', repeat('a', 160000)) where id = ${queued.invocationId}`);
    expect(await headsOf(queued.key)).toMatchObject([{ queued: undefined }]);
    await store.pool.db.execute(
      sql`update invocations set request = request - 'long' where id = ${queued.invocationId}`,
    );
    expect(await headsOf(queued.key, [queued.invocationId])).toEqual([]);
    expect(await headsOf({ ...queued.key, appName: 'another' })).toEqual([]);
    expect(await claimSession(store.pool.db, { ...newLease(), key: running.key }, [], false)).toBe(false);
    const claims = await Promise.all(Array.from({ length: 5 }, () => reading(queued)));
    const claimed = await Promise.all(claims.map((lease) => claimQueued(store.pool.db, lease, [])));
    expect(claimed.filter(Boolean)).toHaveLength(1);
    expect(await headsOf(queued.key)).toEqual([]);
    expect(await findQueued(store.pool.db, queued)).toBeUndefined();
  });

  test('what was begun and left after it was read is not begun once more', async () => {
    const running = newLease();
    await claim(running);
    const queued = { ...newLease(), key: running.key };
    await enqueueInvocation(store.pool.db, queued, 8, { version: 1 });
    await finishInvocation(store.pool.db, running, [], { status: 'succeeded' });
    const [first, second] = [await reading(queued), await reading(queued)];
    const begin = (lease: Lease) => claimQueued(store.pool.db, { ...lease, storedRequest }, [textEvent('prompt')]);
    expect(await begin(first)).toBe(true);
    await store.pool.transaction((tx) => putBack(tx, first, randomUUID(), { isHandedOver: true }));
    expect(await begin(second)).toBe(false);
    expect(await claimQueued(store.pool.db, await reading(queued), [])).toBe(true);
    expect(await texts(queued)).toEqual(['hello', 'prompt']);
  });
});

test('what a tool of a lost invocation saves is refused, also for an artifact of the user', async () => {
  const dead = newLease(0);
  await claim(dead);
  const content = toArtifactContent({ text: 'x' });
  for (const artifactName of ['own.txt', 'user:shared.txt']) {
    const key = { ...dead.key, artifactName };
    await saveArtifactVersion(store.pool.db, key, content, {}, undefined, dead.token);
    await expect(saveArtifactVersion(store.pool.db, key, content, {}, undefined, randomUUID())).rejects.toEqual(
      new LeaseLostError(`The invocation no longer holds session ${dead.key.sessionId}.`),
    );
    expect(await findArtifactVersionText(store.pool.db, key, 1)).toBeUndefined();
  }
});
