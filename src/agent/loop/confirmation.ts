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
function toDecision({ response }: FunctionResponse): Pick<Confirmation, 'confirmed' | 'payload'> {
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

/**
 * Finds the calls that the last user event decides on, one member per requesting event (parallel agents make one each).
 * Only calls of an event of `runtimeEventIds` count, since clients can append an event that looks like a request; and
 * none that has run since.
 */
export function findConfirmations(history: Event[], runtimeEventIds: ReadonlySet<string>): ConfirmedCalls[] {
  const last = history.at(-1);
  if (last?.author !== 'user') return [];
  const responses = getFunctionResponses(last.content).filter((response) => response.name === CONFIRMATION_CALL);
  const answers = new Map(responses.map((response) => [response.id ?? '', toDecision(response)]));
  if (answers.size === 0) return [];
  return history.flatMap((event, index) =>
    runtimeEventIds.has(event.id ?? '') ? toConfirmedCalls(history, event, index, answers) : [],
  );
}

function toConfirmedCalls(
  history: Event[],
  event: Event,
  index: number,
  answers: Map<string, ReturnType<typeof toDecision>>,
): ConfirmedCalls[] {
  const requests = requestsIn(event).filter((call) => answers.has(call.id ?? ''));
  if (requests.length === 0) return [];
  const done = answeredSince(history, responsesTo(history, index));
  const decisions = new Map<string, boolean>();
  const calls: OpenCall[] = [];
  for (const { id, args } of requests) {
    const call = toOriginalCall(args);
    if (!call || done.has(call.id)) continue;
    const decision = answers.get(id ?? '') ?? { confirmed: false };
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
