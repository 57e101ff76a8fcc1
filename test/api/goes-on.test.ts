import { randomUUID } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import { createSecrets } from '../../src/platform/secrets.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { toClaimedRequest } from '../../src/invocations/request.ts';
import { hostScript } from '../support/agents.ts';
import { startApp } from '../support/app.ts';

/** Work that goes on, in one process: it loses an invocation as if it had died, and takes it up as another would. */

const tool = (name: string, effect: 'none' | 'once', run: Tool['run']): Tool => ({
  name,
  description: 'Counts.',
  effect,
  needsConfirmation: false,
  parameters: { type: 'object', properties: {} },
  run,
});

test('what was stored is taken, a tool that acts once is not repeated, and no budget counts it again', async () => {
  const ran = { lookup: 0, charge: 0 };
  const [charging, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const tools = [
    tool('lookup', 'none', async () => ({ times: ++ran.lookup })),
    tool('charge', 'once', async () => {
      ran.charge += 1;
      charging.resolve();
      await released.promise;
      return { charged: ran.charge };
    }),
  ];
  const calls = ['lookup', 'charge'].map((name) => ({ functionCall: { id: name, name, args: {} } }));
  const agents = hostScript([calls, [{ text: 'done' }]], tools);
  const app = await startApp({}, { agents, sweepIntervalMs: 50 });
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  const path = '/apps/harness_agent/users/u/sessions';
  await app.post(path, { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: 'Buy.' }] };
  const lost = app.post('/run', { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage });
  await charging.promise;
  await sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);
  const seen = async () => (await sql.query('select status, attempt, llm_calls, request from invocations')).rows;
  await expect.poll(seen).toEqual([{ status: 'succeeded', attempt: 2, llm_calls: 2, request: null }]);
  released.resolve();
  expect((await lost).status).toBe(503);
  const { events } = (await app.get(`${path}/s`)).body as { events: { content: { parts: object[] } }[] };
  const error = expect.stringMatching(/^It is not known whether this call took effect/) as unknown;
  expect(events.map(({ content }) => content.parts)).toEqual([
    [{ text: 'Buy.' }],
    calls,
    [
      { functionResponse: { id: 'lookup', name: 'lookup', response: { times: 2 } } },
      { functionResponse: { id: 'charge', name: 'charge', response: { error } } },
    ],
    [{ text: 'done' }],
  ]);
  expect(ran).toEqual({ lookup: 2, charge: 1 });
  const { rows } = await sql.query('select sum(invocations)::int as begun from budget_uses');
  expect(rows).toEqual([{ begun: 1 }]);
  await sql.end();
  await app.close();
});

/** A run that another process takes up, as this one sees it: its second tool waits when it runs the first time. */
async function loseRun(
  environment: Record<string, string>,
  { more = {}, headers = {}, before = async () => {}, sinceMs = 2_000, deadMs = 1_000 } = {},
) {
  const [reading, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const note: Tool['run'] = async (_, { actions }) => {
    actions.stateDelta = { 'temp:x': 'kept', y: 1 };
    return {};
  };
  let times = 0;
  const read: Tool['run'] = async (_, { state }) => {
    if (++times > 1) return { x: state['temp:x'] ?? null };
    reading.resolve();
    await released.promise;
    return {};
  };
  const tools = [tool('note', 'once', note), tool('read', 'none', read)];
  const calls = ['note', 'read'].map((name) => [{ functionCall: { id: name, name, args: {} } }]);
  const agents = hostScript([...calls, [{ text: 'done' }]], tools);
  const host = agents.get('harness_agent') as HostedAgent;
  const servers: unknown[] = [];
  const prepare: HostedAgent['prepare'] = ({ mcpServers, ...overrides }, ...rest) => {
    servers.push(mcpServers);
    return host.prepare(overrides, ...rest);
  };
  const hosted = new Map([['harness_agent', { ...host, prepare }]]);
  const app = await startApp(environment, { agents: hosted, sweepIntervalMs: 50 });
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  const path = '/apps/harness_agent/users/u/sessions';
  await app.post(path, { sessionId: 's' }, headers);
  const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
  await app.post(`${path}/s/invocations`, { newMessage, ...more }, headers);
  await reading.promise;
  const kept = (await sql.query<{ text: string }>('select i::text as text from invocations i')).rows[0]?.text;
  await before();
  await sql.query(
    `update invocations set lease_expire_time = now() - $2 * interval '1 ms',
       request = jsonb_set(request, '{began,at}', to_jsonb(extract(epoch from now()) - $1 / 1000.0))`,
    [sinceMs, deadMs],
  );
  const ended = async () => (await sql.query('select status, error_message, request from invocations')).rows[0];
  await expect.poll(async () => (await ended())?.request).toBeNull();
  released.resolve();
  const { text } = await app.get(`${path}/s`, headers);
  const row: unknown = await ended();
  await sql.end();
  await app.close();
  return { kept, row, text, servers };
}

test('`temp:` values that tools have set are there, and no client sees them', async () => {
  const { row, text } = await loseRun({});
  expect(row).toMatchObject({ status: 'succeeded' });
  expect(text).toContain('"response": {"x": "kept"}');
  expect(text).not.toContain('temp:');
});

test.each([
  { sinceMs: 3_600_000, deadMs: 3_540_000, status: 'succeeded' },
  { sinceMs: 3_600_000, deadMs: 1_000, status: 'failed' },
])('begun $sinceMs ms ago, dead for $deadMs: its time is that of its processes alone', async (times) => {
  const { row } = await loseRun({ INVOCATION_TIMEOUT_MS: '600000' }, times);
  expect(row).toMatchObject({ status: times.status });
});

test('credentials of MCP servers are kept encrypted where there is a key to do it with', async () => {
  const server = { name: 'tools', url: 'https://tools.example/mcp', headers: { authorization: 'Bearer geheim' } };
  const more = { harness: { mcp_servers: [server] } };
  const { kept, row, servers } = await loseRun({ RUNTIME_SECRET_KEY: 'e1f0a9c2b3d4e5f60718' }, { more });
  expect(kept).not.toMatch(/geheim|authorization|tools\.example/);
  expect(row).toMatchObject({ status: 'succeeded' });
  expect(servers).toEqual([[expect.objectContaining(server)], [expect.objectContaining(server)]]);
});

test('where the key that asked was revoked meanwhile, it ends with that reason', async () => {
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-keys-')), 'keys');
  const [asks, stays] = [createKey({ scopes: ['invoke', 'read', 'write'] }), createKey({ scopes: ['read'] })];
  writeFileSync(file, `${asks.entry}\n${stays.entry}\n`);
  const headers = { authorization: `Bearer ${asks.key}` };
  const before = async () => writeFileSync(file, `${stays.entry}\n`);
  const { row } = await loseRun({ RUNTIME_API_KEYS_FILE: file }, { headers, before });
  expect(row).toMatchObject({
    status: 'interrupted',
    error_message: expect.stringContaining('and the key that requested it is not valid any more.') as string,
  });
});

test.each([
  { url: 'https://tools.example/mcp', headers: { authorization: 'Bearer geheim' } },
  { url: 'https://tools.example/mcp?key=geheim' },
  { url: 'https://user:geheim@tools.example/mcp' },
])('credentials of MCP servers are not kept: $url', (server) => {
  const request = {
    key: { appName: 'harness_agent', userId: 'u', sessionId: 's' },
    invocationId: randomUUID(),
    content: undefined,
    overrides: { mcpServers: [server as never] },
    createSession: false,
    streaming: false,
  };
  const kept = toClaimedRequest(request, createSecrets([]));
  expect(JSON.stringify(kept)).not.toContain('geheim');
  expect(kept['endsBecause']).toBe('its MCP servers have credentials, which are not stored');
});
