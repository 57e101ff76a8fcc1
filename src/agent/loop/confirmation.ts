import { getFunctionResponses, type FunctionResponse, type JsonObject } from '../../core/content.ts';
import { type Event, isSteer, type NewEvent } from '../../core/event.ts';
import type { Confirmation } from '../definition/tool.ts';
import type { OpenCall } from './call-ledger.ts';
import type { ConfirmedCalls, TaskAnswers } from './run.ts';
import { newEvent, type InvocationState, type AgentTurn } from './invocation-state.ts';
import { listConfirmationRequests } from './script.ts';
import { CONFIRMATION_CALL } from '../../core/names.ts';
import { cloneJson, parseExactJson } from '../../core/exact-json.ts';

/** Makes one long-running function call per tool call that needs a confirmation; `undefined` if none does. */
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

export const isConfirmed = (response: FunctionResponse): boolean => toDecision(response).confirmed;

type Decision = Pick<Confirmation, 'confirmed' | 'payload'> & { reason?: string };

/**
 * ADK's web UI sends a person's decision as JSON text in the member `response`, other clients as the response itself.
 * Any response but a clear approval counts as a refusal.
 */
function toDecision({ response }: Pick<FunctionResponse, 'response'>): Decision {
  const wrapped = response?.['response'];
  try {
    const decision = (typeof wrapped === 'string' ? parseExactJson(wrapped) : response) as
      | JsonObject
      | null
      | undefined;
    const payload = decision?.['payload'];
    const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
    const reason = decision?.['reason'];
    return {
      confirmed: decision?.['confirmed'] === true,
      ...(isObject && { payload: payload as JsonObject }),
      ...(typeof reason === 'string' && reason !== '' && { reason }),
    };
  } catch {
    return { confirmed: false };
  }
}

/** Ids of function calls that got a response after the event at `index`, and therefore must not run again. */
function answeredSince(events: Event[], index: number): Set<string | null | undefined> {
  const later = events.slice(index + 1).filter((event) => event.author !== 'user');
  return new Set(later.flatMap((event) => getFunctionResponses(event.content).map((response) => response.id)));
}

function toOriginalCall(args: JsonObject | null | undefined): OpenCall | undefined {
  const original = args?.['originalFunctionCall'] as Partial<OpenCall> | undefined;
  return original?.id && original.name
    ? // Copied, because a tool may change its arguments, and the history must stay as it is.
      { id: original.id, name: original.name, args: cloneJson(original.args ?? {}) }
    : undefined;
}

/**
 * Returns the ids of the confirmation requests to which the last event responds, if its author is the user. Messages that
 * woke the invocation may stand behind it.
 */
export function listAnsweredQuestions(history: Event[]): string[] {
  const last = history.findLast((event) => !isSteer(event));
  if (last?.author !== 'user') return [];
  return getFunctionResponses(last.content).flatMap(({ id, name }) => (id && name === CONFIRMATION_CALL ? id : []));
}

/**
 * Finds the tool calls on which the last event of the user decides: one element per event with requests, because
 * parallel agents make one event each. The events themselves prove nothing, because clients write some of them and
 * others are copied from another session. Therefore a request counts only if its event is in `runtimeEventIds`, and a
 * reply only if it closed a task of the same invocation (`taskAnswers`). Calls that have run since are omitted.
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
  answers: ReadonlyMap<string, Decision & { invocationId: string }>,
): ConfirmedCalls[] {
  const requests = listConfirmationRequests(event).filter(
    ({ id }) => answers.get(id ?? '')?.invocationId === event.invocationId,
  );
  if (requests.length === 0) return [];
  const done = answeredSince(history, responsesTo(history, index));
  const decisions = new Map<string, boolean>();
  const calls: OpenCall[] = [];
  for (const { id, args } of requests) {
    const call = toOriginalCall(args);
    if (!call || done.has(call.id)) continue;
    const {
      reason,
      invocationId: _,
      ...decision
    }: Decision & { invocationId: string } = answers.get(id ?? '') ?? {
      invocationId: '',
      confirmed: false,
    };
    const kept = (args?.['toolConfirmation'] as { kept?: JsonObject } | undefined)?.kept;
    calls.push({ ...call, ...(kept && { confirmation: { ...decision, kept } }), ...(reason && { reason }) });
    decisions.set(call.id, decision.confirmed);
  }
  return calls.length > 0
    ? [{ agentName: event.author ?? '', branch: event.branch ?? undefined, calls, decisions }]
    : [];
}

/** Finds the event with the provisional responses to the calls at `index`; parallel agents' events may be between. */
function responsesTo(history: Event[], index: number): number {
  const request = history[index];
  const requested = new Set(listConfirmationRequests(request ?? {}).map((call) => toOriginalCall(call.args)?.id));
  const isAnswer = (event: Event) =>
    event.author === request?.author && getFunctionResponses(event.content).some(({ id }) => id && requested.has(id));
  const place = history.findIndex((event, each) => each > index && isAnswer(event));
  return place < 0 ? index : place;
}
