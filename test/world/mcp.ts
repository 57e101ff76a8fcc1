import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { getFunctionResponses } from '../../src/core/content.ts';
import { parseExactJson } from '../../src/core/exact-json.ts';
import { connectMcpServers } from '../../src/agent/mcp/mcp-tools.ts';
import type { McpServer } from '../../src/agent/definition/agent.ts';
import { agent, runInput, runToEnd } from '../support/agent-fixtures.ts';
import { readBody } from '../support/edge.ts';
import { scriptedModel } from '../support/scripted-model.ts';
import type { McpCase, Played } from './case.ts';
import { MINUTE } from '../support/patience.ts';

/** The three ways in which servers answer. */
const WAYS = ['json', 'events', 'program'] as const;
const timeouts = { listMs: MINUTE, callMs: MINUTE };

/** Lists and calls the tool over each way, as an agent does. */
export async function playMcp(played: McpCase): Promise<Played> {
  // The statuses of HTTP are not known to programs.
  const ways = WAYS.filter((way) => way !== 'program' || !played.answers?.some((answer) => typeof answer !== 'string'));
  const { offered, response = null, sent = null, warned = [] } = played.holds;
  const parts = warned.map((part) => expect.stringContaining(part) as unknown);
  const found: unknown[] = [];
  for (const way of ways) {
    const server = way === 'program' ? startProgram(played) : await startServer(played, way);
    try {
      found.push({ way, ...(await useTools(server.server, played)), sent: await server.sent() });
    } finally {
      await server.close();
    }
  }
  return { found, holds: ways.map((way) => ({ way, offered, response, warned: parts, sent })) };
}

async function useTools(server: McpServer, { call }: McpCase) {
  const warned: string[] = [];
  const settings = { egress: { allowLoopback: true }, timeouts, warn: (text: string) => void warned.push(text) };
  const signal = new AbortController().signal;
  const { tools, close } = await connectMcpServers([{ ...server, onFailure: 'fail' }], settings, [], signal);
  const args = parseExactJson(call?.args ?? '{}') as Record<string, unknown>;
  const functionCall = { id: 'call-1', name: call?.name ?? '', args };
  const model = scriptedModel([[{ functionCall }], [{ text: 'ok' }]]);
  const { events } = call ? await runToEnd(runInput({ agent: agent({ model, tools }) })) : { events: [] };
  await close();
  const [response] = events.flatMap(({ content }) => getFunctionResponses(content));
  return {
    offered: tools.map(({ name }) => name),
    response: response ? JSON.stringify(response.response) : null,
    warned,
  };
}

const initialized = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: {} },
  serverInfo: { name: 'odd', version: '1' },
};

/** A server that writes texts of results; nothing of the SDK tidies them up. */
async function startServer({ lists, answers = [], initializeMs = 0 }: McpCase, way: 'json' | 'events') {
  let sent: string | null = null;
  let calls = 0;
  let page = 0;
  let sessions = 0;
  const respond = (response: ServerResponse, id: unknown, result: string) => {
    const text = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`;
    const headers = { 'mcp-session-id': `session-${sessions}` };
    if (way === 'json') response.writeHead(200, { ...headers, 'content-type': 'application/json' }).end(text);
    else
      response
        .writeHead(200, { ...headers, 'content-type': 'text/event-stream' })
        .end(`: hello\r\nevent: message\r\ndata: ${text}\r\n\r\n`);
  };
  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const body = (await readBody(request)).toString();
    const isPost = request.method === 'POST';
    const { id, method } = isPost ? (JSON.parse(body) as { id?: unknown; method: string }) : {};
    if (!isPost) response.writeHead(request.method === 'DELETE' ? 200 : 405).end();
    else if (id === undefined) response.writeHead(202).end();
    else if (method === 'initialize') {
      sessions += 1;
      setTimeout(() => respond(response, id, JSON.stringify(initialized)), initializeMs);
    } else if (method === 'tools/list') {
      respond(response, id, lists[page] ?? '{"tools":[]}');
      page += 1;
    } else if (method === 'tools/call') {
      sent = JSON.stringify((parseExactJson(body) as { params: { arguments: unknown } }).params.arguments);
      const answer = answers[Math.min(calls, answers.length - 1)] ?? '{"content":[]}';
      calls += 1;
      if (typeof answer === 'string') respond(response, id, answer);
      else response.writeHead(answer.status).end();
    } else {
      const error = { code: -32601, message: 'Method not found' };
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, error }));
    }
  };
  const server = createServer((request, response) => void handle(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
  return {
    server: { name: 'odd', url } satisfies McpServer,
    sent: async () => sent,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The same as a program over its standard streams, which writes what it was sent into a file. */
function startProgram({ lists, answers = [] }: McpCase) {
  const file = join(tmpdir(), `world-${randomUUID()}.txt`);
  const program = fileURLToPath(new URL('program.ts', import.meta.url));
  const env = { WORLD_CASE: JSON.stringify({ lists, answers, initialized }), WORLD_SENT: file };
  const server: McpServer = { name: 'odd', command: process.execPath, args: [program], env };
  return {
    server,
    sent: () => readFile(file, 'utf8').catch(() => null),
    close: () => rm(file, { force: true }),
  };
}
