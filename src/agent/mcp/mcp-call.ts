import { setTimeout as sleep } from 'node:timers/promises';
import { type ElicitResult, LOG_LEVEL_META_KEY, type RequestOptions } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { UnknownOutcomeError, AgentError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Tool, ToolContext } from '../definition/tool.ts';
import {
  answered,
  sendRequest,
  type CallResult,
  checkResult,
  type Connected,
  getText,
  toToolResult,
} from './mcp-request.ts';
import { toMcpError, tooMuch } from './mcp-error.ts';
import { type Answer, type OpenQuestions, promptPerson, readAnswers, toOpenQuestions, toKey } from './mcp-question.ts';
import { unpack, received } from './mcp-transport.ts';
import { abortError } from '../../core/abort.ts';

/** How often a server may ask for a repetition of the same tool call, and the pause before each repetition. */
const MAX_ROUNDS = 10;
const ROUND_MS = 250;

/** Schema of a tool in a server's list. A description or hint that cannot be read is ignored. */
export const declaredTool = z.looseObject({
  name: z.string(),
  description: z.string().optional().catch(undefined),
  // MCP requires a schema that describes an object. A missing schema means that the tool has no arguments.
  inputSchema: z
    .looseObject({})
    .default({})
    .transform((schema): JsonObject => ({ type: 'object', ...schema })),
  outputSchema: z.looseObject({}).optional().catch(undefined),
  annotations: z.looseObject({ readOnlyHint: z.unknown(), idempotentHint: z.unknown() }).optional().catch(undefined),
});
type DeclaredTool = z.output<typeof declaredTool>;

/** Keyword in the JSON of a schema: this argument is also sent as an HTTP header. */
const HEADER = '"x-mcp-header":';
const headerArgument = z.looseObject({
  type: z.enum(['string', 'integer', 'boolean']),
  'x-mcp-header': z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/),
});

/** Lists the schemas of the arguments at any depth, as far as only `properties` lead to them. */
function* listArguments({ properties }: JsonObject): Generator<JsonObject> {
  for (const each of Object.values((properties ?? {}) as Record<string, JsonObject | null>)) {
    if (typeof each !== 'object' || each === null) continue;
    yield each;
    yield* listArguments(each);
  }
}

/**
 * As MCP requires, arguments that become HTTP headers must be scalar, reached through `properties` only, and have
 * unique header names. A tool that violates this is not used.
 */
function hasValidHeaders(inputSchema: JsonObject): boolean {
  const marks = [...listArguments(inputSchema)].map((each) =>
    headerArgument.safeParse(each).data?.['x-mcp-header'].toLowerCase(),
  );
  const names = marks.filter((name) => name !== undefined);
  return new Set(names).size === names.length && getText(inputSchema).split(HEADER).length === names.length + 1;
}

export function toTools(connected: Connected, tools: DeclaredTool[]): Tool[] {
  const isModern = connected.client.getProtocolEra() === 'modern';
  return tools
    .filter(({ inputSchema }) => !isModern || hasValidHeaders(inputSchema))
    .map((tool) => toTool(connected, tool, isModern));
}

function toTool(connected: Connected, tool: DeclaredTool, isModern: boolean): Tool {
  const { schemas } = connected;
  const { name, description = '', inputSchema, outputSchema, annotations } = tool;
  const needsHeaders = isModern && getText(inputSchema).includes(HEADER);
  return {
    name,
    description,
    parameters: inputSchema,
    needsConfirmation: false,
    effect: annotations?.readOnlyHint === true ? 'none' : annotations?.idempotentHint === true ? 'idempotent' : 'once',
    calls: 'server',
    checkArguments: (args, signal) => schemas.check(inputSchema, args, signal),
    async run(args, context) {
      const _meta = {
        'agent-runtime/operationId': context.operationId,
        ...(isModern && { [LOG_LEVEL_META_KEY]: 'info' as const }),
      };
      // The MCP SDK gets no output schema, because it would compile that untrusted schema on this thread.
      const toolDefinition = { name, inputSchema: inputSchema as never };
      const { result, pending } = await callTool(connected, name, context, (more, requestOptions) => {
        const params = { name, arguments: args, _meta, ...more };
        const options = { ...requestOptions, allowInputRequired: true };
        const { client } = connected;
        return needsHeaders
          ? client.callTool(params, { ...options, toolDefinition }).then(unpack)
          : client.request({ method: 'tools/call', params }, answered, options);
      });
      if (!result) return pending && promptPerson(connected.server, pending, context);
      const { structuredContent: value, isError } = result;
      const answer = toToolResult(result, context.attachments);
      if (!outputSchema || value === undefined || isError) return answer;
      const problem = await schemas.check(outputSchema, value, context.signal, 'answer');
      // The result violates the output schema. It is returned with a warning, because the call has taken effect.
      return problem === undefined ? answer : { warning: problem, answer };
    },
  };
}

/**
 * If the server asked questions in an earlier attempt, the person's replies are sent with the call. Returns the result,
 * or new questions of the server.
 */
async function callTool(
  connected: Connected,
  name: string,
  context: ToolContext,
  send: (more: JsonObject, options: RequestOptions) => Promise<JsonObject>,
): Promise<{ result?: CallResult; pending?: OpenQuestions }> {
  const isModern = connected.client.getProtocolEra() === 'modern';
  const before = readAnswers(context);
  const earlier = before?.pending.taskId ?? context.kept?.['taskId'];
  if (typeof earlier === 'string') return followTask(connected, name, context, earlier, before);
  const answers = { ...before?.pending.answers, ...before?.answers };
  const own: Parameters<typeof sendRequest>[4] = { Unsure: UnknownOutcomeError, ...(!isModern && { answers }) };
  let more: JsonObject = isModern && before ? toRetry(before.pending, before.answers) : {};
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const work = async (options: RequestOptions) => {
      const result: JsonObject = await send(more, options).catch((error: unknown): JsonObject => {
        if (!own.question) throw error;
        return {};
      });
      if (own.question) return { pending: toOpenQuestions(fromParams(own.question), { answers }) };
      if (result['resultType'] !== 'input_required') return { result: checkResult(result), taskId: getTaskId(result) };
      const { inputRequests, requestState } = inputRequired.parse(result);
      return { pending: toOpenQuestions(inputRequests, requestState === undefined ? {} : { requestState }) };
    };
    const outcome = await sendRequest(connected, `\`${name}\``, context, work, own);
    if (outcome.taskId !== undefined) return followTask(connected, name, context, outcome.taskId, undefined);
    if (!outcome.pending || Object.keys(outcome.pending.questions).length > 0) return outcome;
    await sleep(ROUND_MS, undefined, { signal: context.signal });
    more = toRetry(outcome.pending);
  }
  const endless = tooMuch(`more than ${MAX_ROUNDS} rounds for one call`);
  throw toMcpError(connected.server, `failed in \`${name}\``, endless, context.signal);
}

const inputRequired = z.looseObject({
  inputRequests: z.record(z.string(), z.looseObject({})),
  requestState: z.string().optional(),
});
const fromParams = (params: JsonObject) => ({ [toKey(params)]: { method: 'elicitation/create', params } });

const toRetry = ({ requestState }: OpenQuestions, inputResponses?: Record<string, Answer>): JsonObject => ({
  ...(inputResponses && { inputResponses }),
  ...(requestState !== undefined && { requestState }),
});

/**
 * Writes a server's messages to the log, and handles its questions to the user. A person replies later, so a question
 * without a reply cancels the call, and the call is repeated with the reply. If several calls are running, a question
 * is refused, because it does not say to which call it belongs.
 */
export function listenTo({ client, running }: Connected): void {
  client.setNotificationHandler('notifications/message', ({ params: { level, data } }) => {
    // A server's message never has a level above `warn`, because it must not raise an alarm with the operator.
    const logLevel = level === 'debug' ? level : level === 'info' || level === 'notice' ? 'info' : 'warn';
    [...running].at(-1)?.note(logLevel, typeof data === 'string' ? data : getText(data));
  });
  client.setRequestHandler('elicitation/create', ({ params }) => {
    const [call, other] = running;
    if (!call?.answers || other) return { action: 'cancel' };
    const answer = call.answers[toKey(params)];
    if (!answer) call.question ??= { ...params };
    return (answer ?? { action: 'cancel' }) as ElicitResult;
  });
}

/** Name of the MCP extension for tasks: a server responds to a long call with a task that the client polls. */
export const TASKS = 'io.modelcontextprotocol/tasks';
/** Limits and default of the polling interval, which a server may choose; below, how many polls in a row may fail. */
const POLL_MS = { least: 100, usual: 1_000, most: 30_000 };
const MAX_FAILURES = 5;

const task = z.looseObject({
  taskId: z.string().min(1).max(1_024),
  status: z.enum(['working', 'input_required', 'completed', 'failed', 'cancelled']),
  pollIntervalMs: z.number().optional(),
  result: z.looseObject({}).optional(),
  error: z.looseObject({ code: z.number() }).optional(),
  inputRequests: z.record(z.string(), z.looseObject({})).optional(),
});

/** @throws {Error} if the server responded with a task that has no id */
const getTaskId = (answer: Record<string, unknown>): string | undefined =>
  answer['resultType'] === 'task' ? task.parse(answer).taskId : undefined;

/**
 * Polls a task until it ends or asks the user. If the invocation ends, the task is cancelled; if only this process
 * stops, it is not, because another process goes on polling.
 */
async function followTask(
  connected: Connected,
  name: string,
  context: ToolContext,
  taskId: string,
  before: ReturnType<typeof readAnswers>,
): Promise<{ result?: CallResult; pending?: OpenQuestions }> {
  const { signal } = context;
  const send = <Result>(method: string, more: JsonObject, toResult: (answer: Record<string, unknown>) => Result) =>
    sendRequest(
      connected,
      `\`${name}\``,
      context,
      async (options) =>
        toResult(
          await connected.client.request({ method, params: { taskId, ...more } }, received(z.looseObject({})), options),
        ),
      { Unsure: UnknownOutcomeError },
    );
  await context.keep({ taskId });
  const answers = { ...before?.pending.answers, ...before?.answers };
  try {
    if (before?.pending.taskId !== undefined) await send('tasks/update', { inputResponses: before.answers }, () => {});
    for (let failures = 0; ; ) {
      const step = await send('tasks/get', {}, (state) => toStep(state, taskId, answers)).catch((error: unknown) => {
        failures += 1;
        if (signal.aborted) throw error;
        const isOver = connected.bounded.failure || failures >= MAX_FAILURES || !(error instanceof UnknownOutcomeError);
        if (isOver) throw new UnknownOutcomeError('mcp_failed', (error as Error).message);
        return { waitMs: POLL_MS.usual };
      });
      if ('failure' in step) throw toMcpError(connected.server, `failed in \`${name}\``, step.failure, signal);
      if (!('waitMs' in step)) return step;
      await sleep(step.waitMs, undefined, { signal });
    }
  } finally {
    if (signal.aborted && abortError(signal).code !== 'interrupted') {
      const cancelling = connected.client.request({ method: 'tasks/cancel', params: { taskId } }, z.looseObject({}));
      connected.ending.push(cancelling.catch(() => {}));
    }
  }
}

type Step = { result: CallResult } | { pending: OpenQuestions } | { failure: AgentError } | { waitMs: number };

function toStep(state: Record<string, unknown>, taskId: string, answers: NonNullable<OpenQuestions['answers']>): Step {
  const { status, result, error, inputRequests = {}, pollIntervalMs } = task.parse(state);
  if (status === 'completed') return { result: checkResult(result ?? {}) };
  if (status === 'failed' || status === 'cancelled') {
    const how = status === 'failed' ? `failed with error ${error?.code ?? 'unknown'}` : 'was cancelled';
    return { failure: new AgentError('mcp_failed', `Its task ${how}.`) };
  }
  const open = Object.entries(inputRequests).filter(([key]) => !Object.hasOwn(answers, key));
  if (status === 'input_required' && open.length > 0)
    return { pending: toOpenQuestions(Object.fromEntries(open), { taskId, answers }) };
  return { waitMs: Math.min(Math.max(pollIntervalMs ?? POLL_MS.usual, POLL_MS.least), POLL_MS.most) };
}
