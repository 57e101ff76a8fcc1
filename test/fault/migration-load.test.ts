import { Client } from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { readSections } from '../../src/platform/db/repeatable.ts';
import { createTestDatabase } from '../support/database.ts';
import { MIGRATIONS } from '../support/migrations.ts';
import { newKey, openPool, textEvent } from '../support/store.ts';
import { eventually, report } from './support/faults.ts';
import { MINUTE } from '../support/patience.ts';

/** A later version replaces functions, triggers and views while clients of the one before it write. */

const CLIENTS = 8;
const ROUNDS = 3;
const FILES = [...new Set(readSections(MIGRATIONS, false).map(({ file }) => file))];

let database: Awaited<ReturnType<typeof createTestDatabase>>;
let client: Client;
beforeEach(async () => {
  database = await createTestDatabase();
  client = new Client({ connectionString: database.url });
  await client.connect();
});
afterEach(async () => {
  await client.end();
  await database.drop();
});

/** Notes another text for each section, as a version leaves it that has changed them all. */
const changeAll = () => client.query(`update agent_runtime_repeatables set hash = md5(hash)`);

test('no client fails while every section is replaced', async () => {
  const pool = openPool(database.url, CLIENTS);
  const failures: unknown[] = [];
  let [isOver, written] = [false, 0];
  const write = async () => {
    while (!isOver) {
      const key = newKey();
      await insertSession(pool.db, key, { a: 1, 'user:b': 2, 'app:c': 3 }, [textEvent('hello')]);
      await deleteSession(pool.db, key);
      written += 1;
    }
  };
  const writing = Array.from({ length: CLIENTS }, () => write().catch((error: unknown) => failures.push(error)));
  for (let round = 0; round < ROUNDS; round += 1) {
    await changeAll();
    expect(await migrateDatabase({ url: database.url })).toEqual(FILES);
  }
  isOver = true;
  await Promise.all(writing);
  await pool.close();
  report('migrations under load', `${ROUNDS} times all sections, ${written} sessions, ${failures.length} failures`);
  expect(failures).toEqual([]);
  expect(written).toBeGreaterThan(0);
});

test('clients pass a migration that waits for a long transaction, and it is finished after that', async () => {
  const holder = new Client({ connectionString: database.url });
  await holder.connect();
  const insert = `insert into sessions (app_name, user_id, id) values ('a', 'u', gen_random_uuid()::text)`;
  await holder.query(`begin; ${insert}`);
  await changeAll();
  const migrating = migrateDatabase({ url: database.url });
  await eventually('the migration waits', MINUTE, async () => {
    const { rowCount } = await client.query(
      `select from pg_locks join pg_stat_activity using (pid)
       where relation = 'sessions'::regclass and not granted and datname = current_database()`,
    );
    return rowCount !== 0;
  });
  // The client queues behind the migration, which gives up its place although the transaction is still open.
  await client.query(insert);
  await holder.query('commit');
  expect(await migrating).toEqual(FILES);
  expect(await migrateDatabase({ url: database.url })).toEqual([]);
  await holder.end();
});
