import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import hashes from '../../migrations/hashes.json' with { type: 'json' };
import { hashMigrations, joinFunctions } from '../../migrations/write-functions.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { dumpSchema } from '../support/schema-dump.ts';

const MIGRATIONS = fileURLToPath(new URL('../../migrations', import.meta.url));

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

test('migrations/schema.sql is the schema that the migrations make; npm run db:dump writes it', async (context) => {
  const { rows } = await client.query<{ major: number }>(
    `select current_setting('server_version_num')::int / 10000 as major`,
  );
  context.skip((rows[0]?.major ?? 0) < 16, 'PostgreSQL 15 qualifies the columns of views that read one table');
  await migrateDatabase({ url: database.url });
  const head = '-- The schema as the migrations make it, to read and to compare. Written by npm run db:dump.';
  await expect(`${head}\n\n${await dumpSchema(client)}\n`).toMatchFileSnapshot('../../migrations/schema.sql');
});

test('migrations/schema.sql is SQL: it makes the schema that it was written from', async () => {
  await client.query(readFileSync(join(MIGRATIONS, 'schema.sql'), 'utf8'));
  const made = await dumpSchema(client);
  await client.query('drop schema public, inspect, inspect_outline cascade; create schema public');
  await migrateDatabase({ url: database.url });
  expect(made).toBe(await dumpSchema(client));
});

test('migrations/hashes.json has each migration: from the first tag on none of them is edited', () => {
  expect(hashMigrations()).toEqual(hashes);
});

test('migrations/0001_functions.sql is made of migrations/functions; npm run db:functions writes it', () => {
  expect(readFileSync(join(MIGRATIONS, '0001_functions.sql'), 'utf8')).toBe(joinFunctions());
});

test('the functions of a migrated database are those of migrations/functions', async () => {
  await migrateDatabase({ url: database.url });
  const migrated = await dumpSchema(client);
  // Plpgsql looks at a body when it first runs it; so warned, it also looks for variables that hide each other.
  await client.query(`set search_path = public, pg_temp; set plpgsql.extra_errors = 'shadowed_variables'`);
  await client.query(joinFunctions().replaceAll(/^create function/gm, 'create or replace function'));
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
