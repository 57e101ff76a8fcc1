import { z } from 'zod';
import { type ErrorCode, errorCodeList } from '../core/error-codes.ts';
import { type FunctionCall, getFunctionCalls, getFunctionResponses, type JsonObject } from '../core/content.ts';
import { AgentError, answerRefusal, sizeRefusal, stateRefusal } from '../core/errors.ts';
import { type Event, eventBytes, type NewEvent } from '../core/event.ts';
import { onlyTemporary } from '../core/session.ts';

export const STATUSES = ['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'] as const;

/** `queued`: waits for its session. `paused`: waits for a person. `paused` and all later statuses are ends. */
export type InvocationStatus = (typeof STATUSES)[number];

/** Statuses of what ended and did not succeed: those of the index `invocations_failed_idx`. */
export const UNSUCCESSFUL_STATUSES = ['failed', 'interrupted', 'cancelled'] as const satisfies InvocationStatus[];
export const isUnsuccessful = (status: InvocationStatus): boolean =>
  (UNSUCCESSFUL_STATUSES as readonly string[]).includes(status);

export const isActive = ({ status }: { status: InvocationStatus }): boolean =>
  status === 'queued' || status === 'running';

/**
 * What a request does if its session is busy: wait in the queue, fail, stop the running invocation and wait, or give the
 * running invocation its message.
 */
export const BUSY_POLICIES = ['enqueue', 'reject', 'interrupt', 'steer'] as const;
/** The HTTP header and the setting call this policy "double texting", which is LangGraph's term. */
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
    failedToolCalls: z
      .int()
      .optional()
      .describe(
        'Number of those whose response has an `error`: of the tool, of the arguments, or because a person rejected the ' +
          'call; absent for none.',
      ),
    workSeconds: z
      .number()
      .optional()
      .describe(
        'Seconds for which a process ran it, until it ended or paused last; absent until then. The rest of the time ' +
          'since `createTime` it waited: for its session, a person or a time.',
      ),
    promptTokens: z.int().describe('Tokens of the prompts of all its model calls, as the provider counts them.'),
    outputTokens: z.int().describe('Tokens of the answers of all its model calls, reasoning included.'),
    cost: z
      .number()
      .optional()
      .describe(
        'Cost of its stored model answers by the prices of now, in their currency; absent where one of its models has no ' +
          'price.',
      ),
    stoppedAgents: z
      .int()
      .optional()
      .describe(
        'In the answer to a cancellation of an invocation that has ended: its agents in the background that were at work, and are stopped.',
      ),
    steeredInto: z
      .string()
      .optional()
      .describe(
        'Of a message that steered: the invocation that took it and answers it. The event of the message has the `id` of ' +
          'this one. Absent for all others.',
      ),
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

/** The function response that replaces the missing response of an interrupted tool call. */
const INTERRUPTED_RESPONSE = { error: 'The call was interrupted before it answered.' };

function openFunctionCalls(events: Event[]): FunctionCall[] {
  const answeredIds = new Set(events.flatMap(({ content }) => getFunctionResponses(content).map(({ id }) => id)));
  return events.flatMap(({ content }) => getFunctionCalls(content)).filter(({ id }) => !answeredIds.has(id));
}

/**
 * Returns the last events of an invocation that ends with an error: a function response to each open call, because
 * model providers require one, and an event with the error.
 * @param known - tool responses from the ledger that no event contains yet, by call id
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
  // An author without any event in the history can only be the root agent.
  const nodeInfo = events.findLast((event) => event.author === author)?.nodeInfo ?? { path: `${author}@1` };
  const answers: NewEvent[] =
    open.length === 0 ? [] : [{ id: newId(), invocationId, author, nodeInfo, content: { role: 'user', parts } }];
  const failure = { errorCode: error.code, errorMessage: error.message };
  const end: NewEvent = { id: newId(), invocationId, author, nodeInfo, ...failure };
  return [...answers, isStopped(error.code) ? { ...end, interrupted: true } : end];
}

/** True if an error code means that the invocation was stopped. These codes are also statuses of an invocation. */
export const isStopped = (code: string): code is 'interrupted' | 'cancelled' =>
  code === 'interrupted' || code === 'cancelled';

export const stoppedMessage = (status: 'interrupted' | 'cancelled'): string =>
  status === 'cancelled' ? 'The invocation was cancelled.' : 'The invocation was interrupted by a newer message.';

/** @throws {AgentError} if the event's JSON is larger than `maxBytes` */
export function checkSize(event: NewEvent, maxBytes: number): void {
  const size = eventBytes(event);
  if (size > maxBytes)
    throw new AgentError('event_too_large', `An event of ${size} bytes is over the limit of ${maxBytes} bytes.`);
}

/**
 * The session state with the `temp:` keys of the request's delta; with `all`, with every key, as none is stored yet.
 */
export function withDelta(state: JsonObject, delta: JsonObject | undefined, all: boolean): JsonObject {
  return { ...state, ...(all ? delta : onlyTemporary(delta)) };
}

export const toolCallsLimitError = (limit: number) =>
  new AgentError('tool_calls_limit', `Max number of tool calls limit of \`${limit}\` exceeded`);

/** Returns the event that marks the end of a live session's turn. */
export const turnEnd = (invocationId: string, author: string, newId: () => string): NewEvent => ({
  id: newId(),
  invocationId,
  author,
  nodeInfo: { path: '' },
  turnComplete: true,
});

/** Database errors of too large a state, session or user become an `AgentError`; others stay unchanged. */
export function toAgentError(error: unknown): unknown {
  const refusal = stateRefusal(error);
  if (refusal !== undefined) return new AgentError('state_too_large', refusal, { cause: error });
  const refusedAnswer = answerRefusal(error);
  if (refusedAnswer) return new AgentError('answer_refused', refusedAnswer.message);
  const full = sizeRefusal(error);
  return full ? new AgentError(full.code, full.message, { cause: error }) : error;
}
