import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, Server as ModernServer } from '@modelcontextprotocol/server';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';
import { CallToolRequestSchema, ListToolsRequestSchema, type CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { readBody } from './edge.ts';

export interface FakeMcpTool {
  name: string;
  description?: string;
  inputSchema?: Record<string, unknown>;
  outputSchema?: Record<string, unknown>;
  annotations?: { readOnlyHint?: boolean; idempotentHint?: boolean };
  /** May give a result that only the server's wire knows, such as one that asks for input. */
  call?: (args: Record<string, unknown>, own: FakeCall) => object | Promise<object>;
}

/** What a tool of a server knows of its call, beside the arguments. */
interface FakeCall {
  /** Aborted when the client cancels. */
  signal: AbortSignal;
  progressToken: string | number | undefined;
  notify: (method: string, params: Record<string, unknown>) => Promise<void>;
  /** Asks the client, as servers of the older protocol do. */
  ask: (method: string, params: Record<string, unknown>) => Promise<Record<string, unknown>>;
  inputResponses?: Record<string, unknown> | undefined;
  requestState?: string | undefined;
}

export interface FakeMcp {
  url: string;
  /** Requests by HTTP method, and by JSON-RPC method where there is one. */
  counts: Record<string, number>;
  headers: IncomingMessage['headers'][];
  openSessions: () => number;
  openSockets: () => Promise<number>;
  /** Connections that there have been. */
  sockets: () => number;
  /** Breaks all connections and stops. */
  kill: () => void;
  close: () => Promise<void>;
}

export interface FakeMcpOptions {
  /** Tools per page [all]. */
  pageSize?: number;
  /** Answers instead of the server: true means it did. */
  intercept?: (request: IncomingMessage, response: ServerResponse, body: string) => boolean;
  sse?: boolean;
  /** True: without sessions, and without a stream of its own. */
  stateless?: boolean;
  /** Further capabilities of the server, and what answers their methods. */
  capabilities?: Record<string, object>;
  methods?: Record<string, (params: Record<string, unknown>, inputResponses?: Record<string, unknown>) => object>;
}

const anyResult = z.looseObject({});

function newServer(tools: FakeMcpTool[], { pageSize = 1_000, capabilities, methods = {} }: FakeMcpOptions): Server {
  const server = new Server(
    { name: 'fake', version: '1' },
    { capabilities: { tools: {}, logging: {}, ...capabilities } },
  );
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const start = Number(params?.cursor ?? 0);
    const page = tools.slice(start, start + pageSize).map(toDeclared);
    const next = start + pageSize;
    return { tools: page, ...(next < tools.length ? { nextCursor: `${next}` } : {}) };
  });
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const tool = tools.find(({ name }) => name === params.name);
    if (!tool) throw new Error('no such tool');
    const own: FakeCall = {
      signal: extra.signal,
      progressToken: extra._meta?.progressToken,
      notify: (method, sent) => extra.sendNotification({ method, params: sent }),
      ask: (method, sent) => extra.sendRequest({ method, params: sent }, anyResult),
    };
    return (await tool.call?.(params.arguments ?? {}, own)) ?? OK;
  });
  for (const [method, answer] of Object.entries(methods)) {
    const schema = z.looseObject({ method: z.literal(method), params: anyResult.optional() });
    server.setRequestHandler(schema as never, ({ params = {} }: { params?: object }) => answer({ ...params }));
  }
  return server;
}

const OK: CallToolResult = { content: [{ type: 'text', text: 'ok' }] };

const toDeclared = ({ call: _call, inputSchema, ...declared }: FakeMcpTool) => ({
  ...declared,
  inputSchema: { type: 'object' as const, ...inputSchema },
  ...(declared.outputSchema && { outputSchema: { type: 'object' as const, ...declared.outputSchema } }),
});

/** A real MCP server of the official SDK on loopback; one transport per session. */
export async function startMcpServer(tools: FakeMcpTool[], options: FakeMcpOptions = {}): Promise<FakeMcp> {
  const sessions = new Map<string, { handleRequest: StreamableHTTPServerTransport['handleRequest'] }>();
  const sse = new Map<string, SSEServerTransport>();
  const counts: Record<string, number> = {};
  const headers: IncomingMessage['headers'][] = [];
  const count = (what: string | undefined) => {
    if (what) counts[what] = (counts[what] ?? 0) + 1;
  };
  const create = async () => {
    const transport = new StreamableHTTPServerTransport({
      ...(!options.stateless && { sessionIdGenerator: () => randomUUID() }),
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await newServer(tools, options).connect(transport);
    return transport;
  };
  const openSse = async (response: ServerResponse) => {
    const transport = new SSEServerTransport('/messages', response);
    sse.set(transport.sessionId, transport);
    response.on('close', () => sse.delete(transport.sessionId));
    await newServer(tools, options).connect(transport);
  };
  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const body = (await readBody(request)).toString();
    const message = body === '' ? undefined : (JSON.parse(body) as { method?: string });
    count(request.method);
    count(message?.method);
    headers.push(request.headers);
    if (options.intercept?.(request, response, body)) return;
    if (options.sse) {
      const url = new URL(request.url ?? '', 'http://x');
      if (request.method === 'GET') return openSse(response);
      const transport = sse.get(url.searchParams.get('sessionId') ?? '');
      if (transport) return transport.handlePostMessage(request, response, message);
      response.writeHead(405).end();
      return;
    }
    const id = request.headers['mcp-session-id'];
    if (options.stateless && request.method === 'GET') return void response.writeHead(405).end();
    const transport = typeof id === 'string' ? sessions.get(id) : await create();
    if (transport) await transport.handleRequest(request, response, message);
    else response.writeHead(404).end();
  };
  return { ...(await serve(handle)), counts, headers, openSessions: () => sessions.size + sse.size };
}

/** A server of the protocol of 2026-07-28 alone, of the official SDK. */
export async function startModernMcpServer(
  tools: FakeMcpTool[],
  { capabilities, methods = {}, intercept }: FakeMcpOptions = {},
): Promise<FakeMcp> {
  const create = () => {
    const server = new ModernServer(
      { name: 'modern', version: '1' },
      { capabilities: { tools: {}, logging: {}, ...capabilities } },
    );
    server.setRequestHandler('tools/list', () => ({ tools: tools.map(toDeclared) }));
    server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
      const tool = tools.find(({ name }) => name === params.name);
      const own: FakeCall = {
        signal: mcpReq.signal,
        progressToken: mcpReq._meta?.progressToken,
        notify: (method, sent) => mcpReq.notify({ method, params: sent }),
        ask: () => Promise.reject(new Error('not in this protocol')),
        inputResponses: mcpReq.inputResponses,
        requestState: mcpReq.requestState<string>(),
      };
      return ((await tool?.call?.(params.arguments ?? {}, own)) ?? OK) as CallToolResult;
    });
    for (const [method, answer] of Object.entries(methods))
      server.setRequestHandler(
        method,
        { params: anyResult },
        (params, { mcpReq }) => answer(params, mcpReq.inputResponses) as Record<string, unknown>,
      );
    return server;
  };
  const handler = toNodeHandler(createMcpHandler(create, { legacy: 'reject' }));
  const counts: Record<string, number> = {};
  const headers: IncomingMessage['headers'][] = [];
  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const body = (await readBody(request)).toString();
    const message = body === '' ? undefined : (JSON.parse(body) as { method?: string });
    for (const what of [request.method, message?.method]) if (what) counts[what] = (counts[what] ?? 0) + 1;
    headers.push(request.headers);
    if (intercept?.(request, response, body)) return;
    await handler(request as Parameters<typeof handler>[0], response, message);
  };
  return { ...(await serve(handle)), counts, headers, openSessions: () => 0 };
}

/** Serves on loopback; what fails is cut off. */
async function serve(handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>) {
  const http: HttpServer = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });
  // Long enough for a test on a busy machine; clients are told.
  http.keepAliveTimeout = 60_000;
  let sockets = 0;
  http.on('connection', () => (sockets += 1));
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  const kill = () => {
    http.close();
    http.closeAllConnections();
  };
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    sockets: () => sockets,
    openSockets: () =>
      new Promise<number>((resolve, reject) =>
        http.getConnections((error, open) => (error ? reject(error) : resolve(open))),
      ),
    kill,
    close: async () => kill(),
  };
}
