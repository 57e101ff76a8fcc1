import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { expect, onTestFinished, test } from 'vitest';
import { hostScript } from '../support/agents.ts';
import { startOn, testApp } from '../support/app.ts';

/** `agent-runtime mcp`, for clients that speak over standard input and output only. */

const APP = 'harness_agent';
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const KEY = 'a-runtime-key-of-32-characters-x';
const agents = hostScript([[{ text: 'Hello' }]]);
const app = testApp({ DOORS: 'mcp', RUNTIME_API_KEYS: KEY }, { agents });
const args = (at = app.url) => [MAIN, '--url', at, '--user', 'ann', 'mcp'];
const env = { PATH: process.env['PATH'] ?? '', AGENT_RUNTIME_KEY: KEY };
const call = { name: APP, arguments: { prompt: 'hello' } };

test.each(['legacy', 'modern'] as const)('%s: a client of standard input calls an agent', async (era) => {
  const mode = era === 'modern' ? { pin: '2026-07-28' } : ('legacy' as const);
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  await client.connect(new StdioClientTransport({ command: process.execPath, args: args(), env }));
  expect(await client.callTool(call)).toMatchObject({
    content: [{ text: 'Hello' }],
    structuredContent: { status: 'succeeded' },
  });
  await client.close();
});

test('a client of the package before does so of one application', async () => {
  const client = new OldClient({ name: 'old', version: '1' });
  const own = [MAIN, '--url', app.url, '--user', 'ann', '--app', APP, 'mcp'];
  await client.connect(new OldTransport({ command: process.execPath, args: own, env }));
  expect(await client.callTool(call)).toMatchObject({ content: [{ text: 'Hello' }] });
  await client.close();
});

test('what a service cannot answer is an error of its message, and the bridge goes on', async () => {
  const service = await startOn(app.databaseUrl, { DOORS: 'mcp', RUNTIME_API_KEYS: KEY }, { agents });
  const bridge = spawn(process.execPath, args(service.url), { env, stdio: ['pipe', 'pipe', 'inherit'] });
  onTestFinished(() => void bridge.kill());
  const lines = createInterface({ input: bridge.stdout })[Symbol.asyncIterator]();
  const say = async (text: string) => {
    bridge.stdin.write(`${text}\n`);
    return JSON.parse(String((await lines.next()).value)) as { id: unknown; error?: { code: number; message: string } };
  };
  const ping = (id: number) => JSON.stringify({ jsonrpc: '2.0', id, method: 'ping' });
  expect(await say(ping(1))).toMatchObject({ id: 1, result: {} });
  expect(await say('{')).toMatchObject({ id: null, error: { code: -32700 } });
  expect(await say('[]')).toMatchObject({ id: null, error: { code: -32700 } });
  expect(await say(JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'none' }))).toMatchObject({
    id: 2,
    error: { code: -32601 },
  });
  expect(await say(JSON.stringify({ id: 3 }))).toMatchObject({ id: 3, error: { code: -32600 } });
  const wanted = { ...call, _meta: { progressToken: 'p' } };
  const first = await say(JSON.stringify({ jsonrpc: '2.0', id: 4, method: 'tools/call', params: wanted }));
  expect(first).toMatchObject({ method: 'notifications/progress', params: { progressToken: 'p', progress: 1 } });
  const rest = async (): Promise<object> => {
    const line = JSON.parse(String((await lines.next()).value)) as { id?: number };
    return line.id === undefined ? rest() : line;
  };
  expect(await rest()).toMatchObject({ id: 4, result: { content: [{ text: 'Hello' }] } });
  await service.close();
  const lost = await say(ping(5));
  expect(lost).toMatchObject({
    id: 5,
    error: { code: -32603, message: expect.stringMatching(/cannot be reached/) as string },
  });
  bridge.stdin.end(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }));
  expect(await once(bridge, 'exit')).toEqual([0, null]);
});

test('a wrong credential is said to the client', async () => {
  const wrong = { ...env, AGENT_RUNTIME_KEY: 'another-key-of-32-characters-xxx' };
  const client = new OldClient({ name: 'old', version: '1' });
  const transport = new OldTransport({ command: process.execPath, args: args(), env: wrong });
  await expect(client.connect(transport)).rejects.toThrow(/does not accept the credential/);
});

test('the example asks an agent', async () => {
  const open = await startOn(app.databaseUrl, { DOORS: 'mcp' }, { agents });
  onTestFinished(() => open.close());
  const example = fileURLToPath(new URL('../../examples/mcp/ask.ts', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [example, 'hello', `${open.url}/mcp`]);
  expect(stdout).toContain("text: 'Hello'");
});
