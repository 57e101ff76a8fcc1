import { randomBytes } from 'node:crypto';
import { Client, escapeIdentifier } from 'pg';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { migrate } from '../../src/process/open-database.ts';
import { VERSION } from '../../src/platform/version.ts';
import type { SessionKey } from '../../src/core/session.ts';
import type { DatabasePool } from '../../src/platform/db/database.ts';
import { collect } from '../../src/platform/json-stream.ts';
import { findSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { newKey, openPool, textEvent } from '../support/store.ts';

let database: Awaited<ReturnType<typeof createEmptyDatabase>>;
let client: Client;
let role: string;
let name: string;
let host: string;
beforeEach(async () => {
  database = await createEmptyDatabase();
  client = new Client({ connectionString: database.url });
  await client.connect();
  role = `role_${randomBytes(4).toString('hex')}`;
  ({ host } = new URL(database.url));
  name = escapeIdentifier(decodeURIComponent(new URL(database.url).pathname.slice(1)));
});
afterEach(async () => {
  await client.query(`drop owned by ${role} cascade`).catch(() => undefined);
  await client.end();
  await database.drop();
  const admin = new Client({ connectionString: inject('adminUrl') });
  await admin.connect();
  await admin.query(`drop role if exists ${role}`);
  await admin.end();
});

/** The URL of the database for a role of its own without any rights, with settings of the session in its URL. */
async function urlOfRole(options = ''): Promise<string> {
  await client.query(`create role ${role} login password 'geheim'`);
  return withOptions(database.url, options, role);
}

function withOptions(url: string, options: string, user?: string): string {
  const changed = new URL(url);
  if (user) Object.assign(changed, { username: user, password: 'geheim' });
  if (options) changed.searchParams.set('options', options);
  return changed.href;
}

const toKnownNames = async (query: string): Promise<string[]> =>
  (await client.query<{ name: string }>(query)).rows.map((row) => row.name);
const tablesIn = (schema: string) =>
  toKnownNames(`select relname as name from pg_class
  where relkind = 'r' and relnamespace = (select oid from pg_namespace where nspname = '${schema}') order by 1`);

const reasonOf = (url: string, mode?: 'off'): Promise<string> =>
  migrate({ serving: { url } }, mode).then(
    () => 'it starts',
    (error: Error) => error.message,
  );

/** What another application of the same database, with newer migrations, has there. */
async function countEvents(pool: DatabasePool, key: SessionKey): Promise<number | undefined> {
  const found = await findSession(pool.reads, key);
  return found && (JSON.parse(await collect(found)) as { events: unknown[] }).events.length;
}

const FOREIGN_JOURNAL = `create schema drizzle;
  create table drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint);
  insert into drizzle.__drizzle_migrations (hash, created_at) values ('theirs', 99999999999999)`;

describe('the start knows its database', () => {
  test('newer migrations of another application do not hide ours', async () => {
    await client.query(FOREIGN_JOURNAL);
    await migrate({ serving: { url: database.url } });
    expect(await tablesIn('public')).toContain('sessions');
    expect(await toKnownNames('select hash as name from drizzle.__drizzle_migrations')).toEqual(['theirs']);
  });

  test('a journal of drizzle that may not be read is not ours', async () => {
    const url = await urlOfRole();
    await client.query(`${FOREIGN_JOURNAL}; grant create on schema public to ${role};
      grant create on database ${name} to ${role}`);
    await migrate({ serving: { url } });
    expect(await tablesIn('public')).toContain('sessions');
  });

  test('a database with later migrations of tables is refused, with the time of the last one', async () => {
    await migrate({ serving: { url: database.url } });
    await client.query(
      `insert into agent_runtime_migrations (hash, created_at) values ('x', 9998000000000), ('y', 9999000000000)`,
    );
    expect(await reasonOf(database.url)).toBe(
      `The database at ${host} cannot be used: it is newer than this version, ` +
        `${VERSION}, which does not know its migration of 2286-11-09T04:00:00.000Z.`,
    );
  });

  test('a database whose migration of tables is older than all that this version knows is older, not newer', async () => {
    await migrate({ serving: { url: database.url } });
    await client.query(`update agent_runtime_migrations set hash = 'x', created_at = 1795201442178`);
    expect(await reasonOf(database.url)).toContain(
      'its tables are those of a version before the first release. Export',
    );
  });

  test('a database that another text of a migration was applied to is refused', async () => {
    await migrate({ serving: { url: database.url } });
    await client.query(`update agent_runtime_migrations set hash = 'x' where id = 1`);
    expect(await reasonOf(database.url)).toContain(
      'another text of 0000_tables was applied to it than this version has. Export what is needed',
    );
  });

  test('a database that a later version migrated is refused, one of an earlier version is not', async () => {
    await migrate({ serving: { url: database.url } });
    const isOf = (version: string) => client.query('update agent_runtime_repeatables set version = $1', [version]);
    await isOf('0.10.0');
    expect(await reasonOf(database.url)).toBe(
      `The database at ${host} cannot be used: it is newer than this version, ${VERSION}: 0.10.0 migrated it.`,
    );
    await isOf(`${VERSION}-rc.1`);
    expect(await reasonOf(database.url)).toBe('it starts');
  });

  test('MIGRATE=off takes a database of any version, but none that is empty or that drizzle-kit alone has migrated', async () => {
    await client.query('create table agent_runtime_migrations (id serial primary key, hash text, created_at bigint)');
    expect(await reasonOf(database.url, 'off')).toContain('its schema public has no tables of this service');
    await client.query('drop table agent_runtime_migrations');
    await migrate({ serving: { url: database.url } });
    await client.query(`insert into agent_runtime_migrations (hash, created_at) values ('later', 9999000000000)`);
    expect(await reasonOf(database.url, 'off')).toBe('it starts');
    await client.query('delete from agent_runtime_migrations where created_at = 9999000000000');
    await client.query('delete from agent_runtime_repeatables');
    expect(await reasonOf(database.url, 'off')).toContain('it lacks functions/');
  });

  test('a database of a version before the first release is refused, and told what to do', async () => {
    await client.query(`create table agent_runtime_migrations (name, hash) as select '0000_tables', 'x'`);
    expect(await reasonOf(database.url)).toBe(
      `The database at ${host} cannot be used: its tables are those of a version before the first release. Export what ` +
        'is needed with the version that made them; then use an empty database, or another DATABASE_SCHEMA.',
    );
  });

  test.each([undefined, 'off'] as const)(
    'so is one whose record of functions has other columns (MIGRATE=%s)',
    async (mode) => {
      await client.query(`
      create table agent_runtime_migrations as select 1 as id, 'x' as hash, 1795201442178 as created_at;
      create table agent_runtime_repeatables (file, hash) as select 'views.sql', 'x'`);
      expect(await reasonOf(database.url, mode)).toContain('those of a version before the first release. Export what');
    },
  );

  test('a view of somebody else beside ours is neither granted nor in the way of the next version', async () => {
    const url = await urlOfRole();
    await client.query(`grant create on schema public to ${role}; grant create on database ${name} to ${role};
      do $$ begin create role agent_runtime_reader; exception when duplicate_object or unique_violation then null; end $$`);
    await migrate({ serving: { url } });
    await client.query(`create view inspect.my_report as select 1 as one; drop view inspect.usage cascade`);
    expect(await reasonOf(url)).toBe('it starts');
    const readable = await toKnownNames(`
      select relname as name from pg_class where relnamespace = 'inspect'::regnamespace
        and relname in ('my_report', 'usage') and has_table_privilege('agent_runtime_reader', oid, 'select')`);
    expect(readable).toEqual(['usage']);
  });

  test('a role with rights on rows only starts where nothing is missing, and works', async () => {
    await migrate({ serving: { url: database.url } });
    const url = await urlOfRole();
    await client.query(
      `grant select, insert, update, delete on all tables in schema public to ${role};
      grant execute on all functions in schema public to ${role}`,
    );
    expect(await reasonOf(url)).toBe('it starts');
    const pool = openPool(url, 2);
    const key = newKey();
    await insertSession(pool.db, key, { a: 1 }, [textEvent('hello')]);
    expect((await findSession(pool.reads, key))?.first.join('')).toContain('hello');
    await pool.close();
  });
});

describe('the reason of a failed migration is said, and no statement', () => {
  test('a role that may not create', async () => {
    const reason = await reasonOf(await urlOfRole());
    expect(reason).toMatch(
      /0000_tables to .* missing, and could not be applied: permission denied for schema public\.$/,
    );
  });

  test('a database that is read-only', async () => {
    await client.query(`alter database ${name} set default_transaction_read_only = on`);
    expect(await reasonOf(database.url)).toMatch(/cannot execute CREATE TABLE in a read-only transaction\.$/);
  });

  test('a table of another application; what was applied before it is gone again', async () => {
    await client.query('create table sessions ()');
    expect(await reasonOf(database.url)).toMatch(/missing, and could not be applied: .*"sessions" already exists\.$/);
    expect(await tablesIn('public')).toEqual(['sessions']);
  });

  test('an encoding that cannot hold what people write', async () => {
    const latin = `${name.slice(1, -1)}_latin`;
    await client.query(`create database "${latin}" template template0 encoding 'LATIN1' locale 'C'`);
    const url = new URL(database.url);
    url.pathname = latin;
    const reason = await reasonOf(url.href);
    await client.query(`drop database "${latin}"`);
    expect(reason).toBe(
      `The database at ${host} cannot be used: its encoding is LATIN1; make one with the encoding UTF8.`,
    );
  });

  test('a search_path without a schema', async () => {
    expect(await reasonOf(withOptions(database.url, '-c search_path=nowhere'))).toMatch(
      /its search_path names no schema that exists\.$/,
    );
  });
});

describe('settings of the operator', () => {
  test('a schema of their choice, beside another one in public, and options in the URL beside ours', async () => {
    const url = await urlOfRole('-c search_path=theirs');
    await client.query(`create schema theirs authorization ${role}; grant create on database ${name} to ${role};
      revoke create on schema public from public`);
    await migrate({ serving: { url } });
    expect(await tablesIn('public')).toEqual([]);
    await migrate({ serving: { url: database.url } });
    expect(await tablesIn('theirs')).toEqual(await tablesIn('public'));
    expect(await reasonOf(url)).toBe('it starts');
    const pool = openPool(url, 2);
    const key = newKey();
    await insertSession(pool.db, key, {}, [textEvent('hello')]);
    const tooLarge = insertSession(pool.db, newKey(), { text: 'x'.repeat(1_100_000) }, []);
    await expect(tooLarge).rejects.toMatchObject({ cause: { code: 'AR413' } });
    await pool.close();
    // Row-level security is forced on the owner of the views, who is no superuser.
    await client.query(`set agent_runtime.all_users = 'on'`);
    expect(await toKnownNames('select session_id as name from theirs_inspect.sessions')).toEqual([key.sessionId]);
    expect(await toKnownNames('select id as name from public.sessions')).toEqual([]);
  });

  test('date style, time zone and isolation of the database change nothing', async () => {
    await client.query(`alter database ${name} set datestyle = 'SQL, DMY'`);
    await client.query(`alter database ${name} set timezone = 'Asia/Kolkata'`);
    await client.query(`alter database ${name} set default_transaction_isolation = 'serializable'`);
    await migrate({ serving: { url: database.url } });
    const pool = openPool(database.url, 2);
    const key = newKey();
    const events = Array.from({ length: 2_300 }, (_, n) => textEvent(`event ${n}`));
    await insertSession(pool.db, key, {}, events);
    expect(await countEvents(pool, key)).toBe(2_300);
    const { rows } = await pool.db.execute(`select current_setting('transaction_isolation') as isolation`);
    expect(rows).toEqual([{ isolation: 'read committed' }]);
    await pool.close();
  });

  test('a time is never read back from text, so that a pooler that drops our settings changes nothing', async () => {
    await migrate({ serving: { url: database.url } });
    const url = withOptions(database.url, '');
    const pool = openPool(url, 2);
    const key = newKey();
    await insertSession(
      pool.db,
      key,
      {},
      Array.from({ length: 1_100 }, (_, n) => textEvent(`event ${n}`)),
    );
    // What a pooler in transaction mode lends is a session whose settings are the database's.
    await pool.reads.execute(`set datestyle = 'SQL, DMY'`);
    await pool.reads.execute(`set timezone = 'Asia/Kolkata'`);
    expect(await countEvents(pool, key)).toBe(1_100);
    await pool.close();
  });
});
