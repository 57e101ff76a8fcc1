import type { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';

/**
 * The messages of servers, read leniently. The SDK refuses a whole message for one member that its schemas do not know
 * (`"_meta": null`, one tool without a schema, one block of a new type), and rounds integers of more than 53 bits. So
 * the text of each message is cleaned before the SDK reads it: a null is an absent member, and whatever the runtime
 * reads itself passes the SDK as one text in `_meta`, from which {@link unpack} restores it.
 */

/** The member of `_meta` that carries the text. */
const PACKED = 'agent-runtime/packed';
/** Members of results that the runtime reads itself; of the lists the SDK sees an empty one, as it requires some. */
const LISTS = ['content', 'tools', 'contents', 'messages', 'prompts', 'resources', 'resourceTemplates'];
const MOVED = [...LISTS, 'structuredContent', 'isError', 'result'];
/** Members with values of the server's own, in which a null means something. */
const OPAQUE = new Set(['structuredContent', 'inputSchema', 'outputSchema', 'requestedSchema', 'data', 'default']);

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Returns the text of a message, or of a list of them, as the SDK takes it; a text that is no JSON is left as it is. */
function cleanMessage(text: string): string {
  let sent: unknown;
  try {
    sent = parseExactJson(text);
  } catch {
    return text;
  }
  return JSON.stringify(Array.isArray(sent) ? sent.map(cleanOne) : cleanOne(sent));
}

function cleanOne(message: unknown): unknown {
  if (!isObject(message)) return message;
  // The id of an error may be null.
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
  // The SDK refuses an answer that is a task (2.4.0).
  const isTask = result['resultType'] === 'task';
  const names = Object.keys(result).filter((name) => (isTask ? name !== '_meta' : MOVED.includes(name)));
  if (names.length === 0) return result;
  const moved = Object.fromEntries(names.map((name) => [name, result[name]]));
  const left = Object.fromEntries(Object.entries(result).filter(([name]) => !names.includes(name)));
  const empty = Object.fromEntries(names.flatMap((name) => (LISTS.includes(name) ? [[name, []]] : [])));
  const meta = { ...(left['_meta'] as JsonObject | undefined), [PACKED]: JSON.stringify(moved) };
  return { ...left, ...empty, ...(isTask && { resultType: 'complete', content: [] }), _meta: meta };
}

/** Restores a result that passed the SDK. */
export function unpack(result: JsonObject): JsonObject {
  const { _meta: meta, ...rest } = result;
  const { [PACKED]: text, ...own } = (meta ?? {}) as JsonObject;
  if (typeof text !== 'string') return result;
  return { ...rest, ...(Object.keys(own).length > 0 && { _meta: own }), ...(parseExactJson(text) as JsonObject) };
}

/** A schema for `client.request`: that of a result as its server sent it. */
export const received = <Schema extends z.ZodType>(schema: Schema) =>
  z
    .looseObject({})
    .transform(unpack)
    .pipe(schema as z.ZodType<z.output<Schema>, JsonObject>);

const LINE_FEED = 0x0a;

/**
 * Cleans the lines of a program before the SDK parses them. Its transport has no hook for that: the buffer of what has
 * come, which is private, is given whole lines only (2.4.0; a test with a program fails when that changes).
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
    // A line that is too long goes on as it is: the SDK refuses it.
    if (end < 0 && bytes <= maxBytes) return;
    const all = Buffer.concat(open);
    const cut = end < 0 ? all.length : all.lastIndexOf(LINE_FEED) + 1;
    open = cut < all.length ? [all.subarray(cut)] : [];
    bytes = all.length - cut;
    append(end < 0 ? all : Buffer.from(all.subarray(0, cut).toString().split('\n').map(cleanMessage).join('\n')));
  };
}

/** Returns the body of a response as the SDK takes it: messages as JSON, or as server-sent events. */
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
