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

/** `queued`: waits for its session. `paused`: waits for a person. All statuses after `running` are ends. */
export type InvocationStatus = (typeof STATUSES)[number];

/** What a request does at a busy session: wait, fail, or stop the running invocation and wait. */
export const BUSY_POLICIES = ['enqueue', 'reject', 'interrupt'] as const;
/** The header and the setting call this "double texting", LangGraph's term. */
export type BusyPolicy = (typeof BUSY_POLICIES)[number];

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

export type Invocation = z.output<typeof invocationSchema>;

export interface InvocationError {
  code: ErrorCode;
  message: string;
}

/** Stands in for the response of a tool that never answered. */
const INTERRUPTED_RESPONSE = { error: 'The call was interrupted before it answered.' };

/** Returns the function calls without a function response, in order. */
function openFunctionCalls(events: Event[]): FunctionCall[] {
  const answeredIds = new Set(events.flatMap(({ content }) => getFunctionResponses(content).map(({ id }) => id)));
  return events.flatMap(({ content }) => getFunctionCalls(content)).filter(({ id }) => !answeredIds.has(id));
}

/**
 * Returns the events that end an invocation: a response to each open call, because model providers require one, and the
 * error.
 * @param known - tool responses from the ledger that no event has, by call id
 */
export function endingEvents(
  invocationId: string,
  author: string,
  events: Event[],
  error: InvocationError,
  newId: () => string,
  responses: ReadonlyMap<string, JsonObject> = new Map(),
): NewEvent[] {
  const open = openFunctionCalls(events);
  const parts = open.map(({ id, name }) => ({
    functionResponse: { id, name, response: responses.get(id ?? '') ?? INTERRUPTED_RESPONSE },
  }));
  // If the author has no event yet, it is the root agent.
  const nodeInfo = events.findLast((event) => event.author === author)?.nodeInfo ?? { path: `${author}@1` };
  const answers: NewEvent[] =
    open.length === 0 ? [] : [{ id: newId(), invocationId, author, nodeInfo, content: { role: 'user', parts } }];
  const failure = { errorCode: error.code, errorMessage: error.message };
  const end: NewEvent = { id: newId(), invocationId, author, nodeInfo, ...failure };
  return [...answers, isStopped(error.code) ? { ...end, interrupted: true } : end];
}

/** Tells whether an error code is that of a stopped invocation; both codes are statuses too. */
export const isStopped = (code: string): code is 'interrupted' | 'cancelled' =>
  code === 'interrupted' || code === 'cancelled';

export const stoppedMessage = (status: 'interrupted' | 'cancelled'): string =>
  status === 'cancelled' ? 'The invocation was cancelled.' : 'The invocation was interrupted by a newer message.';

/** Error in the answer of a paused invocation: callers treat a null `error` as success and would wait for ever. */
const WAITS_FOR_A_PERSON =
  'The invocation waits for a person: answer its open function call in the session, and go on with /run.';

/** Builds the answer to store with an ended invocation. */
export function toAnswer(kind: AnswerKind, { output, error, paused, value }: InvocationEnd): string {
  if (kind.kind === 'output') return output;
  const { harnessName: harness_name, overwrite } = kind;
  const why = error?.message ?? (paused === true && output === '' ? WAITS_FOR_A_PERSON : null);
  const structured = value === undefined ? {} : { structured_output: value };
  return JSON.stringify({ harness_name, overwrite, output, ...structured, error: why });
}

/** @throws {AgentError} if the event's JSON is larger than `maxBytes` */
export function checkSize(event: NewEvent, maxBytes: number): void {
  const size = eventBytes(event);
  if (size > maxBytes)
    throw new AgentError('event_too_large', `An event of ${size} bytes is over the limit of ${maxBytes} bytes.`);
}

/** Returns the user events that the claim stores. */
export const claimedUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? [] : userEvents(request, newId);

/** Returns the user events that are stored later, with the first event of the agent or with the end. */
export const deferredUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? userEvents(request, newId) : [];

/**
 * True if the request names tools, skills, a model or a schema, which may turn out invalid. Its user event is then
 * stored with the first event of the agent, so that an invalid request leaves no prompt that its correction would
 * repeat.
 */
export const isUncertain = ({ overrides: { tools, skills, modelName, outputSchema } }: InvocationRequest): boolean =>
  tools !== undefined || skills !== undefined || modelName !== undefined || outputSchema !== undefined;

/** Returns the event with the user's message; none if the invocation only resumes. */
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

/** Returns the state with the request's `temp:` keys, or with `all` its keys as long as they are not stored. */
export function withDelta(state: JsonObject, delta: JsonObject | undefined, all: boolean): JsonObject {
  return { ...state, ...(all ? delta : onlyTemporary(delta)) };
}

export const toolCallsLimitError = (limit: number) =>
  new AgentError('tool_calls_limit', `Max number of tool calls limit of \`${limit}\` exceeded`);

/** Adds the request's `customMetadata` to an event. In a live session removes the node, as ADK does. */
export const withNotes = ({ customMetadata, isLive }: InvocationRequest, event: NewEvent): NewEvent => ({
  ...event,
  ...(isLive && { nodeInfo: { path: '' } }),
  ...(customMetadata && { customMetadata: { ...customMetadata, ...event.customMetadata } }),
});

/** Returns the event that marks the end of a live session's turn. */
export const turnEnd = (invocationId: string, author: string, newId: () => string): NewEvent => ({
  id: newId(),
  invocationId,
  author,
  nodeInfo: { path: '' },
  turnComplete: true,
});

/** Converts the database's refusal of an oversized state, session or user to an `AgentError`. Other errors stay. */
export function toAgentError(error: unknown): unknown {
  const refusal = stateRefusal(error);
  if (refusal !== undefined) return new AgentError('state_too_large', refusal, { cause: error });
  const refusedAnswer = answerRefusal(error);
  if (refusedAnswer) return new AgentError('answer_refused', refusedAnswer.message);
  const full = sizeRefusal(error);
  return full ? new AgentError(full.code, full.message, { cause: error }) : error;
}

/**
 * Splits the history of a resumed run: the events that it began with, its prompts included, and its own later events.
 */
export function splitHistory({ events, runtimeEventIds }: SessionHistory, sequence: number, invocationId: string) {
  const own = events
    .map((event, index) => ({ event: event as NewEvent, sequence: index + 1 }))
    .slice(sequence)
    .filter(({ event }) => runtimeEventIds.has(event.id) && event.invocationId === invocationId);
  const prompts = own.filter(({ event }) => event.author === 'user').map(({ event }) => event);
  const steps = own.filter(({ event }) => event.author !== 'user');
  return { before: [...events.slice(0, sequence), ...prompts], steps, hasPrompt: prompts.length > 0 };
}
