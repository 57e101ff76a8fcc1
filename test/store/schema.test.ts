import { sql } from 'drizzle-orm';
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { migrateDatabase, readTableMigrations } from '../../src/platform/db/migrate.ts';
import { readSections } from '../../src/platform/db/repeatable.ts';
import { claimSession, enqueueInvocation } from '../../src/invocations/lock-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { testDatabase } from '../support/database.ts';
import { MIGRATIONS } from '../support/migrations.ts';
import { newKey, openPool, testPool, textEvent } from '../support/store.ts';

const store = testPool();
const emptied = testDatabase();

test('every table, view and column says in SQL what it means', async () => {
  const { rows } = await store.pool.db.execute(sql`
    select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace in ('public'::regnamespace, 'inspect'::regnamespace) and c.relkind in ('r', 'v')
      and not a.attisdropped
      and (col_description(c.oid, a.attnum) is null or obj_description(c.oid) is null)`);
  expect(rows).toEqual([]);
});

test('the keys of every table of user data begin with app_name, user_id', async () => {
  const { rows } = await store.pool.db.execute<{ name: string; columns: string[] }>(sql`
    select k.conname as name, array(select attname::text from unnest(k.conkey) with ordinality as n(attnum, place)
      join pg_attribute a on a.attrelid = k.conrelid and a.attnum = n.attnum order by place) as columns
    from pg_constraint k where k.contype in ('p', 'u') and k.connamespace = 'public'::regnamespace
      and exists (select from pg_attribute a where a.attrelid = k.conrelid and a.attname = 'user_id')`);
  expect(rows.length).toBeGreaterThan(5);
  for (const { name, columns } of rows) expect([name, columns.slice(0, 2)]).toEqual([name, ['app_name', 'user_id']]);
});

test('a trigger keeps what is on legal hold, in every table of users but those of marks and counts', async () => {
  const { rows } = await store.pool.db.execute(sql`
    select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id'
    where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and not exists (
      select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
      where t.tgrelid = c.oid and p.proname = 'refuse_on_hold') order by 1`);
  expect(rows.map(({ name }) => name)).toEqual([
    'budget_alerts',
    'budget_reservations',
    'budget_uses',
    'budgets',
    // Replaced by the event, which is held.
    'event_deltas',
    // Copies of answers for a day.
    'idempotency_keys',
    // What is to be done about other rows.
    'job_lanes',
    'jobs',
    'legal_holds',
    'user_erasures',
    'user_storage',
  ]);
});

test('the views for people show sessions and conversations', async () => {
  const key = newKey();
  await insertSession(store.pool.db, key, { a: 1 }, [
    textEvent('hello'),
    textEvent('', { content: { parts: [{ functionCall: { name: 'add', args: { a: 1 } } }] } }),
  ]);
  const sessions = await store.pool.db.execute(
    sql`select event_count, running_invocation, state from inspect.sessions where session_id = ${key.sessionId}`,
  );
  expect(sessions.rows).toEqual([{ event_count: 2, running_invocation: null, state: { a: 1 } }]);
  const said = await store.pool.db.execute(
    sql`select sequence, author, said from inspect.conversation where session_id = ${key.sessionId} order by sequence`,
  );
  expect(said.rows).toEqual([
    { sequence: 1, author: 'user', said: 'hello' },
    { sequence: 2, author: 'user', said: 'call add{"a": 1}' },
  ]);
});

test('the views for people show what runs, what waits for it in which order, and what is dead', async () => {
  const { db } = store.pool;
  const lease = { key: newKey(), invocationId: 'e-1', token: randomUUID(), durationMs: 60_000 };
  await claimSession(db, lease, [textEvent('hello')], true);
  await enqueueInvocation(db, { ...lease, invocationId: 'e-2', token: randomUUID() }, 5);
  await enqueueInvocation(db, { ...lease, invocationId: 'e-3', token: randomUUID() }, 5);
  await enqueueInvocation(db, { ...lease, invocationId: 'e-4', token: randomUUID(), durationMs: -1 }, 5);
  const { sessionId } = lease.key;
  const queue = await db.execute(sql`
    select place::int, invocation_id, running_invocation from inspect.queue
    where session_id = ${sessionId} order by place`);
  expect(queue.rows).toEqual([
    { place: 1, invocation_id: 'e-2', running_invocation: 'e-1' },
    { place: 2, invocation_id: 'e-3', running_invocation: 'e-1' },
  ]);
  const all = await db.execute(sql`
    select invocation_id, status, is_dead, duration is null as waits from inspect.invocations
    where session_id = ${sessionId} order by invocation_id`);
  expect(all.rows).toEqual([
    { invocation_id: 'e-1', status: 'running', is_dead: false, waits: false },
    { invocation_id: 'e-2', status: 'queued', is_dead: false, waits: true },
    { invocation_id: 'e-3', status: 'queued', is_dead: false, waits: true },
    { invocation_id: 'e-4', status: 'queued', is_dead: true, waits: true },
  ]);
  const session = await db.execute(
    sql`select event_count, running_invocation from inspect.sessions where session_id = ${sessionId}`,
  );
  expect(session.rows).toEqual([{ event_count: 1, running_invocation: 'e-1' }]);
});

test('eight migrations of one empty database at once are clean, and each migration is applied once', async () => {
  const pool = openPool(emptied.url);
  await pool.db.execute(sql`drop schema public cascade`);
  await pool.db.execute(sql`drop schema inspect cascade`);
  await pool.db.execute(sql`drop schema inspect_outline`);
  await pool.db.execute(sql`create schema public`);
  await Promise.all(Array.from({ length: 8 }, () => migrateDatabase({ url: emptied.url })));
  const { rows } = await pool.db.execute<{ name: string }>(
    sql`select hash as name from agent_runtime_migrations union all
        select name || ' ' || hash from agent_runtime_repeatables`,
  );
  const made = [
    ...readTableMigrations(MIGRATIONS).map(({ hash }) => hash),
    ...readSections(MIGRATIONS, false).flatMap(({ names, hash }) => names.map((name) => `${name} ${hash}`)),
  ];
  expect(rows.map(({ name }) => name).toSorted()).toEqual(made.toSorted());
  await pool.close();
});

test('the journal of migrations only grows: an older file would be skipped in silence (drizzle-orm#5769)', () => {
  const times = readTableMigrations(MIGRATIONS).map(({ time }) => time);
  expect(times).toEqual([...new Set(times)].toSorted((a, b) => a - b));
});
