import { sql } from 'drizzle-orm';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { migrateDatabase } from '../../src/db/migrate.ts';
import { insertSession } from '../../src/sessions/session-store.ts';
import { testDatabase } from '../support/database.ts';
import { newKey, openPool, testPool, textEvent } from '../support/store.ts';

const store = testPool();
const emptied = testDatabase();

test('every table and column says in SQL what it means', async () => {
  const { rows } = await store.pool.db.execute(sql`
    select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and not a.attisdropped
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

test('the views for people show sessions and conversations', async () => {
  const key = newKey();
  await insertSession(store.pool.db, key, { a: 1 }, [
    textEvent('hello'),
    textEvent('', { content: { parts: [{ functionCall: { name: 'add', args: { a: 1 } } }] } }),
  ]);
  const sessions = await store.pool.db.execute(
    sql`select events, running_invocation, state from inspect.sessions where session_id = ${key.sessionId}`,
  );
  expect(sessions.rows).toEqual([{ events: 2, running_invocation: null, state: { a: 1 } }]);
  const said = await store.pool.db.execute(
    sql`select sequence, author, said from inspect.conversation where session_id = ${key.sessionId} order by sequence`,
  );
  expect(said.rows).toEqual([
    { sequence: 1, author: 'user', said: 'hello' },
    { sequence: 2, author: 'user', said: 'call add{"a": 1}' },
  ]);
});

test('eight migrations of one empty database at once are clean, and each migration is applied once', async () => {
  const pool = openPool(emptied.url);
  await pool.db.execute(sql`drop schema public cascade`);
  await pool.db.execute(sql`drop schema inspect cascade`);
  await pool.db.execute(sql`drop schema drizzle cascade`);
  await pool.db.execute(sql`create schema public`);
  await Promise.all(Array.from({ length: 8 }, () => migrateDatabase(emptied.url)));
  const journal = JSON.parse(readFileSync(new URL('../../migrations/meta/_journal.json', import.meta.url), 'utf8')) as {
    entries: { when: number }[];
  };
  const { rows } = await pool.db.execute<{ n: number }>(
    sql`select count(*)::int as n from drizzle.__drizzle_migrations`,
  );
  expect(rows[0]?.n).toBe(journal.entries.length);
  await pool.close();
});

test('the journal of migrations only grows: an older file would be skipped in silence (drizzle-orm#5769)', () => {
  const journal = JSON.parse(readFileSync(new URL('../../migrations/meta/_journal.json', import.meta.url), 'utf8')) as {
    entries: { when: number }[];
  };
  const times = journal.entries.map(({ when }) => when);
  expect(times).toEqual([...new Set(times)].toSorted((a, b) => a - b));
});
