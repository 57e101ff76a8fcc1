import {
  getFunctionCalls,
  getFunctionResponses,
  type FunctionCall,
  type FunctionResponse,
  type JsonObject,
} from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { Confirmation } from '../definition/tool.ts';
import type { OpenCall } from './call-tools.ts';
import { newEvent, type InvocationState, type AgentTurn } from './invocation-state.ts';
import { cloneJson, parseExactJson } from '../../core/exact-json.ts';

/** Name of the confirmation call in ADK's protocol. */
export const CONFIRMATION_CALL = 'adk_request_confirmation';

/** A task's accepted answer to a question; the task's rules decided who may give it. */
interface TaskAnswer {
  invocationId: string;
  response: JsonObject;
}

/** Answers of a session's closed tasks, by the ids of the calls that requested them. */
export type TaskAnswers = ReadonlyMap<string, TaskAnswer>;

/** Calls that a person has decided on, and the agent that requested the decisions. */
export interface ConfirmedCalls {
  agentName: string;
  branch: string | undefined;
  calls: OpenCall[];
  decisions: Map<string, boolean>;
}

/**
 * Returns the event that requests confirmation of calls, one long-running call each; `undefined` if none is requested.
 */
export function toConfirmationRequest(
  invocation: InvocationState,
  turn: AgentTurn,
  calls: OpenCall[],
  requested: JsonObject,
): NewEvent | undefined {
  const parts = calls
    .filter((call) => Object.hasOwn(requested, call.id))
    .map(({ id, name, args }) => ({
      functionCall: {
        id: invocation.input.newId(),
        name: CONFIRMATION_CALL,
        args: { originalFunctionCall: { id, name, args }, toolConfirmation: requested[id] },
      },
    }));
  if (parts.length === 0) return undefined;
  return newEvent(invocation, turn, {
    content: { role: 'user', parts },
    longRunningToolIds: parts.map((part) => part.functionCall.id),
  });
}

export const isConfirmationRequest = (event: Event): boolean => requestsIn(event).length > 0;

export const isConfirmed = (response: FunctionResponse): boolean => toDecision(response).confirmed;

/**
 * Reads a decision. The web UI wraps it as JSON text in a `response` member; other clients send it plain. Anything
 * unclear counts as a refusal.
 */
function toDecision({ response }: Pick<FunctionResponse, 'response'>): Pick<Confirmation, 'confirmed' | 'payload'> {
  const wrapped = response?.['response'];
  try {
    const decision = (typeof wrapped === 'string' ? parseExactJson(wrapped) : response) as
      | JsonObject
      | null
      | undefined;
    const payload = decision?.['payload'];
    const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
    return { confirmed: decision?.['confirmed'] === true, ...(isObject && { payload: payload as JsonObject }) };
  } catch {
    return { confirmed: false };
  }
}

/** Ids of calls that were answered after the event at `index` and must not run again. */
function answeredSince(events: Event[], index: number): Set<string | null | undefined> {
  const later = events.slice(index + 1).filter((event) => event.author !== 'user');
  return new Set(later.flatMap((event) => getFunctionResponses(event.content).map((response) => response.id)));
}

function toOriginalCall(args: JsonObject | null | undefined): OpenCall | undefined {
  const original = args?.['originalFunctionCall'] as Partial<OpenCall> | undefined;
  return original?.id && original.name
    ? // A copy, because a tool may change its arguments but not the history.
      { id: original.id, name: original.name, args: cloneJson(original.args ?? {}) }
    : undefined;
}

/** Returns the ids of the confirmation requests that the last event answers, if the user is its author. */
export function listAnsweredQuestions(history: Event[]): string[] {
  const last = history.at(-1);
  if (last?.author !== 'user') return [];
  return getFunctionResponses(last.content).flatMap(({ id, name }) => (id && name === CONFIRMATION_CALL ? id : []));
}

/**
 * Finds the calls that the last user event decides on, one element per requesting event (parallel agents make one
 * each). Events alone prove nothing, because clients write some and others are copied from another session. Therefore a
 * request must be in `runtimeEventIds`, and its answer must be the one that closed a task of the same invocation
 * (`answers`). Calls that have run since are left out.
 */
export function findConfirmations(
  history: Event[],
  runtimeEventIds: ReadonlySet<string>,
  taskAnswers: TaskAnswers,
): ConfirmedCalls[] {
  const answers = new Map(
    listAnsweredQuestions(history).flatMap((id) => {
      const answer = taskAnswers.get(id);
      return answer ? [[id, { ...toDecision(answer), invocationId: answer.invocationId }] as const] : [];
    }),
  );
  if (answers.size === 0) return [];
  return history.flatMap((event, index) =>
    runtimeEventIds.has(event.id ?? '') ? toConfirmedCalls(history, event, index, answers) : [],
  );
}

function toConfirmedCalls(
  history: Event[],
  event: Event,
  index: number,
  answers: ReadonlyMap<string, ReturnType<typeof toDecision> & { invocationId: string }>,
): ConfirmedCalls[] {
  const requests = requestsIn(event).filter(({ id }) => answers.get(id ?? '')?.invocationId === event.invocationId);
  if (requests.length === 0) return [];
  const done = answeredSince(history, responsesTo(history, index));
  const decisions = new Map<string, boolean>();
  const calls: OpenCall[] = [];
  for (const { id, args } of requests) {
    const call = toOriginalCall(args);
    if (!call || done.has(call.id)) continue;
    const { invocationId: _, ...decision } = answers.get(id ?? '') ?? { invocationId: '', confirmed: false };
    const kept = (args?.['toolConfirmation'] as { kept?: JsonObject } | undefined)?.kept;
    calls.push(kept ? { ...call, confirmation: { ...decision, kept } } : call);
    decisions.set(call.id, decision.confirmed);
  }
  return calls.length > 0
    ? [{ agentName: event.author ?? '', branch: event.branch ?? undefined, calls, decisions }]
    : [];
}

/**
 * Returns the confirmation requests of an event: calls that the runtime marked as long-running. A model, or a text that
 * it reads, can call a function of that name too, and must not choose what a person's approval applies to.
 */
function requestsIn({ author, content, longRunningToolIds }: Event): FunctionCall[] {
  if (author === 'user') return [];
  const own = new Set(longRunningToolIds);
  return getFunctionCalls(content).filter(({ name, id }) => name === CONFIRMATION_CALL && id && own.has(id));
}

/** Finds the provisional responses to the calls of the event at `index`; events of parallel agents may come between. */
function responsesTo(history: Event[], index: number): number {
  const request = history[index];
  const requested = new Set(requestsIn(request ?? {}).map((call) => toOriginalCall(call.args)?.id));
  const isAnswer = (event: Event) =>
    event.author === request?.author && getFunctionResponses(event.content).some(({ id }) => id && requested.has(id));
  const place = history.findIndex((event, each) => each > index && isAnswer(event));
  return place < 0 ? index : place;
}
