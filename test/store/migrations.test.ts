import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { drizzle } from 'drizzle-orm/node-postgres';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import hashes from '../../migrations/hashes.json' with { type: 'json' };
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

/** Applies the first migrations only, as an older version of the service did. */
async function migrateTo(last: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-migrations-'));
  try {
    cpSync(MIGRATIONS, folder, { recursive: true });
    const file = join(folder, 'meta/_journal.json');
    const journal = JSON.parse(readFileSync(file, 'utf8')) as { entries: { tag: string }[] };
    const entries = journal.entries.slice(0, journal.entries.findIndex(({ tag }) => tag === last) + 1);
    writeFileSync(file, JSON.stringify({ ...journal, entries }));
    await migrate(drizzle({ client }), { migrationsFolder: folder });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

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

test('a migration that has landed is never edited; a new one gets a line in migrations/hashes.json', () => {
  const { entries } = JSON.parse(readFileSync(join(MIGRATIONS, 'meta/_journal.json'), 'utf8')) as {
    entries: { tag: string }[];
  };
  const hashOf = (tag: string) => createHash('sha256').update(readFileSync(join(MIGRATIONS, `${tag}.sql`)));
  expect(Object.fromEntries(entries.map(({ tag }) => [tag, hashOf(tag).digest('hex')]))).toEqual(hashes);
});

test('0002 keeps what an older version stored, except the answers that it kept for retries', async () => {
  await migrateTo('0001_comments_and_views');
  await client.query(`
    insert into sessions (app_name, user_id, id, state, last_sequence) values ('a', 'u', 's', '{"k": 1}', 1);
    insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload)
      values ('a', 'u', 's', 1, 'e1', 'i1', 'user', '2026-01-01Z', '{"content": {"parts": [{"text": "hi"}]}}');
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, answer,
                             cancel_status, prompt_tokens, output_tokens, create_time, start_time, end_time)
      values ('a', 'u', 's', 'i1', 'cancelled', gen_random_uuid(), '2026-01-01Z', '{"x": 1}', 'cancelled', 7, 3,
              '2026-01-01 00:00Z', '2026-01-01 00:01Z', '2026-01-01 00:03Z');
    insert into artifacts values ('a', 'u', '', 'user:f', 2);
    insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri,
                                   mime_type, part, content, object_key, size_bytes, sha256)
      values ('a', 'u', '', 'user:f', 0, 'x', 'text/plain', '{}', 'abc', null, 3, ''),
             ('a', 'u', '', 'user:f', 1, 's3://b/k', 'image/png', '{}', null, 'k', 5, '');
    insert into memories values ('a', 'u', 's', 'e1', 'user', '{}', '2026-01-01Z', to_tsvector('simple', 'whale'));
    insert into idempotency_keys (scope, key, request_hash, answer) values ('createSession key', 'k', 'h', '{}');
    insert into cronjobs (app_name, user_id, id, name, prompt, schedule, time_zone)
      values ('a', 'u', 'c', 'n', 'p', '{}', 'UTC');`);
  await migrateDatabase({ url: database.url });
  const rowsOf = async (query: string) => (await client.query(query)).rows;
  expect(await rowsOf('select name, hash from agent_runtime_migrations order by name')).toEqual(
    Object.entries(hashes).map(([name, hash]) => ({ name, hash })),
  );
  expect(await rowsOf('select id, state, last_sequence from sessions')).toEqual([
    { id: 's', state: { k: 1 }, last_sequence: 1 },
  ]);
  expect(await rowsOf('select status, response_body, stop_requested_as from invocations')).toEqual([
    { status: 'cancelled', response_body: '{"x": 1}', stop_requested_as: 'cancelled' },
  ]);
  expect(await rowsOf(`select event_id from memories where search_vector @@ to_tsquery('simple', 'whale')`)).toEqual([
    { event_id: 'e1' },
  ]);
  expect(await rowsOf('select * from idempotency_keys')).toEqual([]);
  expect(await rowsOf('select session_id, event_count, running_invocation from inspect.sessions')).toEqual([
    { session_id: 's', event_count: 1, running_invocation: null },
  ]);
  expect(await rowsOf('select sequence, said from inspect.conversation')).toEqual([{ sequence: 1, said: 'hi' }]);
  expect(
    await rowsOf(`select session_id, name, version_count::int, latest_version, mime_type, total_bytes::int,
                         object_count::int
                  from inspect.artifacts`),
  ).toEqual([
    {
      session_id: null,
      name: 'user:f',
      version_count: 2,
      latest_version: 1,
      mime_type: 'image/png',
      total_bytes: 8,
      object_count: 1,
    },
  ]);
  expect(
    await rowsOf(
      `select day::text, invocations::int, failed::int, prompt_tokens::int, output_tokens::int from inspect.usage`,
    ),
  ).toEqual([{ day: '2026-01-01', invocations: 1, failed: 0, prompt_tokens: 7, output_tokens: 3 }]);
  expect(await rowsOf(`select invocation_id, is_dead, duration::text from inspect.invocations`)).toEqual([
    { invocation_id: 'i1', is_dead: false, duration: '00:02:00' },
  ]);
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
