import { randomBytes, randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { sql } from 'drizzle-orm';
import { listEvents } from '../../src/conversation/sessions/event-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { findHistory } from '../../src/conversation/sessions/history.ts';
import {
  deleteSession,
  type SessionRange,
  findSession,
  insertSession,
} from '../../src/conversation/sessions/session-store.ts';
import { listSessions, type SessionPage } from '../../src/conversation/sessions/session-list.ts';
import type { JsonObject } from '../../src/core/content.ts';
import type { NewEvent } from '../../src/core/event.ts';
import type { ListPlace } from '../../src/platform/http/operation/cursor.ts';
import { type JsonStream, collect } from '../../src/platform/json-stream.ts';
import { ConflictError, LeaseLostError, NotFoundError } from '../../src/core/errors.ts';
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

const valueOf = async <Value>(text: JsonStream | undefined) => text && (JSON.parse(await collect(text)) as Value);
const read = async (key: ReturnType<typeof newKey>, range?: SessionRange) =>
  (await valueOf<Wire>(await findSession(store.pool.db, key, range))) as Wire;
const list = async (appName: string, userId: string, page?: SessionPage) =>
  (await valueOf<Wire[]>(await listSessions(store.pool.db, appName, userId, page))) ?? [];
const stateEvent = (stateDelta: JsonObject) => textEvent('', { actions: { stateDelta } });

describe('append', () => {
  test('50 concurrent appends get the sequences 1 to 50, and time never goes back', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, []);
    const appended = await Promise.all(
      Array.from({ length: 50 }, (_, n) => appendEvents(store.pool.db, key, [textEvent(`event ${n}`)])),
    );
    const sequences = appended.flatMap(({ events }) => events.map(({ sequence }) => sequence));
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

  test("the time of an event is in its column: its own or the database's; others are clamped", async () => {
    const key = newKey();
    await insertSession(
      store.pool.db,
      key,
      {},
      [1e300, 12.5, undefined].map((timestamp) => textEvent('x', timestamp === undefined ? {} : { timestamp })),
    );
    const { rows } = await store.pool.db.execute<{ at: string; wire: string }>(sql`
      select extract(epoch from event_time) as at, payload ->> 'timestamp' as wire from events
      where session_id = ${key.sessionId} order by sequence`);
    expect(rows.map(({ at }) => Number(at))).toEqual([9e12, 12.5, Number(rows[2]?.wire)]);
    expect(Math.abs(Number(rows[2]?.at) - Date.now() / 1000)).toBeLessThan(3600);
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

  test('an absent session is named and a token that is not the lease is refused; nothing is written', async () => {
    const key = newKey();
    await expect(appendEvents(store.pool.db, key, [textEvent('x')])).rejects.toEqual(
      new NotFoundError(`Session not found: ${key.sessionId}`),
    );
    await insertSession(store.pool.db, key, {}, []);
    await expect(
      appendEvents(store.pool.db, key, [stateEvent({ 'user:x': 1 })], { leaseToken: randomUUID() }),
    ).rejects.toBeInstanceOf(LeaseLostError);
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
    expect(await findSession(store.pool.db, key)).toBeUndefined();
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
    const listed = await list(appName, userId);
    expect(listed.map(({ id, events, state }) => [id, events, state['in']])).toEqual([
      ['a', [], 'a'],
      ['c', [], 'c'],
      ['b', [], 'b'],
    ]);
  });

  test('a page goes on after the last session of the one before', async () => {
    const { appName, userId } = newKey();
    for (const sessionId of ['a', 'b', 'c', 'd', 'e'])
      await insertSession(store.pool.db, { appName, userId, sessionId }, {}, []);
    const first = await list(appName, userId, { limit: 2 });
    const { rows } = await store.pool.db.execute<{ at: string }>(
      sql`select update_time::text as at from sessions where user_id = ${userId} and id = 'd'`,
    );
    const after = { time: rows[0]?.at ?? '', id: 'd' };
    const second = await list(appName, userId, { limit: 2, after });
    expect([first, second].map((page) => page.map(({ id }) => id))).toEqual([
      ['e', 'd'],
      ['c', 'b'],
    ]);
  });
});

describe('long sessions and lists', () => {
  const many = (count: number, more: Partial<NewEvent> = {}) =>
    Array.from({ length: count }, (_, n) => textEvent(`event ${n + 1}`, { timestamp: n + 1, ...more }));
  const places = (events: Wire['events'] = []) => events.map(({ timestamp }) => timestamp);
  const from = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, n) => first + n);

  test('a long session is read in pieces that are one value, also a part of it', async () => {
    const key = newKey();
    const events = many(2_500);
    await insertSession(store.pool.db, key, { a: 1 }, events);
    const statements = await statementsOf(async () => {
      const session = await read(key);
      expect([session.id, session.state, session.events]).toEqual([key.sessionId, { a: 1 }, events]);
    });
    expect(statements).toHaveLength(3);
    const ranges: [SessionRange, number[]][] = [
      [{ numRecentEvents: 0 }, []],
      [{ numRecentEvents: 2 }, [2_499, 2_500]],
      [{ numRecentEvents: 9_999 }, from(1, 2_500)],
      [{ afterSequence: 2_498 }, [2_499, 2_500]],
      [{ afterSequence: 2_500 }, []],
      [{ afterSequence: 1_000, numRecentEvents: 2_000 }, from(1_001, 2_500)],
      [{ afterSequence: 100, numRecentEvents: 1_200 }, from(1_301, 2_500)],
    ];
    for (const [range, expected] of ranges) expect(places((await read(key, range)).events)).toEqual(expected);
  });

  test('large events make pages of about a mebibyte, each event a piece of its own', async () => {
    const key = newKey();
    const events = Array.from({ length: 20 }, () => textEvent(randomBytes(150_000).toString('base64')));
    await insertSession(store.pool.db, key, {}, events.slice(0, 10));
    await appendEvents(store.pool.db, key, events.slice(10));
    const text = await findSession(store.pool.db, key);
    const pages = [text?.first ?? []];
    for await (const further of text?.rest ?? []) pages.push(further);
    expect(Math.max(...pages.map((pieces) => pieces.join('').length))).toBeLessThan(1_500_000);
    expect(Math.max(...pages.flat().map((piece) => piece.length))).toBeLessThan(200_500);
    expect((await read(key)).events.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    const page = await listEvents(store.pool.db, key, 0, 20);
    const pageText = page ? await collect(page) : '';
    expect(pageText.length).toBeLessThan(1_500_000);
    expect(JSON.parse(pageText)).toHaveLength(page?.next ?? 0);
  });

  test('small events make pieces of 32 KiB, of which no text is made that has all', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, many(3_000));
    const text = await findSession(store.pool.db, key);
    const pieces = [...(text?.first ?? [])];
    for await (const further of text?.rest ?? []) pieces.push(...further);
    expect((JSON.parse(pieces.join('')) as Wire).events).toHaveLength(3_000);
    const longest = Math.max(...pieces.map((piece) => piece.length));
    expect(longest).toBeGreaterThan(30_000);
    expect(longest).toBeLessThan(34_000);
  });

  test('what is appended while a session is read is not part of it; what is deleted ends the reading', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, many(1_500));
    const text = await findSession(store.pool.db, key);
    await appendEvents(store.pool.db, key, [stateEvent({ late: 1 })]);
    const session = await valueOf<Wire>(text);
    expect([session?.events.length, session?.state]).toEqual([1_500, {}]);

    for (const recreate of [false, true]) {
      const broken = await findSession(store.pool.db, key);
      await deleteSession(store.pool.db, key);
      if (recreate) await insertSession(store.pool.db, key, {}, many(1_600));
      await expect(valueOf(broken)).rejects.toEqual(
        new ConflictError(`Session ${key.sessionId} was deleted while it was read.`),
      );
      if (!recreate) await insertSession(store.pool.db, key, {}, many(1_600));
    }
  });

  test('pages of events follow one another; after the last one there is none', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, many(5));
    const page = async (after: number) => {
      const { first = ['null'], next } = (await listEvents(store.pool.db, key, after, 2)) ?? {};
      return [places(JSON.parse(first.join('')) as Wire['events']), next];
    };
    expect([await page(0), await page(2), await page(4), await page(5), await page(99)]).toEqual([
      [[1, 2], 2],
      [[3, 4], 4],
      [[5], undefined],
      [[], undefined],
      [[], undefined],
    ]);
    expect(await listEvents(store.pool.db, { ...key, sessionId: 'absent' }, 0, 2)).toBeUndefined();
  });

  test('a long list is that of its first moment: what moves meanwhile is in it once, what is deleted not', async () => {
    const { appName, userId } = newKey();
    const ids = Array.from({ length: 2_200 }, (_, n) => `s${String(n).padStart(4, '0')}`);
    await store.pool.db.execute(sql`
      insert into sessions (app_name, user_id, id, state, update_time)
      select ${appName}, ${userId}, id, jsonb_build_object('n', id),
             now() - interval '1 day' + place * interval '1 second'
      from unnest(${sql.param(ids)}::text[]) with ordinality as given(id, place)`);
    const newestFirst = ids.toReversed();
    const sent = await statementsOf(async () => {
      expect((await list(appName, userId)).map(({ id }) => id)).toEqual(newestFirst);
    });
    expect(sent).toHaveLength(3);

    const text = await listSessions(store.pool.db, appName, userId);
    await appendEvents(store.pool.db, { appName, userId, sessionId: 's0010' }, [stateEvent({ moved: true })]);
    await deleteSession(store.pool.db, { appName, userId, sessionId: 's0020' });
    await insertSession(store.pool.db, { appName, userId, sessionId: 'new' }, {}, []);
    const listed = (await valueOf<Wire[]>(text)) ?? [];
    expect(listed.map(({ id }) => id)).toEqual(newestFirst.filter((id) => id !== 's0020'));
    expect(listed.find(({ id }) => id === 's0010')?.state).toEqual({ n: 's0010', moved: true });
  });

  const NONE = Array.from({ length: 7 }, (): string[] => []);
  test.each<[string, SessionPage, string[][]]>([
    ['a text', { text: 'RARE' }, [['s2199'], ...NONE, ['s0000']]],
    ['a label', { labels: { values: [{ kind: 'rare' }], names: [] } }, [['s2199'], ...NONE, ['s0000']]],
    ['the oldest first', { text: 'rare', order: 'asc' }, [['s0000'], ...NONE, ['s2199']]],
    ['a time beside it, which narrows what is looked at', { text: 'rare', updatedBefore: 1_000_100 }, [['s0000']]],
    ['what most have', { text: 'plain', limit: 100 }, Array.from({ length: 22 }, () => [])],
  ])('a page looks at the next 250 sessions and goes on behind them: %s', async (_what, filter, expected) => {
    const { appName, userId } = newKey();
    await store.pool.db.execute(sql`
      insert into sessions (app_name, user_id, id, first_text, labels, update_time)
      select ${appName}, ${userId}, 's' || lpad(n::text, 4, '0'), said, jsonb_build_object('kind', said),
             to_timestamp(1000000 + n)
      from generate_series(0, 2199) n, lateral (select case when n % 2199 = 0 then 'rare' else 'plain' end) t (said)`);
    const seen: string[][] = [];
    for (let after: ListPlace | undefined; ; ) {
      const { next, ...text } = await listSessions(store.pool.db, appName, userId, { limit: 2, ...filter, after });
      seen.push(((await valueOf<Wire[]>(text)) ?? []).map(({ id }) => id));
      if (!next) break;
      after = next;
    }
    if (filter.text !== 'plain') expect(seen).toEqual(expected);
    else expect([seen.length, new Set(seen.flat()).size, seen.flat().length]).toEqual([expected.length, 2_198, 2_198]);
  });

  test('pages of a list follow one another by their places, of what was updated after a time', async () => {
    const { appName, userId } = newKey();
    const sessions = ['a', 'b', 'c', 'd', 'e'];
    for (const sessionId of sessions) await insertSession(store.pool.db, { appName, userId, sessionId }, {}, []);
    const whole = await list(appName, userId);
    const seen: string[][] = [];
    for (let after: ListPlace | undefined; ; ) {
      const { next, ...text } = await listSessions(store.pool.db, appName, userId, { limit: 2, after });
      seen.push(((await valueOf<Wire[]>(text)) ?? []).map(({ id }) => id));
      if (!next) break;
      after = next;
    }
    expect(seen).toEqual([['e', 'd'], ['c', 'b'], ['a']]);
    const updatedAfter = whole.find(({ id }) => id === 'c')?.lastUpdateTime;
    expect((await list(appName, userId, { updatedAfter })).map(({ id }) => id)).toEqual(['e', 'd']);
    for (const extreme of [-1e300, 1e300]) {
      expect(await list(appName, userId, { updatedAfter: extreme })).toHaveLength(extreme < 0 ? 5 : 0);
    }
  });
});

describe('import', () => {
  test('the state wins over the events for what other sessions share, the events for what is the own', async () => {
    const key = newKey();
    const old = stateEvent({ own: 'event', 'user:x': 'event', 'app:x': 'event', 'user:y': 'event' });
    await insertSession(store.pool.db, key, { own: 'state', 'user:x': 'state', 'app:x': 'state' }, [old]);
    expect((await read(key)).state).toEqual({ own: 'event', 'user:x': 'state', 'app:x': 'state', 'user:y': 'event' });
  });
});

describe('statement budget', () => {
  test('get, list and append are one statement each; a list never reads the events', async () => {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, []);
    const { db } = store.pool;
    expect(await statementsOf(() => findSession(db, key))).toHaveLength(1);
    expect(
      await statementsOf(() => appendEvents(db, key, [stateEvent({ a: 1, 'user:a': 1, 'app:a': 1 })])),
    ).toHaveLength(1);
    expect(await statementsOf(() => findHistory(db, key))).toHaveLength(1);
    const listing = await statementsOf(() => listSessions(db, key.appName, key.userId));
    expect(listing).toHaveLength(1);
    expect(listing[0]).not.toMatch(/(from|join) "?events/);
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

  // Keys hold no backslash: V8 of Node 24.21 itself reads `{"a":1,"\\u0000":1}` wrongly once a `{"a":1,"\\\\":1}` was
  // parsed.
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
    expect((await findSession(store.pool.db, key))?.first.join('')).toContain('"__proto__": {"polluted": true}');
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });
});
