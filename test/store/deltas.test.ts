import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { expect, test, vi } from 'vitest';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import {
  appendDeltas,
  appendDeltasOfAll,
  deleteLostDeltas,
  listDeltas,
} from '../../src/conversation/sessions/delta-store.ts';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import type { Event } from '../../src/core/event.ts';
import type { SessionKey } from '../../src/core/session.ts';
import type { InvocationContext } from '../../src/invocations/context.ts';
import { DeltaBatches } from '../../src/invocations/delta-batches.ts';
import { DeltaWriter } from '../../src/invocations/delta-writer.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { claimSession, type Lease } from '../../src/invocations/lock-store.ts';
import { currentContext, type RequestContext, runWith } from '../../src/platform/context.ts';
import { openDatabase } from '../../src/platform/db/database.ts';
import { newKey, poolOptions, statementsOf, testPool, textEvent } from '../support/store.ts';

const store = testPool(2);

/** A session with an event that an invocation holds. */
async function hold(key: SessionKey = newKey()): Promise<Lease> {
  const lease = { key, invocationId: randomUUID(), token: randomUUID(), durationMs: 60_000 };
  expect(await claimSession(store.pool.db, lease, [textEvent('prompt')], true)).toBe(true);
  return lease;
}
const piece = (text: string, eventId = 'x') => ({ eventId, text });
const write = ({ key, token }: Lease, after: number | undefined, ...pieces: ReturnType<typeof piece>[]) => ({
  key,
  token,
  after,
  pieces,
});
async function append(...[lease, after, ...pieces]: Parameters<typeof write>) {
  const appended = await appendDeltas(store.pool.db, write(lease, after, ...pieces));
  if (appended === 'locked') throw new Error('another transaction has the session');
  return appended;
}
const texts = async ({ key }: Lease) => (await listDeltas(store.pool.db, key, []))?.deltas.map(({ text }) => text);
const rows = async ({ key }: Lease) =>
  (await store.pool.db.execute(sql`select 1 from event_deltas where session_id = ${key.sessionId}`)).rows.length;

test('pieces have numbers that grow, and a reader reads those that it has not', async () => {
  const lease = await hold();
  const first = await append(lease, undefined, piece('a'), piece('b', 'y'));
  const second = await append(lease, first?.last, piece('c'));
  expect([first?.sequence, Number(second?.last) > Number(first?.last)]).toEqual([1, true]);
  const all = await listDeltas(store.pool.db, lease.key, []);
  expect(all).toMatchObject({ lastSequence: 1, deltas: [{ text: 'a' }, { text: 'b', eventId: 'y' }, { text: 'c' }] });
  // What it has is not read again: a changed one shows it.
  const had = (all?.deltas ?? []).slice(0, 2).map((each) => ({ ...each, text: 'had' }));
  const next = await listDeltas(store.pool.db, lease.key, had);
  expect(next?.deltas.map(({ text }) => text)).toEqual(['had', 'had', 'c']);
  // An event replaces its own, and the others are read anew.
  const { invocationId, token } = lease;
  const counts = { invocationId, llmCalls: 0, toolCalls: 0, promptTokens: 0, outputTokens: 0 };
  const whole = textEvent('b', { id: 'y' });
  await appendEvents(store.pool.db, lease.key, [whole], { leaseToken: token, counts, hasDeltas: true });
  const left = await listDeltas(store.pool.db, lease.key, had);
  expect([left?.lastSequence, left?.deltas.map(({ text }) => text)]).toEqual([2, ['a', 'c']]);
  await finishInvocation(store.pool.db, lease, [], { status: 'failed', hasDeltas: true });
  expect(await rows(lease)).toBe(0);
});

test('without the lease nothing is written, and what it left counts for nobody and is swept', async () => {
  const lease = await hold();
  const kept = await hold();
  await append(lease, undefined, piece('old'));
  await append(kept, undefined, piece('kept'));
  const stranger = { ...lease, token: randomUUID() };
  expect(await append(stranger, undefined, piece('stranger'))).toBeUndefined();
  expect(await texts(lease)).toEqual(['old']);
  await store.pool.db.execute(
    sql`update sessions set lease_token = ${stranger.token} where id = ${lease.key.sessionId}`,
  );
  expect(await append(lease, undefined, piece('late'))).toBeUndefined();
  expect([await texts(lease), await rows(lease)]).toEqual([[], 1]);
  await append(stranger, undefined, piece('new'));
  expect(await texts(lease)).toEqual(['new']);
  expect(await deleteLostDeltas(store.pool.db)).toBe(1);
  expect([await texts(lease), await texts(kept)]).toEqual([['new'], ['kept']]);
});

test('where other pieces are there than the writer knows of, all go: none is read twice, or with a hole', async () => {
  for (const change of [
    // A crash of the server lost the last; the answer to the last was lost.
    (lease: Lease) =>
      store.pool.db.execute(sql`delete from event_deltas where session_id = ${lease.key.sessionId}
      and payload = 'b'`),
    async (lease: Lease) => {
      const there = await listDeltas(store.pool.db, lease.key, []);
      await append(lease, there?.deltas.at(-1)?.number, piece('b again'));
    },
  ]) {
    const lease = await hold();
    const first = await append(lease, undefined, piece('a'));
    const second = await append(lease, first?.last, piece('b'));
    await change(lease);
    expect(await append(lease, second?.last, piece('c'))).toBeUndefined();
    expect(await rows(lease)).toBe(0);
  }
});

test('of several sessions only the one that lost its lease, or whose text the server refuses, stores nothing', async () => {
  const [one, lost, two, refused] = await Promise.all([hold(), hold(), hold(), hold()]);
  const stranger = { ...lost, token: randomUUID() };
  const sent = await statementsOf(async () => {
    const writes = [
      write(one, undefined, piece('a'), piece('b', 'y')),
      write(stranger, undefined, piece('no')),
      write(two, undefined, piece('c')),
    ];
    const [ofOne, ofLost, ofTwo] = await Promise.all(appendDeltasOfAll(store.pool.db, writes));
    expect([ofOne, ofLost, ofTwo]).toEqual([{ sequence: 1, last: expect.any(Number) }, undefined, ofTwo]);
    expect(ofTwo).toMatchObject({ sequence: 1 });
    expect((await listDeltas(store.pool.db, one.key, []))?.deltas.at(-1)?.number).toBe(
      (ofOne as { last: number }).last,
    );
  });
  expect(sent.filter((text) => text.includes('append_deltas'))).toHaveLength(1);
  expect([await texts(one), await texts(lost), await texts(two)]).toEqual([['a', 'b'], [], ['c']]);
  const [ofRefused, ofLost] = await Promise.allSettled(
    appendDeltasOfAll(store.pool.db, [write(refused, undefined, piece('\0')), write(lost, undefined, piece('d'))]),
  );
  expect([ofRefused?.status, ofLost?.status]).toEqual(['rejected', 'fulfilled']);
  expect([await texts(refused), await texts(lost)]).toEqual([[], ['d']]);
});

test('a session whose row another transaction has delays no other, and stores its text later', async () => {
  const [locked, free] = await Promise.all([hold(), hold()]);
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'; begin`);
  const { appName, userId, sessionId } = locked.key;
  const row = 'app_name = $1 and user_id = $2 and id = $3';
  await client.query(`select from sessions where ${row} for update`, [appName, userId, sessionId]);
  const writes = [write(locked, undefined, piece('a')), write(free, undefined, piece('b'))];
  expect(await Promise.all(appendDeltasOfAll(store.pool.db, writes))).toEqual([
    'locked',
    { sequence: 1, last: expect.any(Number) },
  ]);
  expect([await texts(locked), await texts(free)]).toEqual([[], ['b']]);
  await client.query('commit');
  await client.end();
  expect(await append(locked, undefined, piece('a'))).toMatchObject({ sequence: 1 });
  expect(await texts(locked)).toEqual(['a']);
});

/** Writers of invocations that stream in one process. */
function writersOf(
  leases: Lease[],
  {
    pool = store.pool,
    publish = () => undefined,
    onStored,
  }: { pool?: typeof store.pool; publish?: (topic: string) => unknown; onStored?: (() => void) | undefined } = {},
) {
  const deltas = new DeltaBatches(pool);
  const context = {
    deltas,
    notifications: { publish },
    newId: randomUUID,
    now: () => 0,
    log: { warn: (fields: object) => expect.fail(JSON.stringify(fields)) },
    limits: { eventBytes: 1_000_000 },
  };
  return leases.map((lease) => new DeltaWriter(context as unknown as InvocationContext, lease, onStored));
}
const said = async (lease: Lease) =>
  (await texts(lease))?.map((text) => (JSON.parse(text) as Event).content?.parts?.[0]?.text);

test('one statement stores the text of all streams of a process, and an ended one is not among them', async () => {
  const leases = await Promise.all(Array.from({ length: 4 }, () => hold()));
  const writers = writersOf(leases);
  const sent = await statementsOf(async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
    for (const word of ['Once ', 'upon'])
      for (const writer of writers) writer.add(textEvent(word, { id: 'x', partial: true }));
    await writers.pop()?.end();
    // The first words are due within 25 ms.
    vi.advanceTimersByTime(25);
    vi.useRealTimers();
    await Promise.all(writers.map((writer) => writer.end()));
  });
  expect(sent.filter((text) => text.includes('append_deltas'))).toHaveLength(1);
  expect(await Promise.all(leases.map(said))).toEqual([['Once upon'], ['Once upon'], ['Once upon'], []]);
});

test('the first words are stored after 25 ms, the next ones at multiples of 75 ms, later ones of 250 ms', async () => {
  const moments = async (onStored?: () => void) => {
    let published = () => undefined as void;
    const lease = await hold();
    const [writer] = writersOf([lease], { publish: () => published(), onStored });
    const stored: number[] = [];
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'], now: 0 });
    try {
      const begin = performance.now();
      const take = vi.spyOn(writer as DeltaWriter, 'take');
      for (let word = 0; word < 13; word += 1) {
        writer?.add(textEvent(`${word} `, { id: 'x', partial: true }));
        const takes = take.mock.calls.length;
        // Not polled for: a poll moves the clock.
        const isStored = new Promise<void>((resolve) => (published = resolve));
        // Due or not is asked of a text at each moment; nothing is taken before it is due.
        while (take.mock.calls.length === takes) vi.advanceTimersByTime(1);
        stored.push(performance.now() - begin);
        await isStored;
        // The turn of the write ends behind its notification.
        await new Promise(setImmediate);
      }
      await writer?.end();
    } finally {
      vi.useRealTimers();
    }
    expect((await said(lease))?.join('')).toBe('0 1 2 3 4 5 6 7 8 9 10 11 12 ');
    return stored;
  };
  const short = [25, 75, 150, 225, 300, 375, 450, 525, 600, 675];
  expect(await moments()).toEqual([...short, 750, 1_000, 1_250]);
  // Whose own client reads what is stored has it at the short intervals to the end.
  expect(await moments(() => undefined)).toEqual([...short, 750, 825, 900]);
});

test('text that comes while another transaction has the session is stored behind it, in order', async () => {
  const [locked, free] = await Promise.all([hold(), hold()]);
  const writers = writersOf([locked, free]);
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'; begin`);
  const { appName, userId, sessionId } = locked.key;
  const row = 'app_name = $1 and user_id = $2 and id = $3';
  await client.query(`select from sessions where ${row} for update`, [appName, userId, sessionId]);
  for (const word of ['One ', 'two ', 'three']) {
    for (const writer of writers) writer.add(textEvent(word, { id: 'x', partial: true }));
    await expect.poll(async () => (await said(free))?.join('')).toContain(word);
    expect(await said(locked)).toEqual([]);
  }
  await client.query('commit');
  await client.end();
  await expect.poll(async () => (await said(locked))?.join('')).toBe('One two three');
  await Promise.all(writers.map((writer) => writer.end()));
});

test('text that comes while no connection is free is stored later, in order', async () => {
  const leases = await Promise.all([hold(), hold()]);
  const connectTimeoutMs = 3_000;
  const pool = openDatabase({ ...poolOptions(store.url, 2), connectTimeoutMs });
  const writers = writersOf(leases, { pool });
  // One connection is for reads, so the transaction has the only other one.
  await pool.transaction(async (tx) => {
    await tx.execute(sql`select 1`);
    for (const writer of writers) writer.add(textEvent('One ', { id: 'x', partial: true }));
    await sleep(connectTimeoutMs + 500);
    for (const writer of writers) writer.add(textEvent('two', { id: 'x', partial: true }));
  });
  await expect
    .poll(async () => (await Promise.all(leases.map(said))).map((words) => words?.join('')))
    .toEqual(['One two', 'One two']);
  await Promise.all(writers.map((writer) => writer.end()));
  await pool.close();
});

test('text is stored in the context of no request, not of the one whose text came first', async () => {
  const leases = await Promise.all([hold(), hold()]);
  const contexts: RequestContext[] = [];
  const writers = writersOf(leases, { publish: () => contexts.push(currentContext()) });
  const request = { userId: 'u', caller: 'c', requestId: 'r', sessionId: 's', invocationId: 'i', traceparent: 't' };
  for (const writer of writers) runWith(request, () => writer.add(textEvent('hello', { id: 'x', partial: true })));
  await expect.poll(() => contexts).toEqual([{}, {}]);
  await Promise.all(writers.map((writer) => writer.end()));
});

test('they go with their session', async () => {
  const lease = await hold();
  await append(lease, undefined, piece('a'));
  await deleteSession(store.pool.db, lease.key);
  expect(await rows(lease)).toBe(0);
  await insertSession(store.pool.db, lease.key, {}, []);
  expect(await texts(lease)).toEqual([]);
});

test('nothing waits for the disk, and the connection is left as it was', async () => {
  const { key, token } = await hold();
  const client = new Client({ connectionString: store.url });
  await client.connect();
  const call = `select * from append_deltas('${key.appName}', '${key.userId}', '${key.sessionId}', '${token}', null,
    array['x'], array['{}'])`;
  const setting = async () =>
    (await client.query<{ is: string }>(`select current_setting('synchronous_commit') is`)).rows;
  await client.query(`set agent_runtime.all_users = 'on'; set synchronous_commit = 'on'; begin`);
  expect((await client.query<{ sequence: number }>(call)).rows).toMatchObject([{ sequence: 1 }]);
  expect(await setting()).toEqual([{ is: 'off' }]);
  await client.query('commit');
  expect(await setting()).toEqual([{ is: 'on' }]);
  await client.end();
});
