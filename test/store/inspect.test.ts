import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { claimSession } from '../../src/invocations/lock-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { newKey, testPool, textEvent } from '../support/store.ts';

/** What the views for people promise. */

const store = testPool();
const rowsOf = async (text: ReturnType<typeof sql>) => (await store.pool.db.execute(text)).rows;
const event = (part: object, timestamp: number) => textEvent('', { content: { parts: [part] }, timestamp });

test('calls of tools have a duration and an outcome, and no content', async () => {
  const key = newKey();
  const call = (id: string, name: string) => ({ functionCall: { id, name, args: { secret: 'x' } } });
  const answer = (id: string, response: object) => ({ functionResponse: { id, name: 'any', response } });
  await insertSession(store.pool.db, key, {}, [
    event(call('c1', 'add'), 100),
    event(answer('c1', { result: 1 }), 102.5),
    event(call('c2', 'fetch'), 103),
    event(answer('c2', { error: 'away' }), 104),
    event(call('c3', 'ask'), 105),
  ]);
  const rows = await rowsOf(sql`
    select tool, call_id, extract(epoch from duration)::float8 as seconds, outcome from inspect.tool_calls
    where session_id = ${key.sessionId} order by sequence`);
  expect(rows).toEqual([
    { tool: 'add', call_id: 'c1', seconds: 2.5, outcome: 'answered' },
    { tool: 'fetch', call_id: 'c2', seconds: 1, outcome: 'failed' },
    { tool: 'ask', call_id: 'c3', seconds: null, outcome: 'open' },
  ]);
});

test('storage is counted by user, open invocations by what they wait for', async () => {
  const key = newKey();
  const lease = { key, invocationId: 'e-1', token: randomUUID(), durationMs: -1 };
  await claimSession(store.pool.db, lease, [textEvent('hello')], true);
  const storage = await rowsOf(sql`
    select sessions::int, events::int, event_bytes > 0 as has_bytes, artifact_versions::int, artifact_bytes::int
    from inspect.storage where app_name = ${key.appName} and user_id = ${key.userId}`);
  expect(storage).toEqual([{ sessions: 1, events: 1, has_bytes: true, artifact_versions: 0, artifact_bytes: 0 }]);
  const open = await rowsOf(sql`
    select invocation_id, status, is_dead, running_for > interval '0' as runs from inspect.open_invocations
    where session_id = ${key.sessionId}`);
  expect(open).toEqual([{ invocation_id: 'e-1', status: 'running', is_dead: true, runs: true }]);
});

test('a role made as the page says reads the views of all users, and no table', async () => {
  const client = new Client({ connectionString: store.url });
  await client.connect();
  const role = `reader_${randomUUID().slice(0, 8)}`;
  await client.query(`create role ${role};
    grant usage on schema inspect to ${role}; grant select on all tables in schema inspect to ${role}`);
  await client.query(`set agent_runtime.all_users = 'on'; set role ${role}`);
  expect((await client.query('select from inspect.sessions')).rowCount).toBeGreaterThan(0);
  await expect(client.query('select from sessions')).rejects.toThrow('permission denied for table sessions');
  await client.query(`reset role; drop owned by ${role}; drop role ${role}`);
  await client.end();
});
