import { appendFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Client } from 'pg';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { MIGRATIONS } from '../support/migrations.ts';
import { dumpSchema } from '../support/schema-dump.ts';

/** A database of this version becomes one of a later version, whose files change something of each kind. */

let root: string;
let databases: Awaited<ReturnType<typeof createEmptyDatabase>>[];
let clients: Client[];

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'agent-runtime-later-'));
  databases = await Promise.all([createEmptyDatabase(), createEmptyDatabase()]);
  clients = databases.map(({ url }) => new Client({ connectionString: url }));
  await Promise.all(clients.map((client) => client.connect()));
});
afterEach(async () => {
  rmSync(root, { recursive: true });
  await Promise.all(clients.map((client) => client.end()));
  await Promise.all(databases.map((each) => each.drop()));
});

/** A copy of the migrations that a test changes. */
class Version {
  readonly folder: string;
  readonly directory: URL;

  constructor(name: string) {
    this.folder = join(root, name);
    this.directory = pathToFileURL(`${this.folder}/`);
    mkdirSync(this.folder);
    cpSync(MIGRATIONS, this.folder, { recursive: true });
  }

  edit(file: string, change: (text: string) => string): void {
    writeFileSync(join(this.folder, file), change(readFileSync(join(this.folder, file), 'utf8')));
  }

  append(file: string, text: string): void {
    appendFileSync(join(this.folder, file), text);
  }

  remove(file: string): void {
    rmSync(join(this.folder, file));
  }

  addTables(text: string): void {
    writeFileSync(join(this.folder, '0001_later.sql'), text);
    this.edit('meta/_journal.json', (journalText) => {
      const journal = JSON.parse(journalText) as { entries: { when: number; tag: string }[] };
      const last = journal.entries.at(-1);
      journal.entries.push({ ...last, tag: '0001_later', when: (last?.when ?? 0) + 1 });
      return JSON.stringify(journal);
    });
  }
}

const SECTION = '--> statement-breakpoint\n';
const LIMITS = 'repeatable/functions/limits.sql';
const TRIGGERS = 'repeatable/triggers.sql';

/** The database of a test that needs one, and a client of it. */
function theDatabase(): { address: { url: string }; client: Client } {
  const [database, client] = [databases[0], clients[0]];
  if (!database || !client) throw new TypeError('two databases');
  return { address: { url: database.url }, client };
}

const TABLES = `ALTER TABLE "sessions" ADD COLUMN "note" text;--> statement-breakpoint
CREATE TABLE "notes" ("user_id" text NOT NULL);--> statement-breakpoint
ALTER TABLE "notes" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
DROP VIEW IF EXISTS inspect_outline.budgets, inspect.budgets;--> statement-breakpoint
ALTER TABLE "budgets" ALTER COLUMN "webhook_id" SET DATA TYPE varchar;
`;

const SERVING = 'upgrade_test_server';

function writeLaterVersion(): URL {
  const later = new Version('later');
  later.addTables(TABLES);
  later.edit(LIMITS, (text) => text.replaceAll('state is larger than', 'state is above'));
  later.append('repeatable/functions/audit_retention.sql', '-- another text\n');
  later.edit(TRIGGERS, (text) => text.replace('sessions_hold before delete', 'sessions_hold after delete'));
  later.append(
    TRIGGERS,
    `${SECTION}create or replace trigger notes_size before update on notes for each row execute function count_event_bytes();\n`,
  );
  later.append(
    'repeatable/views.sql',
    `${SECTION}create or replace view inspect.notes as select user_id from notes;\n`,
  );
  return later.directory;
}

/** The rights on the tables, views, columns, functions and schemas that migrations make, a line each. */
async function listRights(client: Client): Promise<unknown[]> {
  const { rows } = await client.query<{ line: string }>(`
    with theirs as (select oid from pg_namespace where nspname in ('public', 'inspect', 'inspect_outline')),
    given as (
      select relname::text as name, relacl as acl from pg_class where relnamespace in (select * from theirs)
      union all select relname || '.' || attname, attacl from pg_attribute join pg_class c on c.oid = attrelid
                where relnamespace in (select * from theirs)
      union all select p.oid::regprocedure::text, proacl from pg_proc p where pronamespace in (select * from theirs)
      union all select nspname, nspacl from pg_namespace where nspname like 'inspect%')
    select format('%s: %s may %s', name, case grantee when 0 then 'everybody' else grantee::regrole::text end,
                  string_agg(privilege_type, ', ' order by privilege_type)) as line
    from given, aclexplode(acl) group by name, grantee order by 1`);
  return rows.map(({ line }) => line);
}

test('an upgraded schema is that of a new database; retention of the audit stays, and the earlier version is refused', async () => {
  const later = writeLaterVersion();
  const [upgraded, fresh] = databases.map(({ url }) => ({ url }));
  const [client, freshClient] = clients;
  if (!upgraded || !fresh || !client || !freshClient) throw new TypeError('two databases');
  await client.query(`do $$ begin create role ${SERVING}; exception when duplicate_object then null; end $$`);
  await migrateDatabase(upgraded, { audit: { days: 7, count: 9 } });
  const applied = await migrateDatabase(upgraded, { directory: later, servingRole: SERVING });
  expect(applied).toEqual([
    '0001_later',
    'functions/audit_retention.sql',
    'functions/limits.sql',
    // The view of budgets, which the migration dropped.
    'views.sql',
    'views_outline.sql',
    'triggers.sql',
  ]);
  expect((await client.query('select days, entries::int from audit_retention()')).rows).toEqual([
    { days: 7, entries: 9 },
  ]);
  expect(await migrateDatabase(upgraded, { directory: later })).toEqual([]);
  await expect(migrateDatabase(upgraded)).rejects.toThrow('it is newer than this version');

  await migrateDatabase(fresh, { directory: later, audit: { days: 7, count: 9 }, servingRole: SERVING });
  expect(await dumpSchema(client)).toBe(await dumpSchema(freshClient));
  const rights = await listRights(client);
  expect(rights).toContain(`events: ${SERVING} may DELETE, INSERT, SELECT, UPDATE`);
  expect(rights).toEqual(await listRights(freshClient));
  const { rows } = await client.query(`select relname from pg_class where relrowsecurity and not relforcerowsecurity`);
  // A table that this version's code does not name may be a neighbour's. A cluster has no row-level security.
  expect(rows).toEqual(inject('workerUrls').length > 0 ? [] : [{ relname: 'notes' }]);
});

test('what was dropped with its section is made again if the section returns as it was', async () => {
  const { address, client } = theDatabase();
  await migrateDatabase(address);
  const without = new Version('without');
  without.remove('repeatable/functions/scores.sql');
  without.edit(TRIGGERS, (text) => text.replace(/create or replace trigger signals_hold [^;]*;\n--> .*\n/, ''));
  without.addTables('DROP TRIGGER signals_hold ON signals;--> statement-breakpoint\nDROP FUNCTION is_sampled;');
  expect(await migrateDatabase(address, { directory: without.directory })).toEqual(['0001_later']);
  const again = new Version('again');
  again.addTables(readFileSync(join(without.folder, '0001_later.sql'), 'utf8'));
  expect(await migrateDatabase(address, { directory: again.directory })).toEqual([
    'functions/scores.sql',
    'triggers.sql',
  ]);
  const { rows } = await client.query(`select tgname from pg_trigger where tgname = 'signals_hold'
    union all select proname from pg_proc where proname = 'is_sampled'`);
  expect(rows).toHaveLength(2);
});

describe('a neighbour in the schema', () => {
  const FUNCTION = `function tidy() returns text language sql as`;

  test.each([
    [
      `create ${FUNCTION} $$ select 'theirs' $$`,
      LIMITS,
      `create or replace ${FUNCTION} $$ select 'ours' $$;`,
      'select tidy() as found',
    ],
    [
      `create view inspect.tidy as select 'theirs' as found`,
      'repeatable/views.sql',
      `${SECTION}create or replace view inspect.tidy as select 'ours' as found;`,
      'select found from inspect.tidy',
    ],
  ])('keeps what a later version would make by the same name: %s', async (theirs, file, ours, look) => {
    const { address, client } = theDatabase();
    await migrateDatabase(address);
    await client.query(theirs);
    const later = new Version('later');
    later.append(file, ours);
    await expect(migrateDatabase(address, { directory: later.directory })).rejects.toThrow(
      /missing, and could not be applied: .*"tidy" already exists/,
    );
    expect((await client.query(look)).rows).toEqual([{ found: 'theirs' }]);
  });

  test('gives the roles of the service no right to call its functions', async () => {
    const { address, client } = theDatabase();
    await client.query(`
      do $$ begin create role ${SERVING}; exception when duplicate_object then null; end $$;
      create ${FUNCTION} $$ select '' $$; revoke execute on function tidy from public`);
    await migrateDatabase(address, { servingRole: SERVING });
    const { rows } = await client.query(
      `select proname as name, has_function_privilege($1, oid, 'execute') as may from pg_proc
       where proname in ('tidy', 'count_use') order by 1`,
      [SERVING],
    );
    expect(rows).toEqual([
      { name: 'count_use', may: true },
      { name: 'tidy', may: false },
    ]);
  });
});

describe('while the trigger of a table waits for a client', () => {
  let holder: Client;
  beforeEach(async () => {
    const { address, client } = theDatabase();
    await client.query(`do $$ begin create role ${SERVING}; exception when duplicate_object then null; end $$`);
    await migrateDatabase(address, { servingRole: SERVING });
    holder = new Client({ connectionString: address.url });
    await holder.connect();
    await holder.query('begin; lock table signals in row exclusive mode');
  });
  afterEach(() => holder.end());

  const changeTrigger = (version: Version) =>
    version.edit(TRIGGERS, (text) => text.replace('signals_hold before delete', `signals_hold after delete`));
  const isWaiting = async () => {
    const { rowCount } = await theDatabase().client.query(
      `select from pg_locks where relation = 'signals'::regclass and not granted`,
    );
    return rowCount === 1;
  };

  test('the views that tables had to drop are back, with the rights of each role', async () => {
    const { address, client } = theDatabase();
    const later = new Version('later');
    later.addTables('DROP VIEW cronjob_runs CASCADE;');
    changeTrigger(later);
    const migrating = migrateDatabase(address, { directory: later.directory, servingRole: SERVING });
    await expect.poll(isWaiting).toBe(true);
    const { rows } = await client.query(
      `select has_table_privilege($1, 'cronjob_runs', 'select') as serving,
              has_table_privilege('agent_runtime_user', 'cronjob_runs', 'select') as limited,
              has_table_privilege('agent_runtime_reader', 'inspect.cronjob_runs', 'select') as reader,
              has_table_privilege('agent_runtime_outline_reader', 'inspect_outline.cronjob_runs', 'select') as outline`,
      [SERVING],
    );
    expect(rows).toEqual([{ serving: true, limited: true, reader: true, outline: true }]);
    await holder.query('commit');
    expect(await migrating).toEqual(['0001_later', 'views.sql', 'views_outline.sql', 'triggers.sql']);
  });

  test('another build of the version takes over the schema: the first one ends, the other is complete', async () => {
    const { address, client } = theDatabase();
    const builds = ['one', 'other'].map((name) => {
      const build = new Version(name);
      build.append(LIMITS, `-- ${name}\n`);
      changeTrigger(build);
      return build;
    });
    const migrate = (build: Version | undefined) =>
      migrateDatabase(address, { directory: build?.directory ?? MIGRATIONS });
    const hashes = async () => {
      const { rows } = await client.query<{ hash: string }>(
        `select hash from agent_runtime_repeatables where name = 'function assert_state_size'`,
      );
      return rows[0]?.hash;
    };
    const first = migrate(builds[0]);
    void first.catch(() => undefined);
    await expect.poll(isWaiting).toBe(true);
    const hash = await hashes();
    const second = migrate(builds[1]);
    await expect.poll(hashes).not.toBe(hash);
    await holder.query('commit');
    await expect(first).rejects.toThrow('another build of version');
    expect(await second).toEqual(['functions/limits.sql', 'triggers.sql']);
    expect(await migrate(builds[1])).toEqual([]);
  });
});
