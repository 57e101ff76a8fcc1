import type { ModelAnswer } from '../../agent/definition/model.ts';
import { CONFIRMATION_CALL } from '../../agent/loop/confirmation.ts';
import { isOfAgentHook } from '../../agent/loop/hooks.ts';
import { asGiven } from '../../agent/loop/structured-output.ts';
import { getFunctionCalls, getFunctionResponses, getParts, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionHistory } from '../../conversation/sessions/history-store.ts';
import type { Tape } from '../tape.ts';

/** A stored event of an invocation and where it stands. */
export interface StoredEvent {
  /** Place within the invocation, from 0, its prompts counted. */
  place: number;
  /** Place in the session, from 1. */
  sequence: number;
  event: Event;
}

/** One run of an invocation, as it was stored. An invocation that was resumed has several. */
export interface TapeRun {
  /** Events of the session when the run began, its prompt last. */
  history: Event[];
  /** Events after the run in the session, of any author. */
  later: Event[];
  /** Events of the loop. */
  events: StoredEvent[];
  /** Events that the runtime added where the loop could not go on: answers of open calls, the error. */
  ending: StoredEvent[];
  /** `undefined` for one that an earlier version ran, or whose process died. */
  tape: Tape | undefined;
}

/**
 * The runs of an invocation in order; none where it stored nothing of its own. Events that came in requests are none of
 * its own, whatever author and invocation they name: its client may append such events, its models did not make them.
 */
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

/** The ids of the calls that people were asked about, and of those that somebody answered later than their run. */
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

/** Where runs without a tape began: behind each prompt, and behind an error that the agent went on from. */
function guessStarts(stored: StoredEvent[], firstTape = Number.POSITIVE_INFINITY): number[] {
  return stored.flatMap(({ event, sequence }, index) => {
    const before = stored[index - 1]?.event;
    if (sequence > firstTape) return [];
    if (event.author === 'user') return [sequence];
    return index === 0 || (before?.errorCode && before.author !== 'user' && !event.errorCode) ? [sequence - 1] : [];
  });
}

/** Events of the loop always have actions, those of the runtime never. */
function findEnding(own: StoredEvent[]): StoredEvent[] {
  const isOfRuntime = ({ event }: StoredEvent) =>
    event.actions == null && Boolean(event.errorCode || answersCalls(event));
  const from = own.findLastIndex((one) => !isOfRuntime(one)) + 1;
  return own.slice(from);
}

const answersCalls = (event: Event): boolean => getFunctionResponses(event.content).length > 0;

/** True for what a model gave: neither responses of tools nor what the loop itself adds. */
export const isOfModel = ({ actions, ...event }: Event): boolean =>
  !answersCalls(event) &&
  !isOfAgentHook({ ...event, actions }) &&
  !actions?.compaction &&
  !getFunctionCalls(event.content).some(({ name }) => name === CONFIRMATION_CALL);

/** True for an error in place of an answer. `empty_answer` is one where the model said so by an answer. */
export const isFailure = (event: Event): boolean =>
  Boolean(event.errorCode) &&
  getParts(event.content).length === 0 &&
  event.finishReason == null &&
  event.modelVersion == null;

/** The answer of a model that an event was made of. */
export function toModelAnswer(event: Event): ModelAnswer {
  const { content, modelVersion, finishReason, usageMetadata, groundingMetadata, citationMetadata } = event;
  const answer = { modelVersion, finishReason, usageMetadata, groundingMetadata, citationMetadata };
  const hasState = Object.keys(event.actions?.stateDelta ?? {}).length > 0;
  return { content: asGiven(content), ...answer, ...(hasState && { actions: event.actions }) };
}

/** The stored response to each call of a run, by the id of the call. */
export function getResponses(events: StoredEvent[]): Map<string, { stored: StoredEvent; part: Part }> {
  const parts = events.flatMap((stored) => (stored.event.content?.parts ?? []).map((part) => ({ stored, part })));
  return new Map(
    parts.flatMap((one) => (one.part.functionResponse?.id ? [[one.part.functionResponse.id, one] as const] : [])),
  );
}

/**
 * The state that a run began with. A key that is changed later is as the session's events before say; every other one
 * is as it is now. What the tape kept wins: shared state changes in other sessions too.
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
