import {
  type AuthProvider,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type StreamableHTTPReconnectionOptions,
  type Transport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { type AnswerBounds, boundedResponse, isEventStream } from '../../platform/net/bounded-response.ts';
import { currentContext } from '../../platform/context.ts';
import { ownTurn } from '../../platform/work/loop-turns.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { McpServer } from '../definition/agent.ts';
import { STREAM_ENDED } from './mcp-error.ts';
import { cleanLines, cleanResponse } from './mcp-wire.ts';

const { mcpMessage, mcpConnection, mcpRequests } = INPUT_LIMITS;

/** Minimum average time between two messages of a server, in milliseconds; faster servers are disconnected. */
const MESSAGE_MS = 10;

export type TransportKind = 'streamable-http' | 'sse' | 'stdio';

/** A transport. `failure` is the error of the limit that its server exceeded and that closed it. */
export interface BoundedTransport {
  transport: Transport;
  failure?: AgentError;
}

/** Requests have the trace context of the current tool call. The transport closes if its server exceeds a limit. */
export function newTransport(
  { url = '', headers, command = '', args = [], env = {} }: McpServer,
  egress: Egress,
  kind: TransportKind,
  token: { toAuthProvider(fetch: Egress['fetch']): AuthProvider } | undefined,
): BoundedTransport {
  const counts = { message: 0, 'other line': 0, request: 0 };
  const start = performance.now();
  const fail = (excess: string) => {
    bounded.failure ??= new AgentError('mcp_failed', `It sent ${excess}.`);
    void bounded.transport.close();
    return bounded.failure;
  };
  const note = (what: 'message' | 'other line') => {
    counts[what] += 1;
    const grown = (performance.now() - start) / MESSAGE_MS;
    const { count: most } = mcpConnection;
    if (counts.message > most + grown) return `more than ${most} messages at once`;
    return counts['other line'] > 4 * (most + grown)
      ? `more than ${4 * most} lines at once that are no data`
      : undefined;
  };
  const turn = () => ownTurn(currentContext().caller ?? '');
  const fetch = withBounds(egress.fetch, { ...mcpMessage, elements: mcpMessage.count, note, turn }, fail);
  const authProvider = token?.toAuthProvider(fetch);
  const options = { fetch, requestInit: headers ? { headers } : {}, ...(authProvider && { authProvider }) };
  const sdk =
    kind === 'stdio'
      ? new StdioClientTransport({ command, args, env, maxBufferSize: mcpMessage.bytes })
      : kind === 'sse'
        ? new SSEClientTransport(new URL(url), options)
        : new StreamableHTTPClientTransport(new URL(url), { ...options, reconnectionOptions: NO_RECONNECT });
  if (sdk instanceof StreamableHTTPClientTransport) endWithStream(sdk);
  if (sdk instanceof StdioClientTransport) cleanLines(sdk, mcpMessage.bytes);
  // The MCP SDK's types lack `| undefined`, which the compiler option `exactOptionalPropertyTypes` requires.
  const transport = sdk as Transport;
  const bounded: BoundedTransport = { transport };
  // The SDK answers each request with a POST of its own, all at once, and 90,000 pings exhaust a process's memory
  // (1.32.2). Its own handler runs after this one (`Protocol.connect`), but not if this one throws.
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's transport is no EventTarget
  transport.onmessage = (message) => {
    const excess = kind === 'stdio' && note('message');
    if (excess) throw fail(excess);
    if (!('method' in message && 'id' in message)) return;
    counts.request += 1;
    if (counts.request > mcpRequests.count) throw fail(`more than ${mcpRequests.count} requests`);
  };
  return bounded;
}

/** A broken stream is not resumed, because an invocation is short. With 0 retries the SDK ignores the other options. */
const NO_RECONNECT = { maxRetries: 0 } as StreamableHTTPReconnectionOptions;

/**
 * Wraps `fetch`: requests have the trace context of the current tool call, and a response fails as soon as it exceeds
 * the size limit. Only what the MCP SDK reads is limited: the body of a GET always counts as a stream, and an error
 * response has no limit here.
 */
const withBounds =
  (fetch: Egress['fetch'], bounds: AnswerBounds, fail: (excess: string) => AgentError): Egress['fetch'] =>
  async (url, init) => {
    const headers = new Headers(init?.headers);
    const { traceparent } = currentContext();
    if (traceparent !== undefined) headers.set('traceparent', traceparent);
    const response = await fetch(url, { ...init, headers });
    const isStream = (init?.method ?? 'GET') === 'GET' || isEventStream(response);
    return response.ok ? cleanResponse(boundedResponse(response, isStream, bounds, fail), isStream) : response;
  };

/**
 * Fails a request when its response stream ends without a response to it. The MCP SDK ignores the end of the stream,
 * and the request would wait until its time limit. A request that has its response is not affected.
 */
function endWithStream(transport: StreamableHTTPClientTransport): void {
  const send = transport.send.bind(transport);
  transport.send = (message, options) =>
    send(message, {
      ...options,
      onRequestStreamEnd() {
        const error = { code: STREAM_ENDED, message: 'The stream ended.' };
        if ('id' in message) transport.onmessage?.({ jsonrpc: '2.0', id: message.id as number, error });
      },
    });
}
