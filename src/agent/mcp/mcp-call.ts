import { setTimeout as sleep } from 'node:timers/promises';
import { type ElicitResult, LOG_LEVEL_META_KEY, type RequestOptions } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { UnknownOutcomeError } from '../../core/errors.ts';
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
import { followTask, getTaskId } from './mcp-task.ts';
import { unpack } from './mcp-wire.ts';

/** Maximum number of times that a server may ask for the same call again, and the wait before each. */
const MAX_ROUNDS = 10;
const ROUND_MS = 250;

/** A tool as its server declares it: what cannot be read of its description or its hints is left out. */
export const declaredTool = z.looseObject({
  name: z.string(),
  description: z.string().optional().catch(undefined),
  // The protocol asks for an object; what is missing takes no arguments.
  inputSchema: z
    .looseObject({})
    .default({})
    .transform((schema): JsonObject => ({ type: 'object', ...schema })),
  outputSchema: z.looseObject({}).optional().catch(undefined),
  annotations: z.looseObject({ readOnlyHint: z.unknown(), idempotentHint: z.unknown() }).optional().catch(undefined),
});
type DeclaredTool = z.output<typeof declaredTool>;

/** Marks an argument that a server wants in a header too, as it stands in the JSON of a schema. */
const HEADER = '"x-mcp-header":';
const marked = z.looseObject({
  type: z.enum(['string', 'integer', 'boolean']),
  'x-mcp-header': z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/),
});

/** Returns the schemas of an object's arguments at all depths, without other ways into a schema. */
function* listArguments({ properties }: JsonObject): Generator<JsonObject> {
  for (const each of Object.values((properties ?? {}) as Record<string, JsonObject | null>)) {
    if (typeof each !== 'object' || each === null) continue;
    yield each;
    yield* listArguments(each);
  }
}

/**
 * True where a tool marks its arguments for headers as the protocol wants it: plain values that are reached by
 * `properties` alone, each with a name of its own. Other tools are left out.
 */
function hasFineHeaders(inputSchema: JsonObject): boolean {
  const found = [...listArguments(inputSchema)].map((each) =>
    marked.safeParse(each).data?.['x-mcp-header'].toLowerCase(),
  );
  const names = found.filter((name) => name !== undefined);
  return new Set(names).size === names.length && getText(inputSchema).split(HEADER).length === names.length + 1;
}

/** Returns the tools of a server as those that the model can call. */
export function toTools(connected: Connected, tools: DeclaredTool[]): Tool[] {
  const isModern = connected.client.getProtocolEra() === 'modern';
  return tools
    .filter(({ inputSchema }) => !isModern || hasFineHeaders(inputSchema))
    .map((tool) => toTool(connected, tool, isModern));
}

function toTool(connected: Connected, tool: DeclaredTool, isModern: boolean): Tool {
  const { schemas } = connected;
  const { name, description = '', inputSchema, outputSchema, annotations } = tool;
  // Arguments that the server wants in headers too.
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
      // Without the schema of the answers, which the client would compile.
      const toolDefinition = { name, inputSchema: inputSchema as never };
      const { result, asked } = await callTool(connected, name, context, (more, given) => {
        const params = { name, arguments: args, _meta, ...more };
        const options = { ...given, allowInputRequired: true };
        const { client } = connected;
        return needsHeaders
          ? client.callTool(params, { ...options, toolDefinition }).then(unpack)
          : client.request({ method: 'tools/call', params }, answered, options);
      });
      if (!result) return asked && promptPerson(connected.server, asked, context);
      const { structuredContent: value, isError } = result;
      const answer = toToolResult(result, context.attachments);
      if (!outputSchema || value === undefined || isError) return answer;
      const problem = await schemas.check(outputSchema, value, context.signal, 'answer');
      // The tool has acted: its answer is told, and what is wrong with it.
      return problem === undefined ? answer : { warning: problem, answer };
    },
  };
}

/** Calls a tool, with a person's answers where it had asked for them. @returns its result, or what it asks now */
async function callTool(
  connected: Connected,
  name: string,
  context: ToolContext,
  send: (more: JsonObject, options: RequestOptions) => Promise<JsonObject>,
): Promise<{ result?: CallResult; asked?: OpenQuestions }> {
  const isModern = connected.client.getProtocolEra() === 'modern';
  const before = readAnswers(context);
  const earlier = before?.asked.taskId ?? context.kept?.['taskId'];
  if (typeof earlier === 'string') return followTask(connected, name, context, earlier, before);
  const answers = { ...before?.asked.answers, ...before?.answers };
  const own: Parameters<typeof sendRequest>[4] = { Unsure: UnknownOutcomeError, ...(!isModern && { answers }) };
  let more: JsonObject = isModern && before ? toRetry(before.asked, before.answers) : {};
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const work = async (options: RequestOptions) => {
      const result: JsonObject = await send(more, options).catch((error: unknown): JsonObject => {
        if (!own.question) throw error;
        return {};
      });
      if (own.question) return { asked: toOpenQuestions(fromParams(own.question), { answers }) };
      if (result['resultType'] !== 'input_required') return { result: checkResult(result), taskId: getTaskId(result) };
      const { inputRequests, requestState } = inputRequired.parse(result);
      return { asked: toOpenQuestions(inputRequests, requestState === undefined ? {} : { requestState }) };
    };
    const found = await sendRequest(connected, `\`${name}\``, context, work, own);
    if (found.taskId !== undefined) return followTask(connected, name, context, found.taskId, undefined);
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

const toRetry = ({ requestState }: OpenQuestions, inputResponses?: Record<string, Answer>): JsonObject => ({
  ...(inputResponses && { inputResponses }),
  ...(requestState !== undefined && { requestState }),
});

/**
 * Takes the messages of a server into the log, and its questions. A person answers later, so a question that has no
 * answer yet cancels the call, which is made again with the answer. Of several calls it is not known which one asks.
 */
export function listenTo({ client, running }: Connected): void {
  client.setNotificationHandler('notifications/message', ({ params: { level, data } }) => {
    // None raises an alarm of the operator.
    const own = level === 'debug' ? level : level === 'info' || level === 'notice' ? 'info' : 'warn';
    [...running].at(-1)?.note(own, typeof data === 'string' ? data : getText(data));
  });
  client.setRequestHandler('elicitation/create', ({ params }) => {
    const [call, other] = running;
    if (!call?.answers || other) return { action: 'cancel' };
    const answer = call.answers[toKey(params)];
    if (!answer) call.question ??= { ...params };
    return (answer ?? { action: 'cancel' }) as ElicitResult;
  });
}
