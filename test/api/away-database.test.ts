import { Client } from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { Runtime } from '../../src/process/runtime.ts';
import { type PostgresProxy, startProxy } from '../fault/support/postgres-proxy.ts';
import { gatedAgents } from '../support/agents.ts';
import { client, startOn } from '../support/app.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { MINUTE } from '../support/patience.ts';

/** What a client and a probe hear while the database is away, or takes no writes. */

const SESSIONS = '/apps/harness_agent/users/u/sessions';
const gate = gatedAgents();
let database: TestDatabase;
let proxy: PostgresProxy;
let runtime: Runtime;
let app: ReturnType<typeof client>;
beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startProxy(database.url);
  runtime = await startOn(
    proxy.url,
    { DEV_UI: 'false', DATABASE_STATEMENT_TIMEOUT_MS: '4000' },
    { agents: gate.agents },
  );
  app = client(runtime.url);
});
afterAll(async () => {
  proxy.isRefusing = false;
  await runtime.close();
  await proxy.close();
  await database.drop();
});
const run = (sessionId: string) => ({
  appName: 'harness_agent',
  userId: 'u',
  sessionId,
  newMessage: { role: 'user', parts: [{ text: 'Go on.' }] },
});
const sql = async (statements: string) => {
  const direct = new Client({ connectionString: database.url });
  await direct.connect();
  try {
    return (await direct.query(statements)).rowCount;
  } finally {
    await direct.end();
  }
};

test('a stream that waits for its session hears that the database is away, as a request without a stream does', async () => {
  await app.post(`${SESSIONS}/s`, {});
  const first = app.post('/run', run('s'));
  await gate.entered(1);
  const waiting = [app.post('/run_sse', run('s')), app.post('/run', run('s'))];
  await vi.waitUntil(async () => (await sql(`select from invocations where status = 'queued'`)) === 2, {
    timeout: MINUTE,
  });
  proxy.isRefusing = true;
  proxy.cutAll();
  const [streamed, whole] = await Promise.all(waiting);
  expect([streamed?.status, streamed?.text]).toEqual([
    200,
    'data: {"error":"The database is not available for now."}\n\n',
  ]);
  expect([whole?.status, whole?.body]).toEqual([503, { detail: 'The database is not available for now.' }]);
  expect((await app.get('/ready')).status).toBe(503);
  proxy.isRefusing = false;
  await vi.waitUntil(async () => (await app.get('/ready')).status === 200, { timeout: MINUTE });
  gate.open();
  await first;
});

test('a replica whose database takes no writes stays ready, because all replicas are alike in that, and reads go on', async () => {
  await app.post(`${SESSIONS}/full`, {});
  await sql(`create function refuse() returns trigger language plpgsql as $$ begin
      raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
    create trigger refuse before insert or update on sessions for each row execute function refuse()`);
  const refused = await app.post('/run', run('full'));
  expect([refused.status, refused.body, refused.headers.get('retry-after')]).toEqual([
    503,
    { detail: 'The database is not available for now.' },
    '1',
  ]);
  expect((await app.get(`${SESSIONS}/full`)).status).toBe(200);
  expect((await app.get('/ready')).status).toBe(200);
  await sql('drop trigger refuse on sessions');
});
