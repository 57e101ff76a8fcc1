import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { deleteOldEntries } from '../../src/platform/http/audit/audit-store.ts';
import { openAudit } from '../../src/platform/http/audit/audit.ts';
import { openDatabase } from '../../src/platform/db/database.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { createLog } from '../../src/platform/log.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { startEdge } from '../support/edge.ts';
import { sampleOperations } from '../support/edge-operations.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { openPool, poolOptions } from '../support/store.ts';

/** Who was allowed or refused what is kept, without content, and nobody can change it afterwards. */

const REFUSALS = 60;
const FEW_REFUSALS = 12;
let app: TestApp;
let tokens: Awaited<ReturnType<typeof startTokenIssuer>>;
let client: Client;
let alice: Record<string, string>;

beforeAll(async () => {
  tokens = await startTokenIssuer();
  app = await startApp({
    ...tokens.environment,
    DEV_UI: 'false',
    AUDIT: 'writes',
  });
  client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  alice = await tokens.headersOf('alice');
});
afterAll(async () => {
  await client.end();
  await app.close();
  await tokens.close();
});

const SESSIONS = '/apps/harness_agent/users/alice/sessions';
const entries = async (requestId: string) => {
  const { rows } = await client.query('select * from inspect.audit where request_id = $1', [requestId]);
  return rows;
};
/** Sends a request and gives back the entries about it, when there are as many. */
async function audited(method: string, path: string, body: unknown, headers: Record<string, string>, count = 1) {
  const { status, headers: answered } = await app.send(method, path, body, headers);
  const id = answered.get('x-request-id') ?? '';
  await expect.poll(() => entries(id)).toHaveLength(count);
  return [status, ...(await entries(id))];
}
const entry = (members: object) => ({
  time: expect.any(Date),
  request_id: expect.any(String),
  address: '127.0.0.1',
  caller_kind: 'user',
  caller: 'alice',
  app_name: 'harness_agent',
  user_id: 'alice',
  session_id: null,
  left_out: 0,
  ...members,
});
const allowed = (operation: string, members: object) =>
  entry({ decision: 'allowed', reason: null, operation, ...members });
const refused = (operation: string, reason: string, members: object) =>
  entry({ decision: 'refused', reason, operation, ...members });
/** A task of alice's session that only ann answers. */
async function insertTask(): Promise<void> {
  const key = `'harness_agent', 'alice', 'asked'`;
  await client.query(`insert into sessions (app_name, user_id, id, state) values (${key}, '{}')`);
  await client.query(`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    values (${key}, 'i', 'paused', gen_random_uuid(), now())`);
  await client.query(`insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form,
      rules, assigned_users)
    values (${key}, 'of-ann', 'i', 'c', 'ask', 'call', '{"tool": "ask"}', '{}', '{ann}')`);
}
const newMessage = { role: 'user', parts: [{ text: 'say mark4audit' }] };

describe('what is kept', () => {
  test('who was allowed to change something or to run the agent', async () => {
    const resource = { appName: 'harness_agent', userId: 'alice' };
    expect(await audited('POST', SESSIONS, { sessionId: 's', state: { a: 'mark4audit' } }, alice)).toEqual([
      200,
      allowed('createSession', { resource }),
    ]);
    const run = { appName: 'harness_agent', userId: 'alice', sessionId: 's', newMessage };
    expect(await audited('POST', '/run', run, alice)).toEqual([200, allowed('runAgent', { resource })]);
    expect(await audited('PATCH', `${SESSIONS}/s`, { stateDelta: { b: 'mark4audit' } }, alice)).toEqual([
      200,
      allowed('updateSession', { session_id: 's', resource: { ...resource, sessionId: 's' } }),
    ]);
  });

  test('no read', async () => {
    expect(await audited('GET', `${SESSIONS}/s`, undefined, alice, 0)).toEqual([200]);
  });

  test('who was refused: what is another’s, a scope that lacks, no credential', async () => {
    const foreign = SESSIONS.replace('alice', 'bob');
    expect(await audited('GET', `${foreign}/s`, undefined, alice)).toEqual([
      404,
      refused('getSession', 'what it asks for belongs to another user or application', {
        user_id: 'bob',
        session_id: 's',
        resource: { appName: 'harness_agent', userId: 'bob', sessionId: 's' },
      }),
    ]);
    const resource = { appName: 'harness_agent', userId: 'alice', sessionId: 's' };
    const reason =
      'The credential does not have the scope `admin`: keys with `app:` in front are the state of all users.';
    expect(await audited('PATCH', `${SESSIONS}/s`, { stateDelta: { 'app:a': 1 } }, alice)).toEqual([
      403,
      refused('updateSession', reason, { session_id: 's', resource }),
    ]);
    // Whose it is that the content names, or the object of the path.
    const invoked = { appName: 'harness_agent', userId: 'bob', sessionId: 's', newMessage };
    expect(await audited('POST', '/run', invoked, alice)).toEqual([
      404,
      refused('runAgent', 'what it asks for belongs to another user or application', {
        user_id: 'bob',
        resource: { appName: 'harness_agent', userId: 'bob' },
      }),
    ]);
    await insertTask();
    expect(await audited('PATCH', '/tasks/of-ann', { action: 'answer' }, alice, 2)).toEqual([
      403,
      allowed('changeTask', { app_name: null, user_id: null, resource: { taskId: 'of-ann' } }),
      refused('changeTask', 'Others have to answer task of-ann.', {
        resource: { appName: 'harness_agent', userId: 'alice', taskId: 'of-ann' },
      }),
    ]);
    const unknown = { caller_kind: 'unknown', caller: null, session_id: 's' };
    const nobody = refused('getSession', 'no credential, or a wrong one', { ...unknown, resource });
    expect(await audited('GET', `${SESSIONS}/s`, undefined, {})).toEqual([401, nobody]);
    expect(await audited('GET', `${SESSIONS}/s`, undefined, { authorization: 'Bearer x.y.z' })).toEqual([401, nobody]);
  });

  test('names that the database cannot hold as they are, and no content', async () => {
    const headers = { authorization: 'Bearer x.y.z' };
    const [status, kept] = await audited('GET', `/apps/${'a'.repeat(900)}/users/%00/sessions`, undefined, headers);
    expect([status, kept]).toMatchObject([401, { app_name: 'a'.repeat(256) }]);
    const { rows } = await client.query(`select from audit_log a where a::text like '%mark4audit%'`);
    expect(rows).toEqual([]);
  });

  test('of the refusals of one address only some in a minute', async () => {
    const ids = await Promise.all(
      Array.from({ length: 3 * REFUSALS }, async () => (await app.get(SESSIONS)).headers.get('x-request-id')),
    );
    const last = await audited('POST', SESSIONS, {}, alice);
    expect(last).toMatchObject([200, { decision: 'allowed' }]);
    const kept = async () =>
      (await client.query(`select from audit_log where caller_kind = 'unknown' and request_id is not null`)).rowCount;
    await expect.poll(kept).toBe(REFUSALS);
    expect(ids).toHaveLength(3 * REFUSALS);
  });
});

test('a flood of refusals is one statement, and so are the permissions of one moment', async () => {
  let statements = 0;
  const pool = openDatabase({ ...poolOptions(app.databaseUrl, 4), onLent: () => (statements += 1) });
  const audit = openAudit(pool, { readsToo: false, refusalsPerMinute: FEW_REFUSALS }, createLog('silent'));
  const flood = (caller: string) => ({ callerKind: 'user' as const, caller, resource: {}, requestId: 'flood' });
  const kept = async (decision: string) => {
    const found = `select from audit_log where request_id = 'flood' and decision = $1`;
    return (await client.query(found, [decision])).rowCount;
  };
  // One caller has its share; beside many callers all together have ten times as much.
  for (let count = 0; count < 5_000; count += 1) audit.refused(flood('mallory'), 'no');
  for (let count = 0; count < 5_000; count += 1) audit.refused(flood(`mallory ${count}`), 'no');
  const permit = (count: number) =>
    Promise.all(Array.from({ length: count }, () => audit.allowed(flood('alice'), { isRead: false })));
  await permit(300);
  await permit(300);
  expect(statements).toBe(2);
  await audit.close();
  expect(statements).toBe(3);
  expect([await kept('allowed'), await kept('refused')]).toEqual([600, 10 * FEW_REFUSALS]);
  await pool.close();
});

test('what cannot be kept is not done', async () => {
  await client.query(`create function fail() returns trigger language plpgsql as $$
    begin raise exception 'no room' using errcode = '53100'; end $$;
    create trigger fail before insert on audit_log execute function fail()`);
  try {
    expect((await app.post(SESSIONS, { sessionId: 'unkept' }, alice)).status).toBe(503);
    expect((await app.get(`${SESSIONS}/unkept`, alice)).status).toBe(404);
  } finally {
    await client.query('drop function fail cascade');
  }
});

describe('what was kept stays', () => {
  test.each(['update audit_log set caller = null', 'delete from audit_log', 'truncate audit_log'])(
    '%s is refused, also of a superuser',
    async (statement) => {
      await expect(client.query(statement)).rejects.toMatchObject({ message: 'audit_log is only appended to' });
    },
  );

  test.each([
    'select from audit_log',
    'insert into audit_log default values',
    'update audit_log set caller = null',
    'delete from audit_log',
  ])('the role that serves users has no right to %s', async (statement) => {
    await client.query('set role agent_runtime_user');
    await expect(client.query(statement)).rejects.toMatchObject({ code: '42501' });
    await client.query('reset role');
  });

  test('until it is too old, or too much and not of the last day', async () => {
    const pool = openPool(app.databaseUrl);
    const insert = (age: string, name: string) =>
      client.query(
        `insert into audit_log (time, caller_kind, resource, decision, request_id)
         values (now() - $1::interval, 'unknown', '{}', 'allowed', $2)`,
        [age, name],
      );
    for (const age of ['91 days', '2 days', '1 hour']) await insert(age, `aged ${age}`);
    const left = async () => {
      const { rows } = await client.query(
        `select request_id as id from audit_log where request_id like 'aged%' order by 1`,
      );
      return rows.map(({ id }) => id as string);
    };
    await deleteOldEntries(pool.db);
    expect(await left()).toEqual(['aged 1 hour', 'aged 2 days']);
    await migrateDatabase({ url: app.databaseUrl }, { audit: { days: 90, count: 1 } });
    await deleteOldEntries(pool.db);
    expect(await left()).toEqual(['aged 1 hour']);
    await pool.close();
  });
});

describe('the log', () => {
  test('has a line for a wrong credential, and none for one that is missing or is right', async () => {
    const edge = await startEdge({
      operations: sampleOperations,
      auth: { mode: 'key', keys: { plain: ['a-right-key'] } },
    });
    const ask = (headers: Record<string, string>) =>
      edge.send({ path: '/apps/a/users/u/sessions', headers: { ...headers, 'x-request-id': 'asked' } });
    for (const headers of [{}, { authorization: 'Bearer a-right-key' }, { authorization: 'Bearer wrong' }])
      await ask(headers);
    const fields = { reason: 'wrong credential', requestId: 'asked', address: '127.0.0.1' };
    expect(edge.logged).toEqual([{ fields, message: 'a credential was refused' }]);
    await edge.close();
  });

  test('has a line for an issuer whose keys cannot be fetched', async () => {
    const broken = await startTokenIssuer();
    broken.issuer.broken = { status: 500, body: '' };
    const lines: object[] = [];
    const log = createLog('warn', { write: (line: string) => void lines.push(JSON.parse(line) as object) });
    const other = await startApp({ ...broken.environment, DEV_UI: 'false' }, { log });
    for (let tries = 0; tries < 3; tries += 1) {
      expect((await other.get(SESSIONS, await broken.headersOf('alice'))).status).toBe(503);
    }
    expect(lines).toContainEqual(
      expect.objectContaining({
        msg: 'the keys of the issuer cannot be fetched',
        err: expect.objectContaining({ reason: 'The issuer answered 500.' }),
      }),
    );
    await other.close();
    await broken.close();
  });
});
