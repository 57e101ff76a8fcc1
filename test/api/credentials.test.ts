import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { client as httpClient, startOn } from '../support/app.ts';
import { createTestDatabase } from '../support/database.ts';

/** Credentials of the database that change while the service runs. */

const directory = mkdtempSync(join(tmpdir(), 'agent-runtime-credentials-'));
const file = join(directory, 'password');
const role = `rotating_${randomBytes(4).toString('hex')}`;
let database: Awaited<ReturnType<typeof createTestDatabase>>;
let sql: Client;
let url: string;

beforeAll(async () => {
  database = await createTestDatabase();
  sql = new Client({ connectionString: database.url });
  await sql.connect();
  await sql.query(`create role ${role} login; grant select on all tables in schema public to ${role};
    grant insert, update, delete on all tables in schema public to ${role};
    grant execute on all functions in schema public to ${role}`);
  const withoutPassword = new URL(database.url);
  [withoutPassword.username, withoutPassword.password] = [role, ''];
  url = withoutPassword.href;
});
afterAll(async () => {
  await sql.query(`drop owned by ${role}`);
  await sql.end();
  await database.drop();
  const admin = new Client({ connectionString: inject('adminUrl') });
  await admin.connect();
  await admin.query(`drop role ${role}`);
  await admin.end();
  rmSync(directory, { recursive: true });
});

/** Gives the role a password and writes it down, as a secret's agent does; connections with the old one are ended. */
async function rotate(password: string): Promise<void> {
  await sql.query(`alter role ${role} password '${password}'`);
  writeFileSync(file, `${password}\n`);
  await sql.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}'`);
}

test('a password is read from its file for each connection, so it may change while the service runs', async () => {
  await rotate('first: @/%');
  const runtime = await startOn(url, { DATABASE_PASSWORD_FILE: file, DATABASE_POOL_SIZE: '2' });
  const { get, post } = httpClient(runtime.url);
  const sessions = '/apps/harness_agent/users/u/sessions';
  expect((await post(sessions, { sessionId: 's1' })).status).toBe(200);
  await rotate('second');
  await expect.poll(async () => (await post(sessions, { sessionId: 's2' })).status).toBe(200);
  expect((await get(sessions)).body).toMatchObject([{ id: 's2' }, { id: 's1' }]);
  // Notifications sign in anew as well.
  const listeners = async () => {
    const { rowCount } = await sql.query(
      `select from pg_stat_activity where usename = '${role}' and application_name like 'agent-runtime/%'`,
    );
    return rowCount;
  };
  await expect.poll(listeners).toBe(1);
  await runtime.close();
});

test('while the file is away a request is a 503, and works when it is back', async () => {
  await rotate('third');
  const runtime = await startOn(url, { DATABASE_PASSWORD_FILE: file, DATABASE_POOL_SIZE: '2' });
  const { get } = httpClient(runtime.url);
  rmSync(file);
  await sql.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}'`);
  await expect.poll(async () => (await get('/ready')).status).toBe(503);
  writeFileSync(file, 'third');
  await expect.poll(async () => (await get('/ready')).status).toBe(200);
  await runtime.close();
});

test('a file that is not there ends the start with a sentence', async () => {
  const { host } = new URL(url);
  await expect(startOn(url, { DATABASE_PASSWORD_FILE: join(directory, 'nothing') })).rejects.toThrow(
    `The database at ${host} cannot be used: DATABASE_PASSWORD_FILE cannot be read (ENOENT). Check DATABASE_URL.`,
  );
  await expect(startOn(url, { DATABASE_CA_FILE: join(directory, 'nothing') })).rejects.toThrow(
    `DATABASE_CA_FILE: ${join(directory, 'nothing')} cannot be read (ENOENT).`,
  );
});
