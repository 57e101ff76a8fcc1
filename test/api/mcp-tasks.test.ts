import { Client } from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { startApp } from '../support/app.ts';
import { startModernMcpServer } from '../support/mcp-server.ts';

const made = { resultType: 'task', taskId: 't1', status: 'working', createdAt: '', lastUpdatedAt: '', ttlMs: null };

test('a task is followed by another process, not begun again', async () => {
  const asked = Promise.withResolvers<void>();
  let state: object = { status: 'working', pollIntervalMs: 0 };
  const server = await startModernMcpServer([{ name: 'work', call: () => made }], {
    capabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } },
    methods: {
      'tasks/get': () => {
        asked.resolve();
        return { ...made, resultType: 'complete', ...state };
      },
      'tasks/cancel': () => ({}),
    },
  });
  onTestFinished(() => server.close());
  const app = await startApp({}, { sweepIntervalMs: 50 });
  onTestFinished(() => app.close());
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  onTestFinished(() => sql.end());
  const session = '/apps/harness_agent/users/u/sessions';
  await app.post(session, { sessionId: 's' });
  const started = await app.post(`${session}/s/invocations`, {
    newMessage: { role: 'user', parts: [{ text: 'use work {}' }] },
    harness: { mcp_servers: [{ name: 'docs', url: server.url }] },
  });
  expect(started.status).toBe(200);
  await asked.promise;
  const row = async () => (await sql.query('select state, attempt, response from tool_calls')).rows as unknown;
  expect(await row()).toEqual([{ state: 'started', attempt: 1, response: { kept: { taskId: 't1' } } }]);
  // As where its process had died.
  await sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);
  await expect.poll(row).toEqual([{ state: 'started', attempt: 2, response: { kept: { taskId: 't1' } } }]);
  const result = { content: [{ type: 'text', text: 'done' }] };
  state = { status: 'completed', result };
  const status = async () => (await sql.query('select status from invocations')).rows as unknown;
  await expect.poll(status).toEqual([{ status: 'succeeded' }]);
  expect(await row()).toEqual([{ state: 'done', attempt: 2, response: null }]);
  expect(server.counts['tools/call']).toBe(1);
  expect(server.counts['tasks/cancel']).toBeUndefined();
});
