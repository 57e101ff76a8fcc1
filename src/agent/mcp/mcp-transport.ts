import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { AgentError } from '../../core/errors.ts';
import { boundedResponse } from '../../platform/net/bounded-response.ts';
import { currentContext } from '../../platform/context.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { McpServer } from '../definition/agent.ts';

/** The SDK parses and copies each message whole. Bytes are egress's. */
const BOUNDS = { bytes: Number.POSITIVE_INFINITY, values: 100_000, levels: 500, messages: 10_000 };
/** Maximum number of requests that a server makes of us on one connection: it has no reason for others than pings. */
const MAX_REQUESTS = 100;

/** The SDK's transports over HTTP. */
export type HttpTransport = StreamableHTTPClientTransport | SSEClientTransport;

/** Creates a transport whose requests carry the step's trace context and whose answers are bounded. */
export function newTransport(
  { url, headers }: McpServer,
  egress: Egress,
  kind: 'streamable-http' | 'sse',
): HttpTransport {
  const fetch = withBounds(withTraceparent(egress.fetch));
  const options = { fetch, requestInit: headers ? { headers } : {} };
  return kind === 'sse'
    ? new SSEClientTransport(new URL(url), options)
    : new StreamableHTTPClientTransport(new URL(url), {
        ...options,
        fetch: withEndOfStream(fetch),
        reconnectionOptions: NO_RECONNECT,
      });
}

/** Requests of a step carry its trace context. */
const withTraceparent =
  (fetch: Egress['fetch']): Egress['fetch'] =>
  (url, init) => {
    const { traceparent } = currentContext();
    if (traceparent === undefined) return fetch(url, init);
    const headers = new Headers(init?.headers);
    headers.set('traceparent', traceparent);
    return fetch(url, { ...init, headers });
  };

/** An invocation is short: a stream that breaks is not taken up again. */
const NO_RECONNECT = {
  maxRetries: 0,
  initialReconnectionDelay: 0,
  maxReconnectionDelay: 0,
  reconnectionDelayGrowFactor: 1,
};

/** The SDK's transports miss `| undefined` in their types, which `exactOptionalPropertyTypes` asks for. */
export const asTransport = (transport: HttpTransport) => transport as Transport;

/** The same `fetch`, but an answer fails as soon as it has too much to be parsed. */
const withBounds =
  (fetch: Egress['fetch']): Egress['fetch'] =>
  async (url, init) =>
    boundedResponse(await fetch(url, init), BOUNDS, (excess) => new AgentError('mcp_failed', `It sent ${excess}.`));

/**
 * Ends a connection whose server makes too many requests: the SDK answers each with a POST of its own, all at once, and
 * 90,000 pings in one answer are more than a process has memory for (1.32.2). Call it before the client connects.
 */
export function limitRequests(transport: Transport): void {
  let requests = 0;
  // The client's own handler runs behind this one (`Protocol.connect`); what is thrown here keeps it from running.
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's transport is no EventTarget
  transport.onmessage = (message) => {
    if (!('method' in message && 'id' in message)) return;
    requests += 1;
    if (requests <= MAX_REQUESTS) return;
    void transport.close();
    throw new AgentError('mcp_failed', `It made more than ${MAX_REQUESTS} requests.`);
  };
}

/** As the code of an error that no server sent: the SDK's own codes are below -32000 and HTTP's above 0. */
const STREAM_ENDED = -1;

/**
 * The same `fetch`, but a stream that answers a JSON-RPC request ends with an error for that request. The SDK's
 * transport only notes a stream that breaks or ends too early (1.32.2, `_handleSseStream`), and the request would wait
 * for its time limit; to a request that was answered the error is nothing.
 */
const withEndOfStream =
  (fetch: Egress['fetch']): Egress['fetch'] =>
  async (url, init) => {
    const response = await fetch(url, init);
    const id = requestIdIn(init?.body);
    const isStream = response.headers.get('content-type')?.includes('text/event-stream');
    if (id === undefined || !isStream || !response.body) return response;
    const { status, statusText, headers } = response;
    return new Response(ReadableStream.from(untilEnd(response.body, id)), { status, statusText, headers });
  };

async function* untilEnd(body: AsyncIterable<Uint8Array>, id: unknown): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* body;
  } catch {
    // The error below says so.
  }
  const error = { jsonrpc: '2.0', id, error: { code: STREAM_ENDED, message: 'The stream ended.' } };
  yield new TextEncoder().encode(`\n\ndata: ${JSON.stringify(error)}\n\n`);
}

/** The id in the body of a JSON-RPC request; `undefined` for anything else. */
function requestIdIn(body: RequestInit['body']): unknown {
  if (typeof body !== 'string') return undefined;
  const { id } = JSON.parse(body) as { id?: unknown };
  return id;
}
