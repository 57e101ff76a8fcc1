import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { sql } from 'drizzle-orm';
import {
  appendEvents,
  deleteSession,
  findHistory,
  findSessionText,
  insertSession,
  listSessionsText,
} from '../../src/sessions/store.ts';
import type { JsonObject } from '../../src/sessions/content.ts';
import { ConflictError, LeaseLostError, NotFoundError } from '../../src/errors.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

const store = testPool();

interface Wire {
  id: string;
  appName: string;
  userId: string;
  state: JsonObject;
  events: {
    id: string;
    timestamp: number;
    content?: unknown;
    actions?: { stateDelta?: JsonObject };
    customMetadata?: unknown;
  }[];
  lastUpdateTime: number;
}

const read = async (key: ReturnType<typeof newKey>) =>
  JSON.parse((await findSessionText(store.pool.db, key)) ?? 'null') as Wire;
const stateEvent = (stateDelta: JsonObject) => textEvent('', { actions: { stateDelta } });

describe('append', () => {
  test('50 concurrent appends get the sequences 1 to 50, and time never goes back', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, []);
    const stored = await Promise.all(
      Array.from({ length: 50 }, (_, n) => appendEvents(store.pool.db, key, [textEvent(`event ${n}`)])),
    );
    const sequences = stored.flat().map(({ sequence }) => sequence);
    expect(sequences.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, n) => n + 1));
    const session = await read(key);
    const times = session.events.map(({ timestamp }) => timestamp);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(session.lastUpdateTime).toBe(times.at(-1));
  });

  test('several events of one append keep their order although their own timestamps run backwards', async () => {
    const key = newKey();
    const events = [3, 2, 1].map((timestamp) => textEvent(`at ${timestamp}`, { timestamp }));
    await insertSession(store.pool.db, key, {}, events);
    expect((await read(key)).events).toEqual(events);
  });

  test('8 sessions of one user write 20 keys each to every scope at once, and no write is lost', async () => {
    const { appName, userId } = newKey();
    const keys = Array.from({ length: 8 }, (_, n) => ({ appName: `${appName}-scopes`, userId, sessionId: `s${n}` }));
    for (const key of keys) await insertSession(store.pool.db, key, {}, []);
    await Promise.all(
      keys.flatMap((key) =>
        Array.from({ length: 20 }, (_, n) =>
          appendEvents(store.pool.db, key, [
            stateEvent({ [`user:${key.sessionId}-${n}`]: n, [`app:${key.sessionId}-${n}`]: n, [`own-${n}`]: n }),
          ]),
        ),
      ),
    );
    const states = await Promise.all(keys.map(async (key) => Object.keys((await read(key)).state)));
    expect(states.map((names) => names.length)).toEqual(keys.map(() => 8 * 20 + 8 * 20 + 20));
  });

  test('temp: keys are neither in the state nor in the stored event; null is a value', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, { kept: 1, 'temp:a': 1 }, []);
    await appendEvents(store.pool.db, key, [stateEvent({ kept: null, 'temp:b': 2, other: 3 })]);
    const session = await read(key);
    expect(session.state).toEqual({ kept: null, other: 3 });
    expect(session.events[0]?.actions?.stateDelta).toEqual({ kept: null, other: 3 });
  });

  test('shared state is seen by the other sessions of its scope only', async () => {
    const one = newKey();
    const sameUser = { ...one, sessionId: randomUUID() };
    const otherUser = { ...newKey(), appName: one.appName };
    await insertSession(store.pool.db, one, { own: 1, 'user:u': 2, 'app:shared': one.sessionId }, []);
    await insertSession(store.pool.db, sameUser, {}, []);
    await insertSession(store.pool.db, otherUser, {}, []);
    expect((await read(one)).state).toEqual({ own: 1, 'user:u': 2, 'app:shared': one.sessionId });
    expect((await read(sameUser)).state).toEqual({ 'user:u': 2, 'app:shared': one.sessionId });
    expect((await read(otherUser)).state).toEqual({ 'app:shared': one.sessionId });
  });

  test('a session that is not there is named, and a token that is not the lease is refused; nothing is written', async () => {
    const key = newKey();
    await expect(appendEvents(store.pool.db, key, [textEvent('x')])).rejects.toEqual(
      new NotFoundError(`Session not found: ${key.sessionId}`),
    );
    await insertSession(store.pool.db, key, {}, []);
    await expect(appendEvents(store.pool.db, key, [stateEvent({ 'user:x': 1 })], randomUUID())).rejects.toBeInstanceOf(
      LeaseLostError,
    );
    const session = await read(key);
    expect([session.events, session.state]).toEqual([[], {}]);
  });
});

describe('create and delete', () => {
  test('20 first sessions of one new user at once all succeed, and a taken id is a conflict', async () => {
    const { appName, userId } = newKey();
    const keys = Array.from({ length: 20 }, (_, n) => ({ appName, userId, sessionId: `s${n}` }));
    await Promise.all(keys.map((key) => insertSession(store.pool.db, key, { 'user:first': 1 }, [])));
    const taken = { appName, userId, sessionId: 's7' };
    await expect(insertSession(store.pool.db, taken, { 'user:second': 1 }, [])).rejects.toEqual(
      new ConflictError('Session already exists: s7'),
    );
    expect((await read(taken)).state).toEqual({ 'user:first': 1 });
  });

  test('deleting takes the events along, leaves shared state, and may be repeated', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, { 'user:kept': 1 }, [textEvent('x')]);
    await deleteSession(store.pool.db, key);
    await deleteSession(store.pool.db, key);
    expect(await findSessionText(store.pool.db, key)).toBeUndefined();
    const { rows } = await store.pool.db.execute(sql`select from events where session_id = ${key.sessionId}`);
    expect(rows.length).toBe(0);
    await insertSession(store.pool.db, key, {}, []);
    expect((await read(key)).state).toEqual({ 'user:kept': 1 });
  });
});

describe('list', () => {
  test('newest first, without events, without those of evaluation runs, of this user only', async () => {
    const { appName, userId } = newKey();
    for (const sessionId of ['a', 'b', '___eval___session___1', 'c']) {
      await insertSession(store.pool.db, { appName, userId, sessionId }, { in: sessionId }, [textEvent('x')]);
    }
    await insertSession(store.pool.db, { appName, userId: `${userId}x`, sessionId: 'foreign' }, {}, []);
    await appendEvents(store.pool.db, { appName, userId, sessionId: 'a' }, [textEvent('later')]);
    const list = JSON.parse(await listSessionsText(store.pool.db, appName, userId)) as Wire[];
    expect(list.map(({ id, events, state }) => [id, events, state['in']])).toEqual([
      ['a', [], 'a'],
      ['c', [], 'c'],
      ['b', [], 'b'],
    ]);
  });

  test('a page goes on after the last session of the one before', async () => {
    const { appName, userId } = newKey();
    for (const sessionId of ['a', 'b', 'c', 'd', 'e'])
      await insertSession(store.pool.db, { appName, userId, sessionId }, {}, []);
    const first = JSON.parse(await listSessionsText(store.pool.db, appName, userId, { limit: 2 })) as Wire[];
    const { rows } = await store.pool.db.execute<{ at: string }>(
      sql`select update_time::text as at from sessions where user_id = ${userId} and id = 'd'`,
    );
    const after = { updateTime: rows[0]?.at ?? '', id: 'd' };
    const second = JSON.parse(await listSessionsText(store.pool.db, appName, userId, { limit: 2, after })) as Wire[];
    expect([first, second].map((page) => page.map(({ id }) => id))).toEqual([
      ['e', 'd'],
      ['c', 'b'],
    ]);
  });
});

describe('statement budget', () => {
  test('get, list and append are one statement each; a list never reads the events', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, []);
    const { db } = store.pool;
    expect(await statementsOf(() => findSessionText(db, key))).toHaveLength(1);
    expect(
      await statementsOf(() => appendEvents(db, key, [stateEvent({ a: 1, 'user:a': 1, 'app:a': 1 })])),
    ).toHaveLength(1);
    expect(await statementsOf(() => findHistory(db, key))).toHaveLength(1);
    const list = await statementsOf(() => listSessionsText(db, key.appName, key.userId));
    expect(list).toHaveLength(1);
    expect(list[0]).not.toContain('from events');
  });
});

describe('fidelity', () => {
  const hostile = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom(
      '\u0000',
      '\uD800',
      '\uDFFF',
      '\uE000',
      '\uE0000000',
      '\\u0000',
      '\\',
      '__proto__',
      'constructor',
      '\u2028',
    ),
    fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 8 }).map((units) => String.fromCharCode(...units)),
  );

  // Keys hold no backslash: V8 of Node 24.21 itself reads `{"a":1,"\\u0000":1}` wrongly once a `{"a":1,"\\\\":1}` was parsed.
  const name = hostile.map((text) => `k${text.replaceAll('\\', '')}`);

  test('any JSON comes back as it was sent: keys and values, NUL, lone surrogates, the escape itself', async () => {
    const { any } = fc.letrec((tie) => ({
      any: fc.oneof(
        { maxDepth: 3 },
        hostile,
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.boolean(),
        fc.constant(null),
        fc.array(tie('any'), { maxLength: 3 }),
        fc.dictionary(name, tie('any'), { maxKeys: 3 }),
      ),
    }));
    await fc.assert(
      fc.asyncProperty(fc.dictionary(name, any, { maxKeys: 4 }), async (state) => {
        const key = newKey();
        const sent = JSON.parse(JSON.stringify(state)) as JsonObject;
        await insertSession(store.pool.db, key, sent, [textEvent('x', { customMetadata: sent })]);
        const session = await read(key);
        expect([session.state, session.events[0]?.customMetadata]).toEqual([sent, sent]);
      }),
      { numRuns: 100 },
    );
  });

  test('__proto__ is a key like any other', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, JSON.parse('{"__proto__":{"polluted":true},"a":1}') as JsonObject, []);
    expect(await findSessionText(store.pool.db, key)).toContain('"__proto__": {"polluted": true}');
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });
});
