import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp, type TestApp } from '../support/app.ts';

/** Whom a key acts for that names no user: the same at every door. */

const folder = mkdtempSync(join(tmpdir(), 'door-users-'));
const all = createKey({ id: 'all', scopes: ['invoke', 'read'] });
const bound = createKey({ id: 'bound', scopes: ['invoke', 'read'], users: ['ann'] });
let app: TestApp;
beforeAll(async () => {
  writeFileSync(join(folder, 'keys'), `${all.entry}\n${bound.entry}\n`);
  const DOORS = 'a2a,ag-ui,ai-sdk,durable-streams,mcp,openai';
  app = await startApp({ DOORS, RUNTIME_API_KEYS_FILE: join(folder, 'keys'), DEV_UI: 'false' });
});
afterAll(async () => {
  await app.close();
  rmSync(folder, { recursive: true });
});

const APP = 'harness_agent';
const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'Hi' }] };
const call = { name: APP, arguments: { prompt: 'Hi' } };
const DOORS: [door: string, path: string, body: object, headers?: Record<string, string>][] = [
  ['AG-UI', `/ag-ui/${APP}`, { threadId: 'ag', runId: 'r', messages: [{ id: 'm', role: 'user', content: 'Hi' }] }],
  [
    'AI SDK',
    `/ai-sdk/${APP}/chat`,
    { id: 'ai', messages: [{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }] },
  ],
  ['A2A', `/a2a/${APP}/message:send`, { message }],
  ['OpenAI', '/v1/responses', { model: APP, input: 'Hi' }],
  [
    'MCP',
    '/mcp',
    { jsonrpc: '2.0', id: 1, method: 'tools/call', params: call },
    { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' },
  ],
];

const listOf = async (user: string) =>
  (await app.get(`/apps/${APP}/users/${user}/sessions`, { authorization: `Bearer ${all.key}` })).body as unknown[];

test.each(DOORS)('%s: a key for all users that names none acts for `user`', async (_door, path, body, headers) => {
  const before = (await listOf('user')).length;
  const { status } = await app.post(path, body, { ...headers, authorization: `Bearer ${all.key}` });
  expect(status).toBe(200);
  expect(await listOf('user')).toHaveLength(before + 1);
  const named = await app.post(`${path}?user_id=eve`, body, { ...headers, authorization: `Bearer ${all.key}` });
  expect(named.status).toBe(200);
  expect(await listOf('user')).toHaveLength(before + 1);
});

test('Durable Streams: a key for all users that names none reads as `user`', async () => {
  const headers = { authorization: `Bearer ${all.key}` };
  const run = { threadId: 'read', runId: 'r', messages: [{ id: 'm', role: 'user', content: 'Hi' }] };
  await app.post(`/ag-ui/${APP}`, run, headers);
  expect((await app.get(`/durable-streams/${APP}/sessions/read?offset=-1`, headers)).status).toBe(200);
});

test.each(DOORS)('%s: a key that is bound to users has to name one', async (_door, path, body, headers) => {
  const refused = await app.post(path, body, { ...headers, authorization: `Bearer ${bound.key}` });
  expect(refused.status).toBeGreaterThanOrEqual(400);
  expect(refused.status).toBeLessThan(500);
  const answered = await app.post(`${path}?user_id=ann`, body, { ...headers, authorization: `Bearer ${bound.key}` });
  expect(answered.status).toBe(200);
});
