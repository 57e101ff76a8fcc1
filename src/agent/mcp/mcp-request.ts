import type { Client, RequestOptions } from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { UnknownOutcomeError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import { isExactInteger } from '../../core/exact-json.ts';
import { orAborted } from '../../core/abort.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import type { McpServer } from '../definition/agent.ts';
import type { ToolContext, ToolLog } from '../definition/tool.ts';
import { getStatus, toMcpError, tooMuch, within } from './mcp-error.ts';
import type { Answer } from './mcp-question.ts';
import type { BoundedTransport } from './mcp-transport.ts';
import { received } from './mcp-wire.ts';

const { mcpToolResult } = INPUT_LIMITS;
/** Maximum number of lines that a server writes to the log during one call, and of characters of each. */
const MAX_LINES = 100;
const MAX_LINE_LENGTH = 1_000;

/** A client that is connected to a server. */
export interface Connected {
  server: McpServer;
  client: Client;
  bounded: BoundedTransport;
  schemas: SchemaSandbox;
  callMs: number;
  /** Calls that run, the newest last: a server does not say which one its messages are about. */
  running: Set<RunningCall>;
  /** Work that ends before the connection does. */
  ending: Promise<unknown>[];
  /** Begins a session anew in place of one that the server does not know any more; calls of one moment share it. */
  renew: (lost: Client) => Promise<void>;
}

/** A call that runs. */
export interface RunningCall {
  note: (level: keyof ToolLog, text: string) => void;
  /** Answers to questions that the server asks while it runs, by their keys. */
  answers?: Record<string, Answer> | undefined;
  /** The question that it asked, and that no answer is there for. */
  question?: JsonObject;
}

/** What a server answers to a call, with whatever it has beside the members that are read. */
export const answered = received(z.looseObject({}));

export const getText = (value: unknown): string => JSON.stringify(value) ?? '';

/** The answer of a tool, as far as it can be read. */
export interface CallResult {
  /** Blocks of text, media, resources and links, and others that are told as they are. */
  content: JsonObject[];
  structuredContent?: unknown;
  isError: boolean;
}

/** Reads the answer of a server, of at most 1,000 blocks. @throws {AgentError} if it has more */
export function checkResult({ content, structuredContent, isError }: Record<string, unknown>): CallResult {
  const blocks = content === undefined ? [] : Array.isArray(content) ? (content as unknown[]) : [content];
  if (blocks.length > mcpToolResult.count) throw tooMuch(`more than ${mcpToolResult.count} blocks in its answer`);
  return {
    content: blocks.map((block) => (isMembers(block) ? block : { type: 'text', text: toPlainText(block) })),
    ...(structuredContent !== undefined && { structuredContent }),
    isError: isError === true || isError === 'true',
  };
}

/** Tells whether a value is an object of JSON. */
export const isMembers = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value);
const toPlainText = (value: unknown): string => (typeof value === 'string' ? value : getText(value));

/**
 * Asks a server something for a call of a tool, within the time of one. `what` stands in errors; `own.Unsure` is the
 * error where it may have acted.
 */
export async function sendRequest<Result>(
  connected: Connected,
  what: string,
  { signal, log }: ToolContext,
  work: (options: RequestOptions) => Promise<Result>,
  own: Omit<RunningCall, 'note'> & { Unsure?: typeof UnknownOutcomeError } = {},
): Promise<Result> {
  const { server, callMs, running, client } = connected;
  let lines = 0;
  const note = (level: keyof ToolLog, message: string) => {
    lines += 1;
    if (lines <= MAX_LINES) log[level](message.slice(0, MAX_LINE_LENGTH), { mcpServer: server.name });
  };
  const call = Object.assign(own, { note });
  running.add(call);
  try {
    return await within(callMs, signal, async (limit) => {
      const onprogress: RequestOptions['onprogress'] = ({ progress, total, message = '' }) =>
        note('debug', `progress ${progress} ${total === undefined ? '' : `of ${total} `}${message}`);
      const send = () => orAborted(work({ signal: limit, timeout: callMs + 1_000, onprogress }), limit);
      return send().catch(async (error: unknown) => {
        if (!hasLostSession(connected, error)) throw error;
        await orAborted(connected.renew(client), limit);
        return send();
      });
    });
  } catch (error) {
    throw toMcpError(server, `failed in ${what}`, connected.bounded.failure ?? error, signal, own.Unsure);
  } finally {
    running.delete(call);
  }
}

/** A server that restarted answers a request of a session with 404, and has done nothing (MCP, session management). */
const hasLostSession = ({ bounded: { transport } }: Connected, error: unknown): boolean =>
  transport.sessionId !== undefined && getStatus(error) === 404;

/** Most characters of a block of an unknown type that the model reads. */
const MAX_UNKNOWN = 4_000;

/** Converts what a server's tool answers: structured content, else the texts; media become attachments. */
export function toToolResult({ content, structuredContent, isError }: CallResult, attachments: Part[]): unknown {
  const read = content.map(readBlock);
  const texts = read.flatMap(({ text }) => text ?? []);
  if (isError) {
    const said = texts.join('\n') || (structuredContent === undefined ? '' : getText(structuredContent));
    return { error: said || 'The tool failed without saying why.' };
  }
  attachments.push(...read.flatMap(({ media }) => media ?? []));
  if (structuredContent !== undefined) return structuredContent;
  return {
    result: texts.length > 0 || attachments.length === 0 ? texts.join('\n') : `${attachments.length} attachment(s)`,
  };
}

/** What a block says, or carries. A block that is not understood is told as it came: the tool may have acted. */
function readBlock(block: JsonObject): { text?: string; media?: Part } {
  const { type, text, data, mimeType, resource, uri, name } = block;
  if (typeof text === 'string') return { text };
  if ((type === 'image' || type === 'audio') && typeof data === 'string')
    return { media: toMedia(data, mimeType, type === 'image' ? 'image/png' : 'audio/wav') };
  if (type === 'resource' && isMembers(resource)) {
    if (typeof resource['text'] === 'string') return { text: resource['text'] };
    if (typeof resource['blob'] === 'string')
      return { media: toMedia(resource['blob'], resource['mimeType'], 'application/octet-stream') };
  }
  if (type === 'resource_link' && typeof uri === 'string')
    return { text: typeof name === 'string' ? `${name}: ${uri}` : uri };
  const whole = getText(block);
  return { text: whole.length > MAX_UNKNOWN ? `${whole.slice(0, MAX_UNKNOWN)}… (${whole.length} characters)` : whole };
}

const toMedia = (data: string, mimeType: unknown, usual: string): Part => ({
  inlineData: { mimeType: typeof mimeType === 'string' && mimeType !== '' ? mimeType : usual, data },
});
