import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { MIGRATIONS } from '../support/migrations.ts';
import { dumpSchema } from '../support/schema-dump.ts';

/** A database of this version becomes one of a later version, whose files change something of each kind. */

let folder: string;
let later: URL;
let databases: Awaited<ReturnType<typeof createEmptyDatabase>>[];
let clients: Client[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'agent-runtime-later-'));
  later = pathToFileURL(`${folder}/`);
  databases = await Promise.all([createEmptyDatabase(), createEmptyDatabase()]);
  clients = databases.map(({ url }) => new Client({ connectionString: url }));
  await Promise.all(clients.map((client) => client.connect()));
});
afterEach(async () => {
  rmSync(folder, { recursive: true });
  await Promise.all(clients.map((client) => client.end()));
  await Promise.all(databases.map((each) => each.drop()));
});

const TABLES = `ALTER TABLE "sessions" ADD COLUMN "note" text;--> statement-breakpoint
CREATE TABLE "notes" ("user_id" text NOT NULL);--> statement-breakpoint
ALTER TABLE "notes" ENABLE ROW LEVEL SECURITY;--> statement-breakpoint
DROP VIEW IF EXISTS inspect_outline.budgets, inspect.budgets;--> statement-breakpoint
ALTER TABLE "budgets" ALTER COLUMN "webhook_id" SET DATA TYPE varchar;
`;

function writeLaterVersion(): void {
  cpSync(MIGRATIONS, folder, { recursive: true });
  const edit = (name: string, change: (text: string) => string) =>
    writeFileSync(join(folder, name), change(readFileSync(join(folder, name), 'utf8')));
  writeFileSync(join(folder, '0001_later.sql'), TABLES);
  edit('meta/_journal.json', (text) => {
    const journal = JSON.parse(text) as { entries: { when: number; tag: string }[] };
    const [first] = journal.entries;
    journal.entries.push({ ...first, tag: '0001_later', when: (first?.when ?? 0) + 1 });
    return JSON.stringify(journal);
  });
  edit('repeatable/functions/limits.sql', (text) => text.replaceAll('state is larger than', 'state is above'));
  appendFileSync(join(folder, 'repeatable/functions/audit_retention.sql'), '-- another text\n');
  edit('repeatable/triggers.sql', (text) => text.replace('sessions_hold before delete', 'sessions_hold after delete'));
  appendFileSync(
    join(folder, 'repeatable/triggers.sql'),
    '--> statement-breakpoint\ncreate or replace trigger notes_size before update on notes for each row execute function count_event_bytes();\n',
  );
  appendFileSync(
    join(folder, 'repeatable/views.sql'),
    '--> statement-breakpoint\ncreate or replace view inspect.notes as select user_id from notes;\n',
  );
}

test('an upgraded schema is that of a new database; retention of the audit stays, and the earlier version is refused', async () => {
  writeLaterVersion();
  const [upgraded, fresh] = databases.map(({ url }) => ({ url }));
  const [client, freshClient] = clients;
  if (!upgraded || !fresh || !client || !freshClient) throw new TypeError('two databases');
  await migrateDatabase(upgraded, { audit: { days: 7, count: 9 } });
  const applied = await migrateDatabase(upgraded, { directory: later });
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

  await migrateDatabase(fresh, { directory: later, audit: { days: 7, count: 9 } });
  expect(await dumpSchema(client)).toBe(await dumpSchema(freshClient));
  const { rows } = await client.query(`select relname from pg_class where relrowsecurity and not relforcerowsecurity`);
  // A table that this version's code does not name may be a neighbour's.
  expect(rows).toEqual([{ relname: 'notes' }]);
});
