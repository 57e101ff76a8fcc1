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

/** Time in which a connection may have one message more. */
const MESSAGE_MS = 10;

/** Ways to speak with a server. */
export type TransportKind = 'streamable-http' | 'sse' | 'stdio';

/** A transport, and why it ended where its server sent too much. */
export interface BoundedTransport {
  transport: Transport;
  failure?: AgentError;
}

/** Creates a transport whose requests carry the step's trace context, and which ends when its server sends too much. */
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
  // Its types miss `| undefined`, which `exactOptionalPropertyTypes` asks for.
  const transport = sdk as Transport;
  const bounded: BoundedTransport = { transport };
  // The SDK answers each request with a POST of its own, all at once, and 90,000 pings are more than a process has
  // memory for (1.32.2). Its own handler runs behind this one (`Protocol.connect`), and not where it throws.
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

/** An invocation is short: a stream that breaks is not taken up again, so that no other member is read. */
const NO_RECONNECT = { maxRetries: 0 } as StreamableHTTPReconnectionOptions;

/**
 * The same `fetch`, but requests carry the step's trace context, and an answer fails as soon as it has too much to be
 * parsed. It is counted as the SDK reads it: what a GET brings as a stream whatever its media type, and a refusal not
 * at all.
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
 * Lets a request end with an error where the stream ends that answers it: the SDK only notes that, and the request
 * would wait for its time limit. To a request that was answered the error is nothing.
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
