import { type Client, type RequestOptions, type SpecTypes, specTypeSchemas } from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { UnknownOutcomeError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject, Part } from '../../core/content.ts';
import { orAborted } from '../../core/abort.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import type { McpServer } from '../definition/agent.ts';
import type { ToolContext, ToolLog } from '../definition/tool.ts';
import { toMcpError, tooMuch, within } from './mcp-error.ts';
import type { Answer } from './mcp-question.ts';
import type { BoundedTransport } from './mcp-transport.ts';

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
}

/** A call that runs. */
export interface RunningCall {
  note: (level: keyof ToolLog, text: string) => void;
  /** Answers to questions that the server asks while it runs, by their keys. */
  answers?: Record<string, Answer> | undefined;
  /** The question that it asked, and that no answer is there for. */
  question?: JsonObject;
}

/** Loose schema that counts an answer's elements before the SDK's schemas spend time on each of them. */
export const answered = z.looseObject({ content: z.array(z.unknown()).optional() });

export const getText = (value: unknown): string => JSON.stringify(value) ?? '';

/** Reads the answer of a server, of at most 1,000 blocks. @throws {Error} where it is something else */
export function checkResult(result: z.output<typeof answered>): SpecTypes['CallToolResult'] {
  if ((result.content?.length ?? 0) > mcpToolResult.count)
    throw tooMuch(`more than ${mcpToolResult.count} blocks in its answer`);
  return parseAs('CallToolResult', result);
}

/**
 * Asks a server something for a call of a tool, within the time of one. `what` stands in errors; `own.Unsure` is the
 * error where it may have acted.
 */
export async function ask<Result>(
  { server, bounded, callMs, running }: Connected,
  what: string,
  { signal, log }: ToolContext,
  work: (options: RequestOptions) => Promise<Result>,
  own: Omit<RunningCall, 'note'> & { Unsure?: typeof UnknownOutcomeError } = {},
): Promise<Result> {
  let lines = 0;
  const note = (level: keyof ToolLog, message: string) => {
    lines += 1;
    if (lines <= MAX_LINES) log[level](message.slice(0, MAX_LINE_LENGTH), { mcpServer: server.name });
  };
  const call = Object.assign(own, { note });
  running.add(call);
  try {
    return await within(callMs, signal, (limit) => {
      const onprogress: RequestOptions['onprogress'] = ({ progress, total, message = '' }) =>
        note('debug', `progress ${progress} ${total === undefined ? '' : `of ${total} `}${message}`);
      return orAborted(work({ signal: limit, timeout: callMs + 1_000, onprogress }), limit);
    });
  } catch (error) {
    throw toMcpError(server, `failed in ${what}`, bounded.failure ?? error, signal, own.Unsure);
  } finally {
    running.delete(call);
  }
}

/** Reads a value as the protocol has it. @throws {Error} where it is something else */
export function parseAs<Name extends 'Tool' | 'CallToolResult'>(name: Name, value: unknown): SpecTypes[Name] {
  const parsed = specTypeSchemas[name]['~standard'].validate(value);
  if (parsed.issues) throw new Error(`It is no ${name}.`);
  return parsed.value;
}

/** Converts what a server's tool answers: structured content, else the texts; media become attachments. */
export function toToolResult(result: SpecTypes['CallToolResult'], attachments: Part[]): unknown {
  const texts = result.content.flatMap((block) => toText(block) ?? []);
  if (result.isError === true) return { error: texts.join('\n') || 'The tool failed without saying why.' };
  for (const block of result.content) attachments.push(...toMedia(block));
  if (result.structuredContent !== undefined) return result.structuredContent;
  return {
    result: texts.length > 0 || attachments.length === 0 ? texts.join('\n') : `${attachments.length} attachment(s)`,
  };
}

function toText(block: SpecTypes['ContentBlock']): string | undefined {
  if (block.type === 'text') return block.text;
  if (block.type === 'resource_link') return `${block.name}: ${block.uri}`;
  return block.type === 'resource' && 'text' in block.resource ? block.resource.text : undefined;
}

function toMedia(block: SpecTypes['ContentBlock']): Part[] {
  if (block.type === 'image' || block.type === 'audio')
    return [{ inlineData: { mimeType: block.mimeType, data: block.data } }];
  if (block.type !== 'resource' || !('blob' in block.resource)) return [];
  const { blob, mimeType } = block.resource;
  return [{ inlineData: { mimeType: mimeType ?? 'application/octet-stream', data: blob } }];
}
