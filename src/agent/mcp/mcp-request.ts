import type { Client, RequestOptions } from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { UnknownOutcomeError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import { isExactInteger } from '../../core/exact-json.ts';
import { orAborted } from '../../core/abort.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import type { McpServer } from '../definition/agent.ts';
import type { ToolContext } from '../definition/tool.ts';
import type { ToolLog } from '../definition/services.ts';
import { getStatus, toMcpError, tooMuch, within } from './mcp-error.ts';
import type { Answer } from './mcp-question.ts';
import { type BoundedTransport, received } from './mcp-transport.ts';

const { mcpToolResult } = INPUT_LIMITS;
/** Maximum number of log lines that a server may write during one call, and maximum length of each in characters. */
const MAX_LINES = 100;
const MAX_LINE_LENGTH = 1_000;

export interface Connected {
  server: McpServer;
  client: Client;
  bounded: BoundedTransport;
  schemas: SchemaSandbox;
  callMs: number;
  /** Running calls, newest last. All are kept, because a server's message does not say to which call it belongs. */
  running: Set<RunningCall>;
  /** Requests that must end before the connection is closed. */
  ending: Promise<unknown>[];
  /** Opens a new session in place of one that the server has forgotten. Concurrent calls share the new session. */
  renew: (lost: Client) => Promise<void>;
}

export interface RunningCall {
  note: (level: keyof ToolLog, text: string) => void;
  /** Replies of the user, by key, to questions that the server asks during the call. */
  answers?: Record<string, Answer> | undefined;
  /** A question of the server to the user that has no reply yet. */
  question?: JsonObject;
}

/** Schema of any JSON-RPC result; unknown members are kept. */
export const answered = received(z.looseObject({}));

export const getText = (value: unknown): string => JSON.stringify(value) ?? '';

export interface CallResult {
  /** Content blocks of text, media, resources and links. Blocks of unknown types are kept as they are. */
  content: JsonObject[];
  structuredContent?: unknown;
  isError: boolean;
}

/** @throws {AgentError} for more than 1,000 content blocks */
export function checkResult({ content, structuredContent, isError }: Record<string, unknown>): CallResult {
  const blocks = content === undefined ? [] : Array.isArray(content) ? (content as unknown[]) : [content];
  if (blocks.length > mcpToolResult.count) throw tooMuch(`more than ${mcpToolResult.count} blocks in its answer`);
  return {
    content: blocks.map((block) => (isMembers(block) ? block : { type: 'text', text: toPlainText(block) })),
    ...(structuredContent !== undefined && { structuredContent }),
    isError: isError === true || isError === 'true',
  };
}

export const isMembers = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value);
const toPlainText = (value: unknown): string => (typeof value === 'string' ? value : getText(value));

/**
 * `what` names the request in error messages. `own` is the record of a tool call in progress, with the class `Unsure`
 * of the error if the call may have taken effect.
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

/** True if the server, after a restart, no longer knows the session: status 404. The request took no effect (MCP). */
const hasLostSession = ({ bounded: { transport } }: Connected, error: unknown): boolean =>
  transport.sessionId !== undefined && getStatus(error) === 404;

/** Maximum length of an unknown content block that the model receives, in characters. */
const MAX_UNKNOWN = 4_000;

/** Returns the structured content, or else the texts. Media become attachments of the function response. */
export function toToolResult({ content, structuredContent, isError }: CallResult, attachments: Part[]): unknown {
  const read = content.map(readBlock);
  const texts = read.flatMap(({ text }) => text ?? []);
  if (isError) {
    const message = texts.join('\n') || (structuredContent === undefined ? '' : getText(structuredContent));
    return { error: message || 'The tool failed without saying why.' };
  }
  attachments.push(...read.flatMap(({ media }) => media ?? []));
  if (structuredContent !== undefined) return structuredContent;
  return {
    result: texts.length > 0 || attachments.length === 0 ? texts.join('\n') : `${attachments.length} attachment(s)`,
  };
}

/** An unknown block is returned as JSON and causes no error, because the call may have taken effect. */
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
