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
import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';

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

/**
 * Makes the reading of servers' messages lenient. The MCP SDK rejects a whole message for a single member that its
 * schemas do not know (`"_meta": null`, one tool without a schema, one block of a new type), and rounds integers of
 * more than 53 bits. Therefore the text of each message is rewritten before the SDK parses it: nulls are removed, and
 * members that the runtime reads itself are put as one string into `_meta`, from which {@link unpack} restores them.
 */

/** Member of `_meta` that holds the moved members as one string of JSON. */
const PACKED = 'agent-runtime/packed';
/** Members with lists that the runtime reads itself. The MCP SDK gets empty lists, because it requires some of them. */
const LISTS = ['content', 'tools', 'contents', 'messages', 'prompts', 'resources', 'resourceTemplates'];
const MOVED = [...LISTS, 'structuredContent', 'isError', 'result'];
/** Members whose values are arbitrary JSON, in which null has a meaning and is not removed. */
const OPAQUE = new Set(['structuredContent', 'inputSchema', 'outputSchema', 'requestedSchema', 'data', 'default']);

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Rewrites the text of a server's message, or list of messages, for the MCP SDK. Invalid JSON is not changed. */
function cleanMessage(text: string): string {
  let message: unknown;
  try {
    message = parseExactJson(text);
  } catch {
    return text;
  }
  return JSON.stringify(Array.isArray(message) ? message.map(cleanOne) : cleanOne(message));
}

function cleanOne(message: unknown): unknown {
  if (!isObject(message)) return message;
  // `id` may be null in an error message, so it is kept although other nulls are removed.
  const { id, ...rest } = message;
  const cleaned = { ...(id !== undefined && { id }), ...(withoutNulls(rest) as JsonObject) };
  const { result } = cleaned as { result?: unknown };
  return isObject(result) ? { ...cleaned, result: pack(result) } : cleaned;
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((each) => each !== null).map(withoutNulls);
  if (!isObject(value) || isExactInteger(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== null)
      .map(([name, member]) => [name, OPAQUE.has(name) ? member : withoutNulls(member)]),
  );
}

function pack(result: JsonObject): JsonObject {
  // The type `task` is hidden from the MCP SDK (2.4.0), which rejects a result that is a task.
  const isTask = result['resultType'] === 'task';
  const names = Object.keys(result).filter((name) => (isTask ? name !== '_meta' : MOVED.includes(name)));
  if (names.length === 0) return result;
  const moved = Object.fromEntries(names.map((name) => [name, result[name]]));
  const rest = Object.fromEntries(Object.entries(result).filter(([name]) => !names.includes(name)));
  const empty = Object.fromEntries(names.flatMap((name) => (LISTS.includes(name) ? [[name, []]] : [])));
  const meta = { ...(rest['_meta'] as JsonObject | undefined), [PACKED]: JSON.stringify(moved) };
  return { ...rest, ...empty, ...(isTask && { resultType: 'complete', content: [] }), _meta: meta };
}

export function unpack(result: JsonObject): JsonObject {
  const { _meta: meta, ...rest } = result;
  const { [PACKED]: text, ...own } = (meta ?? {}) as JsonObject;
  if (typeof text !== 'string') return result;
  return { ...rest, ...(Object.keys(own).length > 0 && { _meta: own }), ...(parseExactJson(text) as JsonObject) };
}

/** Schema for the SDK's `client.request` that returns a result as the server sent it. */
export const received = <Schema extends z.ZodType>(schema: Schema) =>
  z
    .looseObject({})
    .transform(unpack)
    .pipe(schema as z.ZodType<z.output<Schema>, JsonObject>);

const LINE_FEED = 0x0a;

/**
 * Rewrites the output lines of a program before the MCP SDK parses them. The SDK's transport has no hook for that, so
 * whole, rewritten lines are put into its private buffer (2.4.0; a test with a program fails if a new version changes
 * that).
 */
function cleanLines(transport: StdioClientTransport, maxBytes: number): void {
  const { _readBuffer: buffer } = transport as unknown as { _readBuffer: { append(chunk: Buffer): void } };
  const append = buffer.append.bind(buffer);
  let open: Buffer[] = [];
  let bytes = 0;
  buffer.append = (chunk) => {
    open.push(chunk);
    bytes += chunk.length;
    const end = chunk.lastIndexOf(LINE_FEED);
    // A line that is too long is passed on unchanged; the MCP SDK then rejects it.
    if (end < 0 && bytes <= maxBytes) return;
    const all = Buffer.concat(open);
    const cut = end < 0 ? all.length : all.lastIndexOf(LINE_FEED) + 1;
    open = cut < all.length ? [all.subarray(cut)] : [];
    bytes = all.length - cut;
    append(end < 0 ? all : Buffer.from(all.subarray(0, cut).toString().split('\n').map(cleanMessage).join('\n')));
  };
}

/** Returns the HTTP response with its body rewritten for the MCP SDK: one JSON message, or server-sent events. */
function cleanResponse(response: Response, isStream: boolean): Response {
  if (!response.body) return response;
  const text: AsyncIterable<string> = response.body.pipeThrough(new TextDecoderStream());
  return withBody(response, isStream ? mapEvents(text, (data) => [cleanMessage(data)]) : cleanWhole(text));
}

async function* cleanWhole(text: AsyncIterable<string>): AsyncGenerator<string> {
  const pieces: string[] = [];
  for await (const piece of text) pieces.push(piece);
  yield cleanMessage(pieces.join(''));
}
