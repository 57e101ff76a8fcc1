import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Client,
  type ElicitResult,
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
import { HEADER } from './mcp-headers.ts';
import { toMcpError, tooMuch, within } from './mcp-error.ts';
import { type Answer, type Asked, askPerson, readAnswers, toAsked, toKey } from './mcp-question.ts';
import { toToolResult } from './mcp-result.ts';
import type { BoundedTransport } from './mcp-transport.ts';

const { mcpToolResult } = INPUT_LIMITS;
/** Maximum number of times that a server may ask for the same call again, and the wait before each. */
const MAX_ROUNDS = 10;
const ROUND_MS = 250;
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
}

/** A call that runs. */
interface RunningCall {
  note: (level: string, text: string) => void;
  /** Answers to questions that the server asks while it runs, by their keys. */
  answers?: Record<string, Answer> | undefined;
  /** The question that it asked, and that no answer is there for. */
  question?: JsonObject;
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
  const needsHeaders = isModern && getText(inputSchema).includes(HEADER);
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
      // Without the schema of the answers, which the client would compile.
      const toolDefinition = { name, inputSchema: inputSchema as never };
      const { result, asked } = await callTool(connected, name, context, (more, given) => {
        const params = { name, arguments: args, _meta, ...more };
        const options = { ...given, allowInputRequired: true };
        return needsHeaders
          ? client.callTool(params, { ...options, toolDefinition })
          : client.request({ method: 'tools/call', params }, answered, options);
      });
      if (!result) return asked && askPerson(connected.server, asked, context);
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

/** Calls a tool, with a person's answers where it had asked for them. @returns its result, or what it asks now */
async function callTool(
  connected: Connected,
  name: string,
  context: ToolContext,
  send: (more: JsonObject, options: RequestOptions) => Promise<z.output<typeof answered>>,
): Promise<{ result?: SpecTypes['CallToolResult']; asked?: Asked }> {
  const isModern = connected.client.getProtocolEra() === 'modern';
  const before = readAnswers(context);
  const answers = { ...before?.asked.answers, ...before?.answers };
  const own: Pick<RunningCall, 'answers' | 'question'> = isModern ? {} : { answers };
  let more: JsonObject = isModern && before ? toRetry(before.asked, before.answers) : {};
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const found = await ask(connected, `\`${name}\``, context, UnknownOutcomeError, own, async (options) => {
      const result: z.output<typeof answered> = await send(more, options).catch((error: unknown) => {
        if (!own.question) throw error;
        return {};
      });
      if (own.question) return { asked: toAsked(fromParams(own.question), { answers }) };
      if (result['resultType'] !== 'input_required') return { result: checkResult(result) };
      const { inputRequests, requestState } = inputRequired.parse(result);
      return { asked: toAsked(inputRequests, requestState === undefined ? {} : { requestState }) };
    });
    if (!found.asked || Object.keys(found.asked.questions).length > 0) return found;
    await sleep(ROUND_MS, undefined, { signal: context.signal });
    more = toRetry(found.asked);
  }
  const endless = tooMuch(`more than ${MAX_ROUNDS} rounds for one call`);
  throw toMcpError(connected.server, `failed in \`${name}\``, endless, context.signal);
}

const inputRequired = z.looseObject({
  inputRequests: z.record(z.string(), z.looseObject({})),
  requestState: z.string().optional(),
});
const fromParams = (params: JsonObject) => ({ [toKey(params)]: { method: 'elicitation/create', params } });

const toRetry = ({ requestState }: Asked, inputResponses?: Record<string, Answer>): JsonObject => ({
  ...(inputResponses && { inputResponses }),
  ...(requestState !== undefined && { requestState }),
});

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

/**
 * Takes the messages of a server into the log, and its questions. A person answers later, so a question that has no
 * answer yet cancels the call, which is made again with the answer. Of several calls it is not known which one asks.
 */
export function listenTo({ client, running }: Connected): void {
  client.setNotificationHandler('notifications/message', ({ params: { level, data } }) => {
    [...running].at(-1)?.note(level, typeof data === 'string' ? data : getText(data));
  });
  client.setRequestHandler('elicitation/create', ({ params }) => {
    const [call, other] = running;
    if (!call?.answers || other) return { action: 'cancel' };
    const answer = call.answers[toKey(params)];
    if (!answer) call.question ??= { ...params };
    return (answer ?? { action: 'cancel' }) as ElicitResult;
  });
}

/** Reads a value as the protocol has it. @throws {Error} where it is something else */
export function parseAs<Name extends 'Tool' | 'CallToolResult'>(name: Name, value: unknown): SpecTypes[Name] {
  const parsed = specTypeSchemas[name]['~standard'].validate(value);
  if (parsed.issues) throw new Error(`It is no ${name}.`);
  return parsed.value;
}
