import { type Client, type RequestOptions, type SpecTypes, specTypeSchemas } from '@modelcontextprotocol/client';
import { z } from 'zod';
import type { UnknownOutcomeError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject } from '../../core/content.ts';
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
  note: (level: string, text: string) => void;
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
 * Asks a server something for a call of a tool, within the time of one. `what` stands in errors; `Unsure` is the error
 * where it may have acted.
 */
export async function ask<Result>(
  { server, bounded, callMs, running }: Connected,
  what: string,
  { signal, log }: ToolContext,
  Unsure: typeof UnknownOutcomeError | undefined,
  own: Pick<RunningCall, 'answers' | 'question'>,
  work: (options: RequestOptions) => Promise<Result>,
): Promise<Result> {
  let lines = 0;
  const write = (level: keyof ToolLog, message: string) => {
    lines += 1;
    if (lines <= MAX_LINES) log[level](message.slice(0, MAX_LINE_LENGTH), { mcpServer: server.name });
  };
  const call = Object.assign(own, { note: (level: string, text: string) => write(LEVELS[level] ?? 'warn', text) });
  running.add(call);
  try {
    return await within(callMs, signal, (limit) => {
      const onprogress: RequestOptions['onprogress'] = ({ progress, total, message }) =>
        write(
          'debug',
          [`progress ${progress}`, ...(total === undefined ? [] : ['of', total]), message ?? ''].join(' '),
        );
      return orAborted(work({ signal: limit, timeout: callMs + 1_000, onprogress }), limit);
    });
  } catch (error) {
    throw toMcpError(server, `failed in ${what}`, bounded.failure ?? error, signal, Unsure);
  } finally {
    running.delete(call);
  }
}

/** Levels of a server's messages in our log: none raises an alarm of the operator. */
const LEVELS: Record<string, 'debug' | 'info'> = { debug: 'debug', info: 'info', notice: 'info' };

/** Reads a value as the protocol has it. @throws {Error} where it is something else */
export function parseAs<Name extends 'Tool' | 'CallToolResult'>(name: Name, value: unknown): SpecTypes[Name] {
  const parsed = specTypeSchemas[name]['~standard'].validate(value);
  if (parsed.issues) throw new Error(`It is no ${name}.`);
  return parsed.value;
}
