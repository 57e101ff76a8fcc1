import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SessionKey } from '../../src/core/session.ts';
import { sessionTopic, textTopic } from '../../src/core/names.ts';
import { type Notifications, openNotifications } from '../../src/platform/db/notifications.ts';
import type { NewEvent } from '../../src/core/event.ts';
import { notifyListener } from '../../src/invocations/request.ts';
import type { Invocation } from '../../src/invocations/invocation.ts';
import { LocalRun } from '../../src/invocations/local-run.ts';
import { SessionFeeds } from '../../src/invocations/session-feed.ts';
import { type FollowOptions, followSession } from '../../src/invocations/follow.ts';
import { readTurn } from '../../src/features/doors/turn.ts';
import { claimSession, type Lease } from '../../src/invocations/lock-store.ts';
import { appendDeltas } from '../../src/conversation/sessions/delta-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

const store = testPool();
let notifications: Notifications;
let feeds: SessionFeeds;
beforeAll(() => {
  notifications = openNotifications({ url: store.url }, () => undefined);
  feeds = new SessionFeeds({ database: store.pool, notifications });
});
afterAll(() => notifications.close());

const STREAMS = 1_000;
const SECONDS = 2;

/** Follows sessions from a sequence, one stream each; `seen` grows by the sequence of each event. */
async function followAll(keys: SessionKey[], after: number, signal: AbortSignal, options: FollowOptions = {}) {
  const seen: number[] = [];
  const context = { feeds };
  const streams = keys.map(async (key) => {
    const from = { sequence: after, delta: 0 };
    for await (const { position } of followSession(context, key, from, signal, options)) seen.push(position.sequence);
  });
  return { seen, ended: Promise.all(streams) };
}

/** Holds for as long as it took: a busy machine sleeps longer than it was told. */
async function expectFewStatements() {
  const startedAt = performance.now();
  const sent = await statementsOf(() => sleep(SECONDS * 1_000));
  expect(sent.length).toBeGreaterThan(0);
  expect(sent.length).toBeLessThanOrEqual(5 * Math.ceil((performance.now() - startedAt) / 1_000));
}

async function appendText({ key, token }: Lease, after: number | undefined, text: string) {
  const appended = await appendDeltas(store.pool.db, { key, token, after, pieces: [{ eventId: 'x', text }] });
  if (!appended || appended === 'locked') throw new Error(`the text was not stored: ${appended}`);
  return appended;
}

const createSession = async (): Promise<SessionKey> => {
  const key = newKey();
  await insertSession(store.pool.db, key, {}, [textEvent('one')]);
  return key;
};

test('1,000 streams that have nothing to send cost at most 5 statements a second in all', async () => {
  const keys: SessionKey[] = [];
  while (keys.length < STREAMS) keys.push(...(await Promise.all(Array.from({ length: 20 }, createSession))));
  const leave = new AbortController();
  const { seen, ended } = await followAll(keys, 0, leave.signal);
  await expect.poll(() => seen.length).toBe(STREAMS);
  await expectFewStatements();
  // A notification that is lost costs time only: the look at all of them finds the event.
  const [key] = keys;
  if (key) await appendEvents(store.pool.db, key, [textEvent('two')]);
  await expect.poll(() => seen.length).toBe(STREAMS + 1);
  leave.abort();
  await ended;
});

test('the followers of one session share what is read for them', async () => {
  const key = await createSession();
  const leave = new AbortController();
  const { seen, ended } = await followAll(
    Array.from({ length: 50 }, () => key),
    1,
    leave.signal,
  );
  const startedAt = performance.now();
  const sent = await statementsOf(async () => {
    await appendEvents(store.pool.db, key, [textEvent('two')]);
    notifications.publish(sessionTopic(key));
    await expect.poll(() => seen.length).toBe(50);
  });
  expect(seen).toEqual(Array.from({ length: 50 }, () => 2));
  // The append, the notification, the read; looks at the followed sessions, a few a second, may come between.
  expect(sent.length).toBeLessThanOrEqual(8 + 5 * ((performance.now() - startedAt) / 1_000));
  leave.abort();
  await ended;
});

test('the readers of an answer under way share what is read of it, which is what is new', async () => {
  const key = newKey();
  const lease = { key, invocationId: 'i', token: randomUUID(), durationMs: 60_000 };
  await claimSession(store.pool.db, lease, [textEvent('prompt')], true);
  const first = await appendText(lease, undefined, 'one');
  const leave = new AbortController();
  const keys = Array.from({ length: 50 }, () => key);
  const { seen, ended } = await followAll(keys, 1, leave.signal, { withText: true });
  await expect.poll(() => seen.length).toBe(50);
  const sent = await statementsOf(async () => {
    await appendText(lease, first.last, 'two');
    notifications.publish(textTopic(key));
    await expect.poll(() => seen.length).toBe(100);
  });
  // The piece, the notification, the read; a look at the followed sessions and a read of the text may come between.
  expect(sent.length).toBeLessThanOrEqual(6);
  leave.abort();
  await ended;
});

test('those who wait for the end of an invocation share a look, which sees an end without a notification', async () => {
  const key = await createSession();
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    values (${key.appName}, ${key.userId}, ${key.sessionId}, 'e', 'running', gen_random_uuid(), 'infinity')`);
  let [isEnded, looks] = [false, 0];
  const isOver = async () => {
    looks += 1;
    return isEnded;
  };
  const keys = Array.from({ length: 50 }, () => key);
  const { ended } = await followAll(keys, 1, new AbortController().signal, { until: { invocationId: 'e', isOver } });
  // The first look at the invocation wakes all: it may have ended before it was watched.
  await expect.poll(() => looks).toBe(100);
  await expectFewStatements();
  expect(looks).toBe(100);
  isEnded = true;
  await store.pool.db.execute(sql`update invocations set status = 'failed' where session_id = ${key.sessionId}`);
  await ended;
  expect(looks).toBe(150);
});

test('a follower whose last event was lost in a failover begins anew, though there are as many again', async () => {
  const key = await createSession();
  const leave = new AbortController();
  const restarts: string[] = [];
  const onRestart = async (reason: string) => void restarts.push(reason);
  const { seen, ended } = await followAll([key], 0, leave.signal, { onRestart });
  await expect.poll(() => seen).toEqual([1]);
  await store.pool.db.execute(sql`update events set id = 'another' where session_id = ${key.sessionId}`);
  await appendEvents(store.pool.db, key, [textEvent('two')]);
  await expect.poll(() => seen).toEqual([1, 1, 2]);
  expect(restarts).toEqual(['The session has lost its event 1.']);
  leave.abort();
  await ended;
});

/** A session with one event, an invocation in it, and its follower in the process that runs it. */
async function followLocally(onRestart?: FollowOptions['onRestart']) {
  const key = await createSession();
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    values (${key.appName}, ${key.userId}, ${key.sessionId}, 'e', 'running', gen_random_uuid(), 'infinity')`);
  const run = new LocalRun(false);
  run.begin(1, [], []);
  const over = { isOver: false };
  const until = { invocationId: 'e', run, isOver: async () => over.isOver };
  const options = { until, ...(onRestart && { onRestart }) };
  const append = async (text: string) => {
    const event = textEvent(text, { invocationId: 'e' });
    const { events: stored } = await appendEvents(store.pool.db, key, [event]);
    return { event, stored };
  };
  return {
    key,
    run,
    over,
    follow: () => followAll([key], 1, new AbortController().signal, options),
    /** Follows with text, and reads only when it is asked to. */
    followText: () =>
      followSession({ feeds }, key, { sequence: 1, delta: 0 }, new AbortController().signal, {
        ...options,
        withText: true,
      }),
    /** Stores an event as the run does. */
    say: async (text: string) => {
      const { event, stored } = await append(text);
      notifyListener(run.addFrame, stored, [event]);
    },
    /** Stores an event as another client, or another process, does. */
    sayElsewhere: async (text: string) => {
      await append(text);
      notifications.publish(sessionTopic(key));
    },
    end: () => {
      over.isOver = true;
      run.end(undefined);
    },
  };
}

test('who follows an invocation in its process reads nothing from the database', async () => {
  const { follow, say, end } = await followLocally();
  await say('two');
  await say('three');
  const sent = await statementsOf(async () => {
    const { seen, ended } = await follow();
    await expect.poll(() => seen).toEqual([2, 3]);
    end();
    await ended;
  });
  expect(sent.filter((text) => text.includes('events'))).toEqual([]);
});

test('behind an event of another client it reads on from the database, each event once', async () => {
  const { follow, say, sayElsewhere, end } = await followLocally();
  const { seen, ended } = await follow();
  await say('two');
  await expect.poll(() => seen).toEqual([2]);
  await sayElsewhere('three');
  await say('four');
  await expect.poll(() => seen).toEqual([2, 3, 4]);
  await say('five');
  end();
  await ended;
  expect(seen).toEqual([2, 3, 4, 5]);
});

test('a follower that was not let read for long gets what is not kept from the database, each event once', async () => {
  const { follow, say, end } = await followLocally();
  for (let event = 2; event <= 31; event++) await say('x'.repeat(100_000));
  end();
  const { seen, ended } = await follow();
  await ended;
  expect(seen).toEqual(Array.from({ length: 30 }, (_, place) => place + 2));
});

test('text that a follower has, whose event is not kept any more when it reads on, is replaced and not taken back', async () => {
  const { followText, say, key, run, end } = await followLocally();
  const event = textEvent('whole', { invocationId: 'e' });
  run.addDelta({ text: 'piece', event, sequence: 1, delta: 1 });
  const steps = followText();
  expect((await steps.next()).value).toMatchObject({ kind: 'delta', position: { sequence: 1, delta: 1 } });
  const { events } = await appendEvents(store.pool.db, key, [event]);
  notifyListener(run.addFrame, events, [event]);
  for (let count = 0; count < 11; count++) await say('x'.repeat(100_000));
  end();
  const kinds: [string, number][] = [];
  for await (const { kind, position } of steps) kinds.push([kind, position.sequence]);
  expect(kinds).toEqual(Array.from({ length: 12 }, (_, place) => ['event', place + 2]));
});

test('where the run leaves the process, the follower goes on with what another process stores', async () => {
  const { follow, say, sayElsewhere, run, over } = await followLocally();
  const { seen, ended } = await follow();
  await say('two');
  run.leave();
  await sayElsewhere('three');
  await expect.poll(() => seen).toEqual([2, 3]);
  over.isOver = true;
  await sayElsewhere('four');
  await ended;
  expect(seen).toEqual([2, 3, 4]);
});

test('another event at its place, after a failover, is a restart', async () => {
  const restarts: string[] = [];
  const { follow, say, run, key, over } = await followLocally(async (reason) => void restarts.push(reason));
  const { seen, ended } = await follow();
  await say('two');
  await expect.poll(() => seen).toEqual([2]);
  await store.pool.db.execute(
    sql`update events set id = 'another' where session_id = ${key.sessionId} and sequence = 2`,
  );
  over.isOver = true;
  run.leave();
  await ended;
  expect([seen, restarts]).toEqual([[2, 1, 2], ['The session has lost its event 2.']]);
});

test('a process that does not notice that it lost the invocation does not keep its followers', async () => {
  const { follow, sayElsewhere, key, over } = await followLocally();
  const { seen, ended } = await follow();
  await store.pool.db.execute(
    sql`update invocations set lease_expire_time = '-infinity' where session_id = ${key.sessionId}`,
  );
  await sayElsewhere('two');
  await expect.poll(() => seen).toEqual([2]);
  over.isOver = true;
  await sayElsewhere('three');
  await ended;
  expect(seen).toEqual([2, 3]);
});

test('a follower in memory ends with its session', async () => {
  const { follow, say, key } = await followLocally();
  const { seen, ended } = await follow();
  await say('two');
  await expect.poll(() => seen).toEqual([2]);
  await deleteSession(store.pool.db, key);
  await ended;
  expect(seen).toEqual([2]);
});

/** A session whose model has said one piece of text, which a follower has got: in memory, or from the database. */
async function followStream(isHere: boolean) {
  const key = newKey();
  const lease = { key, invocationId: 'e', token: randomUUID(), durationMs: 60_000 };
  await claimSession(store.pool.db, lease, [textEvent('prompt')], true);
  const run = new LocalRun(false);
  run.begin(1, [], []);
  const over = { isOver: false };
  const until = { invocationId: 'e', isOver: async () => over.isOver, ...(isHere && { run }) };
  const kinds: string[] = [];
  const follow = async () => {
    const options = { until, withText: true };
    const from = { sequence: 1, delta: 0 };
    for await (const step of followSession({ feeds }, key, from, new AbortController().signal, options))
      kinds.push(`${step.kind} ${step.position.sequence}`);
  };
  const ended = follow();
  const piece = await appendText(lease, undefined, '{}');
  run.addDelta({ text: '{}', event: textEvent('', { id: 'x' }), sequence: 1, delta: piece.last });
  notifications.publish(textTopic(key));
  await expect.poll(() => kinds).toEqual(['delta 1']);
  const append = async (event: NewEvent, leaseToken?: string) => {
    const options = leaseToken === undefined ? {} : { leaseToken, hasDeltas: true };
    return (await appendEvents(store.pool.db, key, [event], options)).events;
  };
  const end = async () => {
    over.isOver = true;
    run.leave();
    notifications.publish(sessionTopic(key));
    await ended;
    return kinds;
  };
  return { key, lease, run, append, end };
}

test('a text whose event comes behind one of another client is not taken back', async () => {
  const { lease, run, append, end } = await followStream(true);
  await append(textEvent('note'));
  const event = textEvent('answer', { id: 'x', author: 'model' });
  notifyListener(run.addFrame, await append(event, lease.token), [event]);
  expect(await end()).toEqual(['delta 1', 'event 2', 'event 3']);
});

test.each([
  ['in memory', true],
  ['of the database', false],
])(
  'a follower %s is told to discard the text of a process that died before it gets what another one says',
  async (_, isHere) => {
    const { key, append, end } = await followStream(isHere);
    const token = randomUUID();
    await store.pool.db.execute(sql`update sessions set lease_token = ${token} where id = ${key.sessionId}`);
    await append(textEvent('another answer', { author: 'model' }), token);
    expect(await end()).toEqual(['delta 1', 'void 1', 'event 2']);
  },
);

test('who reads on from the database does not take a pause for the end if another process has gone on since', async () => {
  const { key, run, say, sayElsewhere } = await followLocally();
  const pause = { id: 'e', ...key, status: 'paused' } as Invocation;
  const read = async () => {
    const shown: (number | string)[] = [];
    const turn = { key, invocationId: 'e', run };
    for await (const step of readTurn({ feeds, database: store.pool }, turn, new AbortController().signal)) {
      if (step.kind === 'event') shown.push(step.sequence);
      if (step.kind === 'end') shown.push(step.invocation.status);
    }
    return shown;
  };
  const reading = read();
  await say('two');
  await sayElsewhere('three');
  await say('a question');
  run.end(pause);
  await sayElsewhere('an answer');
  await store.pool.db.execute(sql`update invocations set status = 'succeeded' where session_id = ${key.sessionId}`);
  notifications.publish(sessionTopic(key));
  expect(await reading).toEqual([2, 3, 4, 5, 'succeeded']);
});
