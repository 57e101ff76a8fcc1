import type { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';

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
export function cleanLines(transport: StdioClientTransport, maxBytes: number): void {
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
export function cleanResponse(response: Response, isStream: boolean): Response {
  if (!response.body) return response;
  const text: AsyncIterable<string> = response.body.pipeThrough(new TextDecoderStream());
  return withBody(response, isStream ? mapEvents(text, (data) => [cleanMessage(data)]) : cleanWhole(text));
}

async function* cleanWhole(text: AsyncIterable<string>): AsyncGenerator<string> {
  const pieces: string[] = [];
  for await (const piece of text) pieces.push(piece);
  yield cleanMessage(pieces.join(''));
}
