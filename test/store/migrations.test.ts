import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { readSections } from '../../src/platform/db/repeatable.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { MIGRATIONS } from '../support/migrations.ts';
import { dumpSchema } from '../support/schema-dump.ts';

let database: Awaited<ReturnType<typeof createEmptyDatabase>>;
let client: Client;
beforeEach(async () => {
  database = await createEmptyDatabase();
  client = new Client({ connectionString: database.url });
  await client.connect();
});
afterEach(async () => {
  await client.end();
  await database.drop();
});

test('a dump is SQL: it makes the schema that it was written from', async () => {
  await migrateDatabase({ url: database.url });
  const dump = await dumpSchema(client);
  await client.query('drop schema public, inspect, inspect_outline cascade; create schema public');
  await client.query(dump);
  expect(await dumpSchema(client)).toBe(dump);
});

test('what drizzle-kit migrates, a start finishes: the schema is that of a start alone', async () => {
  await promisify(execFile)('node_modules/.bin/drizzle-kit', ['migrate'], {
    env: { ...process.env, DATABASE_URL: database.url, DATABASE_MIGRATION_URL: '', DATABASE_SCHEMA: undefined },
  });
  const byHand = await client.query('select hash, created_at from agent_runtime_migrations');
  expect(await migrateDatabase({ url: database.url })).not.toContain('0000_tables');
  const finished = await dumpSchema(client);
  await client.query('drop schema public, inspect, inspect_outline cascade; create schema public');
  await migrateDatabase({ url: database.url });
  expect(finished).toBe(await dumpSchema(client));
  expect((await client.query('select hash, created_at from agent_runtime_migrations')).rows).toEqual(byHand.rows);
});

test('all sections may be applied again: the schema stays, and no body has variables that hide each other', async () => {
  await migrateDatabase({ url: database.url });
  const migrated = await dumpSchema(client);
  // Plpgsql looks at a body when it first runs it; so warned, it also looks for variables that hide each other.
  await client.query(`set search_path = public, pg_temp; set plpgsql.extra_errors = 'shadowed_variables'`);
  for (const { text } of readSections(MIGRATIONS, false)) await client.query(text);
  expect(await dumpSchema(client)).toBe(migrated);
});

test('the schema refuses what no version of the service writes', async () => {
  await migrateDatabase({ url: database.url });
  const key = `'a', 'u', 's'`;
  await client.query(`insert into sessions (app_name, user_id, id) values (${key})`);
  await client.query(`insert into artifacts values (${key}, 'f', 1)`);
  const refused = [
    `update sessions set last_sequence = -1`,
    `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time,
                              stop_requested_as)
     values (${key}, 'i', 'running', gen_random_uuid(), now(), 'paused')`,
    `insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, part, content,
                                    object_key, size_bytes, sha256)
     values (${key}, 'f', 0, 'x', '{}', 'abc', 'k', 3, '')`,
  ];
  const constraints: unknown[] = [];
  for (const statement of refused) {
    constraints.push(await client.query(statement).catch((error: { constraint: string }) => error.constraint));
  }
  expect(constraints).toEqual([
    'sessions_last_sequence_check',
    'invocations_stop_requested_as_check',
    'artifact_versions_content_check',
  ]);
});
