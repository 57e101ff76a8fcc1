import {
  type Client,
  LOG_LEVEL_META_KEY,
  type RequestOptions,
  type SpecTypes,
  specTypeSchemas,
} from '@modelcontextprotocol/client';
import { z } from 'zod';
import { UnknownOutcomeError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject } from '../../core/content.ts';
import { orAborted } from '../../core/abort.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import type { McpServer } from '../definition/agent.ts';
import type { Tool, ToolContext, ToolLog } from '../definition/tool.ts';
import { toMcpError, tooMuch, within } from './mcp-error.ts';
import { toToolResult } from './mcp-result.ts';
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
  /** Where the messages of the server go, by running call: it does not say which one they are about. */
  logs: Set<(level: string, text: string) => void>;
}

/** A tool as its server declares it. */
export interface DeclaredTool {
  name: string;
  description?: string | undefined;
  inputSchema: JsonObject;
  outputSchema?: JsonObject | undefined;
  annotations?: { readOnlyHint?: boolean | undefined; idempotentHint?: boolean | undefined } | undefined;
}

/** Loose schema that counts an answer's elements before the SDK's schemas spend time on each of them. */
const answered = z.looseObject({ content: z.array(z.unknown()).optional() });

export const getText = (value: unknown): string => JSON.stringify(value) ?? '';

/** Returns a tool of a server as one that the model can call. */
export function toTool(connected: Connected, tool: DeclaredTool): Tool {
  const { client, schemas } = connected;
  const { name, inputSchema, outputSchema, annotations } = tool;
  const isModern = client.getProtocolEra() === 'modern';
  // Arguments that the server wants in headers too.
  const needsHeaders = isModern && getText(inputSchema).includes('"x-mcp-header":');
  return {
    name,
    description: tool.description ?? '',
    parameters: inputSchema,
    needsConfirmation: false,
    effect: annotations?.readOnlyHint ? 'none' : annotations?.idempotentHint ? 'idempotent' : 'once',
    calls: 'server',
    checkArguments: (args, signal) => schemas.check(inputSchema, args, signal),
    async run(args, context) {
      const _meta = {
        'agent-runtime/operationId': context.operationId,
        ...(isModern && { [LOG_LEVEL_META_KEY]: 'info' as const }),
      };
      const params = { name, arguments: args, _meta };
      const result = await ask(connected, `\`${name}\``, context, UnknownOutcomeError, async (options) =>
        checkResult(
          needsHeaders
            ? // Without the schema of the answers, which the client would compile.
              await client.callTool(params, { ...options, toolDefinition: { name, inputSchema: inputSchema as never } })
            : await client.request({ method: 'tools/call', params }, answered, options),
        ),
      );
      if (outputSchema && result.isError !== true) {
        const { structuredContent: value } = result;
        const problem =
          value === undefined ? UNSTRUCTURED : await schemas.check(outputSchema, value, context.signal, 'answer');
        if (problem !== undefined) return { error: problem };
      }
      return toToolResult(result, context.attachments);
    },
  };
}

const UNSTRUCTURED = 'The tool answered without the structured content that its output schema declares.';

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
  { server, bounded, callMs, logs }: Connected,
  what: string,
  { signal, log }: ToolContext,
  Unsure: typeof UnknownOutcomeError | undefined,
  work: (options: RequestOptions) => Promise<Result>,
): Promise<Result> {
  let lines = 0;
  const write = (level: keyof ToolLog, message: string) => {
    lines += 1;
    if (lines <= MAX_LINES) log[level](message.slice(0, MAX_LINE_LENGTH), { mcpServer: server.name });
  };
  const note = (level: string, text: string) => write(LEVELS[level] ?? 'warn', text);
  logs.add(note);
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
    logs.delete(note);
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
