import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import type { McpServer } from '../../../../src/agent/definition/agent.ts';
import { toAgentOverrides } from '../../../../src/agent/definition/overrides.ts';
import { McpConnections } from '../../../../src/agent/mcp/mcp-connections.ts';
import { connectMcpServers, type McpSettings } from '../../../../src/agent/mcp/mcp-tools.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import { agent, runInput, runToEnd } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';
import { MINUTE } from '../../../support/patience.ts';

/** MCP servers that are programs of the operator's, of both protocols. */

const PROGRAM = fileURLToPath(new URL('../../../support/stdio-server.ts', import.meta.url));
const patient = { connectMs: MINUTE, listMs: MINUTE, callMs: MINUTE };
const settings: McpSettings = { egress: { allowLoopback: false }, timeouts: patient };
const signal = new AbortController().signal;
const program = (protocol: string, env = {}): McpServer => ({
  name: 'program',
  command: process.execPath,
  args: [PROGRAM, protocol],
  env,
});

async function call(tools: Awaited<ReturnType<typeof connectMcpServers>>['tools'], name: string) {
  const model = scriptedModel([[callPart(name, {}, '1')], [{ text: 'ok' }]]);
  const { events } = await runToEnd(runInput({ agent: agent({ model, tools }) }));
  return getFunctionResponses(events[1]?.content)[0]?.response;
}

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe.each(['2025', '2026'])('a program that speaks the protocol of %s', (protocol) => {
  test('is started with an environment of its own, and ends with the connection', async () => {
    process.env['SECRET_OF_THE_SERVICE'] = 'secret';
    const { tools, close } = await connectMcpServers([program(protocol, { GIVEN: '1' })], settings, [], signal);
    delete process.env['SECRET_OF_THE_SERVICE'];
    const { result } = (await call(tools, 'tell')) as { result: string };
    const { names, pid } = JSON.parse(result) as { names: string[]; pid: number };
    expect(names).toContain('GIVEN');
    expect(names).not.toContain('SECRET_OF_THE_SERVICE');
    expect(isAlive(pid)).toBe(true);
    await close();
    await expect.poll(() => isAlive(pid)).toBe(false);
  });

  test.each(['end', 'flood', 'talk'])('that does `%s` fails the call, and nothing more', async (name) => {
    const { tools, close } = await connectMcpServers([program(protocol)], settings, [], signal);
    const error = expect.stringMatching(/MCP server `program` failed in/) as unknown;
    expect(await call(tools, name)).toEqual({ error });
    await close();
  });
});

test('a program that is not there is an error that names the server, and counts as a connection', async () => {
  const connections = new McpConnections(1);
  const absent = { name: 'absent', command: '/nonexistent/program' };
  const attempt = connectMcpServers([absent], { ...settings, connections }, [], signal, 'u');
  await expect(attempt).rejects.toThrow('MCP server `absent` could not be reached.');
  const give = connections.take('u', absent);
  expect(() => connections.take('u', absent)).toThrow('has 1 connections of this user');
  give();
});

test('a request names no program', () => {
  const [server] = toAgentOverrides({ mcp_servers: [{ url: 'https://x.test', command: 'rm' }] }).mcpServers ?? [];
  expect(server).toMatchObject({ name: 'x.test', url: 'https://x.test' });
  expect(server).not.toHaveProperty('command');
});
