import { z } from 'zod';
import { type ErrorCode, errorCodeList } from '../core/error-codes.ts';
import { type FunctionCall, getFunctionCalls, getFunctionResponses, type JsonObject } from '../core/content.ts';
import { AgentError, answerRefusal, sizeRefusal, stateRefusal } from '../core/errors.ts';
import { type Event, eventBytes, type NewEvent } from '../core/event.ts';
import { onlyTemporary } from '../core/session.ts';
import type { SessionHistory } from '../conversation/sessions/history-store.ts';
import type { InvocationEnd, InvocationRequest } from './context.ts';
import type { AnswerKind } from './stored-request.ts';

const STATUSES = ['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'] as const;

/** Status of an invocation. `queued` waits for its session, `paused` for a person; all after `running` have ended. */
export type InvocationStatus = (typeof STATUSES)[number];

/** Policies of a request for a session while an invocation runs there: wait, fail, or stop that one and wait. */
export const BUSY_POLICIES = ['enqueue', 'reject', 'interrupt'] as const;
/** One of {@link BUSY_POLICIES}; the header and the setting are called double texting, after LangGraph. */
export type BusyPolicy = (typeof BUSY_POLICIES)[number];

/** An invocation as the wire shows it. */
export const invocationSchema = z
  .looseObject({
    id: z.string().describe('The `invocationId` of its events.'),
    appName: z.string().describe('The application that answers.'),
    userId: z.string().describe('The owner of the session.'),
    sessionId: z.string().describe('The session that it belongs to.'),
    status: z
      .enum(STATUSES)
      .describe('`queued` waits for its session, `running` works, `paused` waits for a person; all others have ended.'),
    createTime: z.number().describe('When it was requested, Unix seconds.'),
    startTime: z.number().optional().describe('When it got its session, Unix seconds; absent while it is queued.'),
    endTime: z.number().optional().describe('When it ended or paused, Unix seconds; absent until then.'),
    agentVersion: z
      .string()
      .optional()
      .describe(
        'The version of the application that ran it, with `+overrides` where its request changed the agent; absent ' +
          'until it began.',
      ),
    llmCalls: z.int().describe('Number of model calls, those of sub-agents included.'),
    toolCalls: z.int().describe('Number of tool calls.'),
    promptTokens: z.int().describe('Tokens of the prompts of all its model calls, as the provider counts them.'),
    outputTokens: z.int().describe('Tokens of the answers of all its model calls, reasoning included.'),
    error: z
      .looseObject({
        code: z
          .string()
          .describe(
            `Stable code, the \`errorCode\` of its last event; later versions may add others.\n${errorCodeList()}`,
          ),
        message: z.string().describe('What happened and what to check, a sentence for people.'),
      })
      .optional()
      .describe('Why it did not succeed; absent while it runs and on success.'),
  })
  .describe('One prompt up to its final answer.');

/** An invocation as the wire shows it. */
export type Invocation = z.output<typeof invocationSchema>;

/** Why an invocation did not succeed: a stable code and a sentence for people. */
export interface InvocationError {
  code: ErrorCode;
  message: string;
}

/** The function response that the runtime writes in place of a tool that never answered. */
const INTERRUPTED_RESPONSE = { error: 'The call was interrupted before it answered.' };

/** The function calls of these events that no function response answers, in order. */
function openFunctionCalls(events: Event[]): FunctionCall[] {
  const answered = new Set(events.flatMap(({ content }) => getFunctionResponses(content).map(({ id }) => id)));
  return events.flatMap(({ content }) => getFunctionCalls(content)).filter(({ id }) => !answered.has(id));
}

/**
 * Returns the events that end an invocation: answers to open calls, which providers require, and the error.
 * @param known - answers that tools gave and no event has, by the id of the call
 */
export function endingEvents(
  invocationId: string,
  author: string,
  events: Event[],
  error: InvocationError,
  newId: () => string,
  known: ReadonlyMap<string, JsonObject> = new Map(),
): NewEvent[] {
  const open = openFunctionCalls(events);
  const parts = open.map(({ id, name }) => ({
    functionResponse: { id, name, response: known.get(id ?? '') ?? INTERRUPTED_RESPONSE },
  }));
  // Without an event of its own so far it can only be the root.
  const nodeInfo = events.findLast((event) => event.author === author)?.nodeInfo ?? { path: `${author}@1` };
  const answers: NewEvent[] =
    open.length === 0 ? [] : [{ id: newId(), invocationId, author, nodeInfo, content: { role: 'user', parts } }];
  const failure = { errorCode: error.code, errorMessage: error.message };
  const end: NewEvent = { id: newId(), invocationId, author, nodeInfo, ...failure };
  return [...answers, isStopped(error.code) ? { ...end, interrupted: true } : end];
}

/** True for the codes of an invocation that was stopped: they are statuses too. */
export const isStopped = (code: string): code is 'interrupted' | 'cancelled' =>
  code === 'interrupted' || code === 'cancelled';

/** The error message of an invocation that a request stopped. */
export const stoppedMessage = (status: 'interrupted' | 'cancelled'): string =>
  status === 'cancelled' ? 'The invocation was cancelled.' : 'The invocation was interrupted by a newer message.';

/** The error of a paused invocation: success holds only when `error` is null, and a caller would wait for ever. */
const WAITS_FOR_A_PERSON =
  'The invocation waits for a person: answer its open function call in the session, and go on with /run.';

/** Returns the answer to keep with an invocation that ended so. */
export function toAnswer(kind: AnswerKind, { output, error, paused, value }: InvocationEnd): string {
  if (kind.kind === 'output') return output;
  const { harnessName: harness_name, overwrite } = kind;
  const why = error?.message ?? (paused === true && output === '' ? WAITS_FOR_A_PERSON : null);
  const structured = value === undefined ? {} : { structured_output: value };
  return JSON.stringify({ harness_name, overwrite, output, ...structured, error: why });
}

/** @throws {AgentError} for an event whose JSON has more bytes */
export function checkSize(event: NewEvent, maxBytes: number): void {
  const size = eventBytes(event);
  if (size > maxBytes)
    throw new AgentError('event_too_large', `An event of ${size} bytes is over the limit of ${maxBytes} bytes.`);
}

/** Returns the user events that a claim stores. */
export const claimedUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? [] : userEvents(request, newId);

/** Returns the user events that are stored with the first event of the agent, or with the end. */
export const deferredUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? userEvents(request, newId) : [];

/**
 * True where the request names tools, skills or a model, which may not exist, or a schema, which may be none. Its user
 * event is stored with the first event of the agent, so that a wrong one leaves none and its correction does
 * not ask twice.
 */
export const isUncertain = ({ overrides: { tools, skills, modelName, outputSchema } }: InvocationRequest): boolean =>
  tools !== undefined || skills !== undefined || modelName !== undefined || outputSchema !== undefined;

/** The event that opens an invocation; none where it only goes on. */
function userEvents(request: InvocationRequest, newId: () => string): NewEvent[] {
  const { invocationId, content, stateDelta } = request;
  if (!content && !stateDelta) return [];
  const event: NewEvent = {
    id: newId(),
    invocationId,
    author: 'user',
    nodeInfo: { path: '' },
    ...(content ? { content: { ...content, role: content.role ?? 'user' } } : {}),
    actions: {
      stateDelta: stateDelta ?? {},
      artifactDelta: {},
      requestedAuthConfigs: {},
      requestedToolConfirmations: {},
    },
  };
  return [event];
}

/** Returns the state with the keys of the request that it lacks: `temp:` ones, and `all` until they are stored. */
export function withDelta(state: JsonObject, delta: JsonObject | undefined, all: boolean): JsonObject {
  return { ...state, ...(all ? delta : onlyTemporary(delta)) };
}

/** Returns the error that ends an invocation with too many tool calls. */
export const toolCallsLimitError = (limit: number) =>
  new AgentError('tool_calls_limit', `Max number of tool calls limit of \`${limit}\` exceeded`);

/** Returns an event of the agent as ADK has it: with the notes of the request, in a live session without a node. */
export const withNotes = ({ customMetadata, isLive }: InvocationRequest, event: NewEvent): NewEvent => ({
  ...event,
  ...(isLive && { nodeInfo: { path: '' } }),
  ...(customMetadata && { customMetadata: { ...customMetadata, ...event.customMetadata } }),
});

/** Returns the event which says that a turn of a live session is over. */
export const turnEnd = (invocationId: string, author: string, newId: () => string): NewEvent => ({
  id: newId(),
  invocationId,
  author,
  nodeInfo: { path: '' },
  turnComplete: true,
});

/** Returns the agent's failure for a state, a session or a user over its limit, and any other error as it is. */
export function toAgentError(error: unknown): unknown {
  const refusal = stateRefusal(error);
  if (refusal !== undefined) return new AgentError('state_too_large', refusal, { cause: error });
  const answered = answerRefusal(error);
  if (answered) return new AgentError('answer_refused', answered.message);
  const full = sizeRefusal(error);
  return full ? new AgentError(full.code, full.message, { cause: error }) : error;
}

/** Splits the history of a run that goes on: what it began with, its prompts included, and its own steps so far. */
export function splitHistory({ events, runtimeEventIds }: SessionHistory, sequence: number, invocationId: string) {
  const own = events
    .map((event, index) => ({ event: event as NewEvent, sequence: index + 1 }))
    .slice(sequence)
    .filter(({ event }) => runtimeEventIds.has(event.id) && event.invocationId === invocationId);
  const prompts = own.filter(({ event }) => event.author === 'user').map(({ event }) => event);
  const steps = own.filter(({ event }) => event.author !== 'user');
  return { before: [...events.slice(0, sequence), ...prompts], steps, hasPrompt: prompts.length > 0 };
}
