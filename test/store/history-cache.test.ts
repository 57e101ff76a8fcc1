import { sql } from 'drizzle-orm';
import { describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import type { SessionKey } from '../../src/core/session.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { findHistory, HistoryCache } from '../../src/conversation/sessions/history.ts';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

const store = testPool();
const LARGE = 10_000_000;

/** A session of `count` events of 1 KB, each with its text. */
async function newSession(count = 20, key = newKey()): Promise<SessionKey> {
  const events = Array.from({ length: count }, (_, n) =>
    textEvent(`${n} ${'x'.repeat(1_000)}`, { timestamp: 1_790_000_000 + n }),
  );
  await insertSession(store.pool.db, key, { a: 1, 'user:b': 2 }, events);
  return key;
}

/** Changes events so that no trigger sees it, as no part of the service and no person does. */
const secretly = (change: ReturnType<typeof sql>) =>
  store.pool.transaction(async (tx) => {
    await tx.execute(sql`set local session_replication_role = replica`);
    await tx.execute(change);
  });

const isOf = ({ appName, userId, sessionId }: SessionKey) =>
  sql`app_name = ${appName} and user_id = ${userId} and session_id = ${sessionId}`;

/** Makes the first event say something else behind everybody's back: who reads it anew sees it. */
const markFirst = (key: SessionKey) =>
  secretly(sql`update events set payload = payload || '{"content": {"parts": [{"text": "read anew"}]}}'
    where ${isOf(key)} and sequence = 1`);

const firstText = (history: { events: Event[] } | undefined) => history?.events[0]?.content?.parts?.[0]?.text;

/** What a cache gives, which has to be what the database has. */
async function find(cache: HistoryCache, key: SessionKey) {
  const { db } = store.pool;
  const found = await cache.find(db, key);
  expect(found).toEqual(await findHistory(db, key));
  return found;
}

describe('what is kept of a session', () => {
  test('is not read again: one statement, which reads newer events and the state', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    await find(cache, key);
    await appendEvents(db, key, [textEvent('newer', { actions: { stateDelta: { a: 2, 'app:c': 3 } } })]);
    await markFirst(key);
    let found: Awaited<ReturnType<typeof cache.find>>;
    expect(await statementsOf(async () => (found = await cache.find(db, key)))).toHaveLength(1);
    expect(firstText(found)).toMatch(/^0 x/);
    expect(found?.events.at(-1)?.content?.parts?.[0]?.text).toBe('newer');
    expect(found?.state).toEqual({ a: 2, 'user:b': 2, 'app:c': 3 });
  });

  test('grows with the session: rewinds and compactions are events like others', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    await find(cache, key);
    await appendEvents(db, key, [textEvent('', { actions: { rewindBeforeInvocationId: 'e-1' } })]);
    await find(cache, key);
    const compactedContent = { role: 'model', parts: [{ text: 'short' }] };
    const compaction = { startTimestamp: 1, endTimestamp: 2, compactedContent };
    await appendEvents(db, key, [textEvent('', { actions: { compaction } }), textEvent('after')]);
    expect((await find(cache, key))?.events).toHaveLength(23);
    // More than one statement reads.
    for (let n = 0; n < 3; n++)
      await appendEvents(
        db,
        key,
        Array.from({ length: 500 }, () => textEvent('more')),
      );
    expect((await find(cache, key))?.events).toHaveLength(1_523);
  });

  test('says which events the runtime made, old and new', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    const own = async (id: string) => {
      await appendEvents(db, key, [textEvent('by the runtime', { id })]);
      await secretly(sql`update events set is_from_runtime = true where ${isOf(key)} and id = ${id}`);
    };
    await own('one');
    await find(cache, key);
    await own('two');
    expect([...((await find(cache, key))?.runtimeEventIds ?? [])].toSorted()).toEqual(['one', 'two']);
  });

  test('is forgotten with the session, also where another one has its name and its length', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    await find(cache, key);
    await deleteSession(db, key);
    expect(await find(cache, key)).toBeUndefined();
    await newSession(20, key);
    const before = await find(cache, key);
    await deleteSession(db, key);
    const ids = before?.events.map(({ id }) => id ?? '') ?? [];
    await insertSession(
      db,
      key,
      {},
      ids.map((id) => textEvent(`other ${'y'.repeat(1_000)}`, { id })),
    );
    expect(firstText(await find(cache, key))).toMatch(/^other/);
    await deleteSession(db, key);
    await newSession(3, key);
    await find(cache, key);
  });

  test('is forgotten where somebody erases or changes an event with SQL, and its size is counted anew', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    await find(cache, key);
    await db.execute(sql`delete from events where ${isOf(key)} and sequence = 7`);
    expect((await find(cache, key))?.events).toHaveLength(19);
    await db.execute(sql`update events set payload = payload || '{"content": {"parts": [{"text": "***"}]}}'
      where ${isOf(key)} and sequence in (1, 2)`);
    expect(firstText(await find(cache, key))).toBe('***');
    await appendEvents(db, key, [textEvent('next', { timestamp: 1_790_000_000 })]);
    await find(cache, key);
    const { rows } = await db.execute(sql`
      select s.event_bytes = (select sum(octet_length(payload::text)) from events where ${isOf(key)}) as "isCounted"
      from sessions s where s.id = ${key.sessionId}`);
    expect(rows).toEqual([{ isCounted: true }]);
  });

  test('is forgotten where a failover lost its last events and others took their place', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    await find(cache, key);
    const lose = async () => {
      await secretly(sql`delete from events where ${isOf(key)} and sequence > 18`);
      await db.execute(sql`update sessions set last_sequence = 18 where id = ${key.sessionId}`);
    };
    await lose();
    expect((await find(cache, key))?.events).toHaveLength(18);
    await appendEvents(db, key, [textEvent('other 19'), textEvent('other 20')]);
    await find(cache, key);
    await lose();
    await appendEvents(db, key, [textEvent('third 19'), textEvent('third 20'), textEvent('third 21')]);
    expect((await find(cache, key))?.events.at(-2)?.content?.parts?.[0]?.text).toBe('third 20');
  });

  test('cannot be changed by who gets it', async () => {
    const cache = new HistoryCache(LARGE);
    const key = await newSession();
    const found = await find(cache, key);
    expect(() => Object.assign(found?.events[0]?.content?.parts?.[0] ?? {}, { text: 'changed' })).toThrow(TypeError);
    found?.events.splice(0);
    expect((await find(cache, key))?.events).toHaveLength(20);
  });
});

describe('the bound of what is kept', () => {
  /** Which of some sessions a cache still has. */
  async function keptOf(cache: HistoryCache, keys: SessionKey[]): Promise<boolean[]> {
    const kept: boolean[] = [];
    for (const key of keys) {
      await markFirst(key);
      kept.push(firstText(await cache.find(store.pool.db, key)) !== 'read anew');
    }
    return kept;
  }

  test('lets the least recently used go', async () => {
    const { db } = store.pool;
    const cache = new HistoryCache(75_000);
    const keys = [await newSession(), await newSession(), await newSession(), await newSession()];
    for (const key of keys.slice(0, 3)) await cache.find(db, key);
    for (const place of [0, 3]) await cache.find(db, keys[place] ?? newKey());
    // Each look at one that is gone lets another go, so those that are kept come first.
    const [first, second, third, fourth] = keys as [SessionKey, SessionKey, SessionKey, SessionKey];
    expect(await keptOf(cache, [fourth, first, third, second])).toEqual([true, true, true, false]);
  });

  test('holds for one session too, and 0 keeps none', async () => {
    const [small, large] = [await newSession(20), await newSession(80)];
    for (const [bound, kept] of [
      [75_000, [true, false]],
      [0, [false, false]],
    ] as const) {
      const cache = new HistoryCache(bound);
      for (const key of [small, large]) await cache.find(store.pool.db, key);
      const before = await keptOf(cache, [small, large]);
      expect(before).toEqual(kept);
      for (const key of [small, large]) {
        await secretly(sql`update events set payload = payload || '{"content": {"parts": [{"text": "0 x"}]}}'
          where ${isOf(key)} and sequence = 1`);
      }
    }
  });
});
