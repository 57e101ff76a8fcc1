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

/** Name of the call that asks a person, as ADK's clients know it. */
export const CONFIRMATION_CALL = 'adk_request_confirmation';

/** The answer to a question, as the task of that keeps it: the rules of the task say who may give it. */
interface GivenAnswer {
  /** The invocation that asked. */
  invocationId: string;
  response: JsonObject;
}

/** Answers that closed tasks of a session, by the ids of the calls that asked. */
export type GivenAnswers = ReadonlyMap<string, GivenAnswer>;

/** Calls that a person has decided on, and the agent that requested the decisions. */
export interface ConfirmedCalls {
  agentName: string;
  branch: string | undefined;
  calls: OpenCall[];
  decisions: Map<string, boolean>;
}

/** Returns the event that asks a person to confirm calls, one long-running call for each; `undefined` without any. */
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

/** True for an event that {@link toConfirmationRequest} made. */
export const isConfirmationRequest = (event: Event): boolean => requestsIn(event).length > 0;

/** True where a person said yes. */
export const isConfirmed = (response: FunctionResponse): boolean => toDecision(response).confirmed;

/** The web UI wraps the decision as JSON text in a `response` member; others send it plain. If unclear, it is a no. */
function toDecision({ response }: Pick<FunctionResponse, 'response'>): Pick<Confirmation, 'confirmed' | 'payload'> {
  const wrapped = response?.['response'];
  try {
    const said = (typeof wrapped === 'string' ? parseExactJson(wrapped) : response) as JsonObject | null | undefined;
    const payload = said?.['payload'];
    const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
    return { confirmed: said?.['confirmed'] === true, ...(isObject && { payload: payload as JsonObject }) };
  } catch {
    return { confirmed: false };
  }
}

/** Ids of calls whose tool has answered after the event at `index`: they are not run a second time. */
function answeredSince(events: Event[], index: number): Set<string | null | undefined> {
  const later = events.slice(index + 1).filter((event) => event.author !== 'user');
  return new Set(later.flatMap((event) => getFunctionResponses(event.content).map((response) => response.id)));
}

function toOriginalCall(args: JsonObject | null | undefined): OpenCall | undefined {
  const original = args?.['originalFunctionCall'] as Partial<OpenCall> | undefined;
  return original?.id && original.name
    ? // A copy: a tool may change its arguments, and the history may not.
      { id: original.id, name: original.name, args: cloneJson(original.args ?? {}) }
    : undefined;
}

/** Returns the ids of the questions that the last event answers, where the user has said it. */
export function listAnsweredQuestions(history: Event[]): string[] {
  const last = history.at(-1);
  if (last?.author !== 'user') return [];
  return getFunctionResponses(last.content).flatMap(({ id, name }) => (id && name === CONFIRMATION_CALL ? id : []));
}

/**
 * Finds the calls that the last user event decides on, one member per requesting event (parallel agents make one each).
 * Events only say which: clients write some, and others are copies of another session's. So a request counts where it
 * is an event of `runtimeEventIds`, and an answer where a task of its invocation was closed with it, as that keeps it
 * (`given`). None counts that has run since.
 */
export function findConfirmations(
  history: Event[],
  runtimeEventIds: ReadonlySet<string>,
  given: GivenAnswers,
): ConfirmedCalls[] {
  const answers = new Map(
    listAnsweredQuestions(history).flatMap((id) => {
      const answer = given.get(id);
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
 * The requests that an event makes: the runtime marks its own as long-running. A model, or who writes what it reads,
 * can call a function of that name too, and may not choose what a person's yes is for.
 */
function requestsIn({ author, content, longRunningToolIds }: Event): FunctionCall[] {
  if (author === 'user') return [];
  const own = new Set(longRunningToolIds);
  return getFunctionCalls(content).filter(({ name, id }) => name === CONFIRMATION_CALL && id && own.has(id));
}

/** Finds the provisional responses to the calls of the event at `index`; parallel agents' events may stand between. */
function responsesTo(history: Event[], index: number): number {
  const request = history[index];
  const requested = new Set(requestsIn(request ?? {}).map((call) => toOriginalCall(call.args)?.id));
  const isAnswer = (event: Event) =>
    event.author === request?.author && getFunctionResponses(event.content).some(({ id }) => id && requested.has(id));
  const place = history.findIndex((event, each) => each > index && isAnswer(event));
  return place < 0 ? index : place;
}
