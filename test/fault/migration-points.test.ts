import { randomBytes } from 'node:crypto';
import { Client, escapeIdentifier } from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { testDatabase } from '../support/database.ts';
import { openSql, report } from './support/faults.ts';
import { startProxy } from './support/postgres-proxy.ts';
import { isLong, random } from './support/seed.ts';

/**
 * A migrator whose connection ends at any of its messages: PostgreSQL sees no difference from one whose process was
 * killed.
 */

/** Points of the short set, besides the first and the last five. */
const SAMPLED_POINTS = 12;
const MIGRATORS = 8;

const finished = testDatabase();
let admin: Client;
let wanted: string;

/** Everything that migrations make, as text. */
const SCHEMA = `
  select string_agg(line, E'\\n' order by line) as schema from (
    select format('column %s.%s %s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull,
                  pg_get_expr(adbin, adrelid), col_description(attrelid, attnum)) as line
    from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
    where attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace) and attnum > 0
    union all select pg_get_indexdef(indexrelid) from pg_index
      where indrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
    union all select format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
      where connamespace = 'public'::regnamespace
    union all select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
    union all select format('%s %s %s', oid::regclass, obj_description(oid),
       case when relkind = 'v' then pg_get_viewdef(oid) end)
      from pg_class where relnamespace = 'public'::regnamespace
    union all select format('migration %s %s', created_at, hash) from agent_runtime_migrations
    union all select format('section %s %s', name, hash) from agent_runtime_repeatables) lines`;

async function schemaOf(url: string): Promise<string> {
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query<{ schema: string }>(SCHEMA);
  await client.end();
  return rows[0]?.schema ?? '';
}

/** Lends an empty database. */
async function withEmptyDatabase<T>(work: (url: string) => Promise<T>): Promise<T> {
  const name = `${inject('templateDatabase')}_${randomBytes(4).toString('hex')}`;
  await admin.query(`create database ${escapeIdentifier(name)} template template0`);
  const url = new URL(inject('adminUrl'));
  url.pathname = `/${name}`;
  try {
    return await work(url.href);
  } finally {
    await admin.query(`drop database ${escapeIdentifier(name)} with (force)`);
  }
}

/** Cuts the migrator's connection at its n-th point (before or after message ⌈n/2⌉). False when it ended before. */
async function migrateUpTo(url: string, n: number): Promise<boolean> {
  const proxy = await startProxy(url);
  let [sent, answered, reached] = [0, 0, false];
  const cutAt = n === 0 ? 0 : Math.ceil(n / 2);
  proxy.rules = {
    before(message) {
      if (++sent === cutAt && n % 2 === 1) message.cut();
    },
    after(message) {
      if (++answered === cutAt && n % 2 === 0) message.cut();
    },
  };
  await migrateDatabase({ url: proxy.url }).catch(() => (reached = true));
  await proxy.close();
  return reached;
}

/** How many messages a whole migration is. */
async function countMessages(): Promise<number> {
  return withEmptyDatabase(async (url) => {
    const proxy = await startProxy(url);
    let sent = 0;
    proxy.rules = { before: () => void sent++ };
    await migrateDatabase({ url: proxy.url });
    await proxy.close();
    return sent;
  });
}

describe('migrations', () => {
  beforeAll(async () => {
    admin = new Client({ connectionString: inject('adminUrl') });
    await admin.connect();
    wanted = await schemaOf(finished.url);
  });
  afterAll(() => admin.end());

  test('that were cut off at any message are finished by the next process', async () => {
    const points = 2 * (await countMessages());
    const { whole } = random('migration points');
    const ends = [1, 2, 3, 4, 5, ...Array.from({ length: 5 }, (_, position) => points - position)];
    const sampled = [...ends, ...Array.from({ length: SAMPLED_POINTS }, () => whole(6, points - 5))];
    const chosen = isLong ? Array.from({ length: points }, (_, position) => position + 1) : [...new Set(sampled)];
    const violations: string[] = [];
    for (const n of chosen) {
      await withEmptyDatabase(async (url) => {
        // Behind the last COMMIT comes the end of the connection only: what is cut there has no consequence.
        if (!(await migrateUpTo(url, n)) && n < points) violations.push(`point ${n} was not reached`);
        await migrateDatabase({ url });
        if ((await schemaOf(url)) !== wanted) violations.push(`point ${n}: another schema`);
      });
    }
    report(
      'migration points',
      `${chosen.length - violations.length}/${chosen.length} of ${points}; ${violations.length} violations`,
    );
    expect(violations).toEqual([]);
  });

  test('of many processes at once are applied once', async () => {
    await withEmptyDatabase(async (url) => {
      await Promise.all(Array.from({ length: MIGRATORS }, () => migrateDatabase({ url })));
      expect(await schemaOf(url)).toBe(wanted);
      const pool = openSql(url);
      const { rows } = await pool.query('select hash from agent_runtime_migrations');
      await pool.end();
      report('migrators at once', `${MIGRATORS} without an error, ${rows.length} migrations applied once`);
      expect(new Set(rows.map((row: { hash: string }) => row.hash)).size).toBe(rows.length);
    });
  });
});
