import { randomBytes } from 'node:crypto';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { VERSION } from '../../src/platform/version.ts';
import { client as httpClient, startOn } from '../support/app.ts';
import { onServers, withDatabase } from '../support/citus.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { startService } from '../support/service-process.ts';

/** A database as a provider hands it out: one role makes the tables, another one serves, and it has neighbours. */

let database: Awaited<ReturnType<typeof createEmptyDatabase>>;
let sql: Client;
const name = randomBytes(4).toString('hex');
const [owner, server] = [`owner_${name}`, `server_${name}`];
const urlOf = (role: string) => {
  const url = new URL(database.url);
  [url.username, url.password] = [role, 'geheim'];
  return url.href;
};
const settings = () => ({ DATABASE_MIGRATION_URL: urlOf(owner), DATABASE_SCHEMA: 'agents' });

beforeAll(async () => {
  database = await createEmptyDatabase();
  sql = new Client({ connectionString: database.url });
  await sql.connect();
  await sql.query(`
    create role ${owner} login password 'geheim';
    create role ${server} login password 'geheim';
    revoke create on schema public from public;
    create table public.sessions (theirs text);
    insert into public.sessions values ('a row of a neighbour')`);
  const databaseName = new URL(database.url).pathname.slice(1);
  const nodes = [inject('adminUrl'), ...inject('workerUrls')].map((url) => withDatabase(url, databaseName));
  await onServers(nodes, (node) => node.query(`grant create on database ${databaseName} to ${owner}`));
});
afterAll(async () => {
  await sql.query(`drop owned by ${owner}, ${server} cascade`);
  await sql.end();
  await database.drop();
  const admin = new Client({ connectionString: inject('adminUrl') });
  await admin.connect();
  await admin.query(`drop role ${owner}, ${server}`);
  await admin.end();
});

/** What a start, or the command `migrate --check`, ends with. */
const startWith = (environment: Record<string, string>) =>
  startOn(urlOf(server), { DATABASE_SCHEMA: 'agents', ...environment }).then(
    async (runtime) => {
      await runtime.close();
      return 'it starts';
    },
    (error: Error) => error.message,
  );
const check = (...args: string[]) =>
  startService({ DATABASE_URL: urlOf(server), DATABASE_SCHEMA: 'agents' }, 'migrate', ...args).end;
const cannotBeUsed = (reason: string) => `The database at ${new URL(database.url).host} cannot be used: ${reason}.`;

test('a start that only looks says that there is nothing, and makes nothing; so does the check', async () => {
  const nothing = 'its schema agents has no tables of this service';
  const refused = cannotBeUsed(`${nothing}. Apply the migrations: npm run db:migrate, or agent-runtime migrate`);
  expect(await startWith({ MIGRATE: 'check' })).toBe(refused);
  expect(await startWith({ MIGRATE: 'off' })).toBe(refused);
  expect(await check('--check')).toEqual({ code: 1, out: '', error: `${refused}\n` });
  const { rows } = await sql.query(`select nspname from pg_namespace where nspname like 'agents%'`);
  expect(rows).toEqual([]);
});

test('a role that owns nothing serves from a schema of its own, beside a foreign table `sessions`', async () => {
  const runtime = await startOn(urlOf(server), { ...settings(), CRONJOBS: 'true', AUDIT: 'writes' });
  const { get, post, send } = httpClient(runtime.url);
  const invoked = await post('/harness/invoke', {
    prompt: 'What is 17 * 23? Use the calculator.',
    harness_name: 'h',
    run_agent_request: { user_id: 'u', session_id: 's' },
  });
  expect(invoked.body).toMatchObject({ output: 'The tool `calculator` answered: 391', error: null });
  const session = '/apps/harness_agent/users/u/sessions/s';
  const state = await send('PATCH', session, { stateDelta: { 'app:a': 1, 'user:b': 2, c: 3 } });
  expect(state.body).toMatchObject({ state: { 'app:a': 1, 'user:b': 2, c: 3 } });
  const saved = await post(`${session}/artifacts`, { filename: 'f', artifact: { text: 'x' } });
  expect(saved.body).toMatchObject({ version: 0 });
  expect((await get('/apps/harness_agent/users/u/sessions')).body).toMatchObject([{ id: 's' }]);
  expect((await send('DELETE', session)).status).toBe(200);
  await runtime.close();
  const { rows } = await sql.query<{ owner: string; schema: string; kinds: number }>(`
    select relowner::regrole::text as owner, relnamespace::regnamespace::text as schema, count(*)::int > 3 as many
    from pg_class where relkind in ('r', 'v') and relowner::regrole::text in ('${owner}', '${server}')
    group by 1, 2 order by 2`);
  expect(rows).toEqual([
    { owner, schema: 'agents', many: true },
    { owner, schema: 'agents_inspect', many: true },
    { owner, schema: 'agents_outline', many: true },
  ]);
  expect((await sql.query('select * from public.sessions')).rows).toEqual([{ theirs: 'a row of a neighbour' }]);
  const rights = await sql.query<{ right: boolean }>(`
    select has_schema_privilege('${server}', 'agents', 'create')
        or has_database_privilege('${server}', current_database(), 'create')
        or has_table_privilege('${server}', 'public.sessions', 'select')
        or has_table_privilege('${server}', 'agents.agent_runtime_migrations', 'insert')
        or has_table_privilege('${server}', 'agents.audit_log', 'update, delete, truncate') as right`);
  expect(rights.rows).toEqual([{ right: false }]);
  const { rows: kept } = await sql.query('select operation from agents_inspect.audit order by time');
  expect(kept.map(({ operation }) => operation as string)).toEqual([
    'harnessInvoke',
    'updateSession',
    'saveArtifact',
    'deleteSession',
  ]);
});

test('it starts by itself where nothing is missing, and the check says so', async () => {
  expect(await startWith({ MIGRATE: 'check' })).toBe('it starts');
  const { host, pathname } = new URL(database.url);
  const said = `PostgreSQL at ${host}${pathname} has all that this version needs.\n`;
  expect(await check('--check')).toEqual({ code: 0, out: said, error: '' });
});

test('rights that the serving role lacks are named, and given by the next migration', async () => {
  await sql.query(`revoke insert, update on agents.events from ${server}`);
  const lacks = `the role ${server} lacks insert, update on events. Apply the migrations with DATABASE_MIGRATION_URL`;
  const refused = cannotBeUsed(`${lacks} and DATABASE_URL set, which grants them`);
  expect(await startWith({})).toBe(refused);
  expect(await startWith({ MIGRATE: 'check' })).toBe(refused);
  expect(await startWith(settings())).toBe('it starts');
  expect(await startWith({ MIGRATE: 'check' })).toBe('it starts');
});

test('on a newer database a start is refused, unless it is told not to look', async () => {
  await sql.query(`insert into agents.agent_runtime_migrations (hash, created_at) values ('x', 9999000000000)`);
  const newer = cannotBeUsed(
    `it is newer than this version, ${VERSION}, which does not know its migration of 2286-11-09T04:00:00.000Z`,
  );
  expect(await startWith({})).toBe(newer);
  expect(await startWith({ MIGRATE: 'check' })).toBe(newer);
  expect(await startWith({ MIGRATE: 'off' })).toBe('it starts');
  await sql.query(`delete from agents.agent_runtime_migrations where hash = 'x'`);
});

test.each([
  [{ DATABASE_SCHEMA: 'Agents' }, 'DATABASE_SCHEMA: found "Agents"; allowed: lower-case letters, digits and _, '],
  [{ DATABASE_SCHEMA: 'pg_agents' }, 'DATABASE_SCHEMA: found "pg_agents"; '],
  [{ MIGRATE: 'maybe' }, 'MIGRATE: found "maybe"; allowed: on-start, check, off.'],
  [
    { DATABASE_MIGRATION_URL: 'postgres://a@b,,c/d' },
    'DATABASE_MIGRATION_URL: found a wrong value; allowed: postgres:',
  ],
  [
    { DATABASE_URL: '', DATABASE_MIGRATION_URL: 'postgres://a@b/c' },
    'DATABASE_MIGRATION_URL: it is of no use without DATABASE_URL.',
  ],
])('%j ends the start with a sentence', async (environment, sentence) => {
  const said = await Promise.resolve()
    .then(() => startWith(environment as Record<string, string>))
    .catch((error: Error) => error.message);
  expect(said.slice(0, sentence.length)).toBe(sentence);
});
