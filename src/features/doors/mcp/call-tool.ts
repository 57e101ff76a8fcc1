import { hash } from 'node:crypto';
import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  type ServerContext,
  type Tool,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { getFunctionCalls, type JsonObject } from '../../../core/content.ts';
import { InvalidError } from '../../../core/errors.ts';
import { identifierSchema } from '../../../core/session.ts';
import { answerWhole, type Asked, begin } from '../door.ts';
import { type InvocationRef, toHandle } from '../handle.ts';
import { listOpenCalls } from '../open-calls.ts';
import type { TurnStep } from '../turn.ts';
import { type McpCall, toSentence } from './mcp-call.ts';
import {
  findTask,
  hasForms,
  hasTasks,
  readAnswers,
  readTask,
  type Task,
  toInputRequests,
  toResult,
  toTask,
} from './tasks.ts';

const MAX_PROMPT = 1_000_000;
/** Key in a call's `_meta` under which the client sends the idempotency key. */
const IDEMPOTENCY_KEY = 'agent-runtime/idempotency-key';
const idempotencyKey = z.string().min(1).max(255);
const callArguments = z.strictObject({
  prompt: z.string().min(1).max(MAX_PROMPT).describe('What the agent is asked.'),
  session: identifierSchema.optional().describe('`session` of an earlier answer, to go on with it [a new one].'),
});
const callAnswer = z.object({
  session: z.string().describe('Goes on with this conversation.'),
  invocation: z.string().describe('Id of what ran.'),
  status: z.string().describe('How it stands; `paused` waits for a person.'),
  text: z.string().describe('The answer.'),
  output: z.unknown().optional().describe('The answer as a value, where the agent has an output schema.'),
});
const toSchema = (schema: z.ZodObject) => z.toJSONSchema(schema) as Tool['inputSchema'];
const SCHEMAS = { inputSchema: toSchema(callArguments), outputSchema: toSchema(callAnswer) };

export const listTools = ({ context, appNames }: McpCall) => ({
  tools: appNames.map((name) => {
    const description = context.agents.get(name)?.describe().description || `Asks the agent ${name}.`;
    return { name, description, ...SCHEMAS };
  }),
});

/**
 * Runs an agent. A client that supports tasks always gets a task, because a task survives a lost connection. Other
 * clients wait for the end. Failures are returned as results, because clients show only results to the calling model.
 */
export async function callTool(
  call: McpCall,
  { name, arguments: input }: { name: string; arguments?: Record<string, unknown> | undefined },
  request: ServerContext['mcpReq'],
): Promise<CallToolResult> {
  if (!call.appNames.includes(name))
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Tool not found: ${name}`);
  const state = request.requestState<string>();
  try {
    const asked =
      state === undefined
        ? readPrompt(call, name, input, request._meta)
        : await readState(call, name, state, request.inputResponses);
    if ('missing' in asked) return toInputRequired(asked.task);
    const isTask = call.isModern && hasTasks(request);
    // Since protocol version 2026-07-28 a closed connection means cancellation.
    const turn = await begin({ ...call, leavingCancels: call.isModern && !isTask }, asked);
    const task = isTask && (await readTask(call, turn));
    if (task) return toTask(task) as unknown as CallToolResult;
    return await wait(call, turn, request, 'turn' in asked && asked.headers?.['idempotency-key'] !== undefined);
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    return toErrorResult(toSentence(call, error).sentence);
  }
}

const toErrorResult = (text: string): CallToolResult => ({ content: [{ type: 'text', text }], isError: true });

function readPrompt(call: McpCall, appName: string, input: unknown, meta: JsonObject = {}) {
  const { data, error } = callArguments.safeParse(input ?? {});
  if (error)
    throw new InvalidError(error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '));
  const requestKey = idempotencyKey.safeParse(meta[IDEMPOTENCY_KEY]).data ?? call.headers['idempotency-key'];
  // The id of a new session derives from the idempotency key. A retry therefore reaches the same session.
  const derivedSessionId = requestKey && hash('sha256', JSON.stringify([appName, requestKey]));
  const key = { appName, userId: call.userId, sessionId: data.session ?? derivedSessionId ?? call.context.newId() };
  const content = { role: 'user', parts: [{ text: data.prompt }] };
  const turn = { content, overrides: {}, createSession: data.session === undefined, streaming: false };
  return { key, turn, headers: { ...call.headers, 'idempotency-key': requestKey } };
}

/**
 * Reads the answers to a paused invocation. `state` names the invocation. It is not trusted: the invocation must belong
 * to the user. Unless all its open calls have an answer, the questions are asked again; if nothing is open any more, the
 * result of earlier answers is returned.
 */
async function readState(
  call: McpCall,
  appName: string,
  state: string,
  responses: JsonObject = {},
): Promise<Asked | { task: Task; missing: string[] }> {
  const task = await findTask(call, state);
  if (task?.key.appName !== appName)
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'requestState names nothing that waits for you.');
  const { asked, missing } = readAnswers(task, responses);
  return missing.length > 0 ? { task, missing } : asked;
}

const toInputRequired = (task: Task) =>
  ({
    resultType: 'input_required',
    inputRequests: toInputRequests(task.events),
    requestState: toHandle(task),
  }) as unknown as CallToolResult;

/** Waits for the end of an invocation, and sends progress if the client wants it. */
function wait(
  call: McpCall,
  turn: InvocationRef,
  request: ServerContext['mcpReq'],
  isRepeatable: boolean,
): Promise<CallToolResult> {
  const { key, invocationId } = turn;
  const progressToken = request._meta?.progressToken;
  return answerWhole(call, turn, {
    onEvent: async (step) => {
      if (progressToken !== undefined) await request.notify(toProgress(progressToken, step));
    },
    whole: (task) => {
      const isQuestion = task.invocation.status === 'paused' && listOpenCalls(task.events).length > 0;
      return isQuestion && call.isModern && hasForms(request) ? toInputRequired(task) : toResult(task);
    },
    left: (isGone) => {
      if (isGone) return toErrorResult(`Session ${key.sessionId} was deleted, and with it invocation ${invocationId}.`);
      const advice = isRepeatable
        ? 'The same call with its idempotency key waits for the answer.'
        : 'Do not call again: its answer will be in that session.';
      return toErrorResult(
        `The service is stopping, and another process goes on with invocation ${invocationId} in session ` +
          `${key.sessionId}. ${advice}`,
      );
    },
  });
}

/** Builds a progress notification. Its number is the event's sequence number, because progress must rise. */
function toProgress(progressToken: string | number, { event, sequence }: TurnStep & { kind: 'event' }) {
  const names = getFunctionCalls(event.content).map(({ name }) => name);
  const message = names.length > 0 ? { message: names.join(', ') } : {};
  return { method: 'notifications/progress', params: { progressToken, progress: sequence, ...message } } as const;
}
