import type { ModelAnswer } from '../../agent/definition/model.ts';
import { CONFIRMATION_CALL } from '../../agent/loop/confirmation.ts';
import { isOfAgentHook } from '../../agent/loop/hooks.ts';
import { toOriginal } from '../../agent/loop/structured-output.ts';
import { getFunctionCalls, getFunctionResponses, getParts, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionHistory } from '../../conversation/sessions/history-store.ts';
import type { Tape } from '../tape.ts';

export interface StoredEvent {
  /** Position of the event in the invocation, from 0; prompts count too. */
  place: number;
  /** Sequence of the event in the session, from 1. */
  sequence: number;
  event: Event;
}

/** One stored run of an invocation. An invocation that was resumed has several runs. */
export interface TapeRun {
  /** Events of the session when the run began; the last one is the prompt. */
  history: Event[];
  /** All events of the session after `history`. */
  later: Event[];
  /** Events that the loop produced. */
  events: StoredEvent[];
  /** Events that the runtime added because the loop could not go on: responses to open calls, and the error. */
  ending: StoredEvent[];
  /** The tape of the run. `undefined` if a version without tapes ran it, or its process died. */
  tape: Tape | undefined;
}

/** An invocation's runs in order; none without stored events. Ignores events of clients, whatever they claim. */
export function toRuns(
  { events: session, runtimeEventIds }: Pick<SessionHistory, 'events' | 'runtimeEventIds'>,
  invocationId: string,
  tapes: Tape[],
): TapeRun[] {
  const stored = session
    .flatMap((event, index) => (event.invocationId === invocationId ? [{ event, sequence: index + 1 }] : []))
    .map((one, place): StoredEvent => ({ ...one, place }));
  const starts = [...new Set([...guessStarts(stored, tapes[0]?.start), ...tapes.map(({ start }) => start)])];
  const isOwn = ({ author, id }: Event) => author !== 'user' && runtimeEventIds.has(id ?? '');
  const ordered = starts.toSorted((one, other) => one - other);
  return ordered.flatMap((start, index) => {
    const end = ordered[index + 1] ?? Number.POSITIVE_INFINITY;
    const own = stored.filter(({ event, sequence }) => sequence > start && sequence <= end && isOwn(event));
    const tape = tapes.find((one) => one.start === start);
    if (own.length === 0 && !tape) return [];
    const ending = findEnding(own);
    const events = own.slice(0, own.length - ending.length);
    return [{ history: session.slice(0, start), later: session.slice(start), events, ending, tape }];
  });
}

/** Returns the ids of the calls that people confirmed, or that received their response after their run. */
export function listAttendedCalls({ events, runtimeEventIds }: SessionHistory): ReadonlySet<string> {
  const own = events.filter(({ id }) => runtimeEventIds.has(id ?? ''));
  const ids = own.flatMap(({ content, actions, longRunningToolIds }) => [
    ...(longRunningToolIds ?? []),
    ...Object.keys(actions?.requestedToolConfirmations ?? {}),
    ...getFunctionCalls(content).flatMap(({ name, args }) => {
      const original = name === CONFIRMATION_CALL ? args?.['originalFunctionCall'] : undefined;
      return (original as { id?: string } | undefined)?.id ?? [];
    }),
  ]);
  return new Set(ids);
}

/** Runs without a tape began after each prompt, and after each error from which the agent was resumed. */
function guessStarts(stored: StoredEvent[], firstTape = Number.POSITIVE_INFINITY): number[] {
  return stored.flatMap(({ event, sequence }, index) => {
    const before = stored[index - 1]?.event;
    if (sequence > firstTape) return [];
    if (event.author === 'user') return [sequence];
    return index === 0 || (before?.errorCode && before.author !== 'user' && !event.errorCode) ? [sequence - 1] : [];
  });
}

/** Returns the events at the end of a run that the runtime added. Unlike events of the loop, they have no actions. */
function findEnding(own: StoredEvent[]): StoredEvent[] {
  const isOfRuntime = ({ event }: StoredEvent) =>
    event.actions == null && Boolean(event.errorCode || answersCalls(event));
  const from = own.findLastIndex((one) => !isOfRuntime(one)) + 1;
  return own.slice(from);
}

const answersCalls = (event: Event): boolean => getFunctionResponses(event.content).length > 0;

/** True if a model produced the event, not a tool or the loop. */
export const isOfModel = ({ actions, ...event }: Event): boolean =>
  !answersCalls(event) &&
  !isOfAgentHook({ ...event, actions }) &&
  !actions?.compaction &&
  !getFunctionCalls(event.content).some(({ name }) => name === CONFIRMATION_CALL);

/** An error without a reply of the model; with `empty_answer` the model itself reported the error. */
export const isFailure = (event: Event): boolean =>
  Boolean(event.errorCode) &&
  getParts(event.content).length === 0 &&
  event.finishReason == null &&
  event.modelVersion == null;

export function toModelAnswer(event: Event): ModelAnswer {
  const { content, modelVersion, finishReason, usageMetadata, groundingMetadata, citationMetadata } = event;
  const answer = { modelVersion, finishReason, usageMetadata, groundingMetadata, citationMetadata };
  const hasState = Object.keys(event.actions?.stateDelta ?? {}).length > 0;
  return { content: toOriginal(content), ...answer, ...(hasState && { actions: event.actions }) };
}

/** Returns the stored response of each call, by call id. */
export function getResponses(events: StoredEvent[]): Map<string, { stored: StoredEvent; part: Part }> {
  const parts = events.flatMap((stored) => (stored.event.content?.parts ?? []).map((part) => ({ stored, part })));
  return new Map(
    parts.flatMap((one) => (one.part.functionResponse?.id ? [[one.part.functionResponse.id, one] as const] : [])),
  );
}

/**
 * State when a run began: a key that changed later has its value of earlier events, any other its present value. The
 * tape's values have priority, because other sessions change the shared state too.
 */
export function stateBefore({ history, later, tape }: TapeRun, now: JsonObject, initial: JsonObject): JsonObject {
  const deltas = (events: Event[]) => events.flatMap((event) => Object.entries(event.actions?.stateDelta ?? {}));
  const before = new Map(deltas(history));
  const state = Object.assign(Object.create(null) as JsonObject, now);
  for (const [key] of deltas(later)) {
    if (before.has(key)) state[key] = before.get(key);
    else if (Object.hasOwn(initial, key)) state[key] = initial[key];
    else delete state[key];
  }
  return Object.assign(state, tape?.payload.values);
}
