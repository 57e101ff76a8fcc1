import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { toClaimedRequest } from '../../src/invocations/stored-request.ts';
import { hostScript } from '../support/agents.ts';
import { startApp } from '../support/app.ts';

/** Work that goes on, in one process: it loses an invocation as if it had died, and takes it up as another would. */

const tool = (name: string, effect: 'none' | 'once', run: () => Promise<unknown>): Tool => ({
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
  const app = await startApp({ SWEEP_INTERVAL_MS: '50' }, { agents });
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
  expect((await lost).status).toBe(409);
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

test.each([
  { url: 'https://tools.example/mcp', headers: { authorization: 'Bearer geheim' } },
  { url: 'https://tools.example/mcp?key=geheim' },
  { url: 'https://user:geheim@tools.example/mcp' },
])('credentials of MCP servers are not kept: $url', (server) => {
  const kept = toClaimedRequest({
    key: { appName: 'harness_agent', userId: 'u', sessionId: 's' },
    invocationId: randomUUID(),
    content: undefined,
    overrides: { mcpServers: [server as never] },
    createSession: false,
    streaming: false,
  });
  expect(JSON.stringify(kept)).not.toContain('geheim');
  expect(kept['endsBecause']).toBe('its MCP servers have credentials, which are not stored');
});
