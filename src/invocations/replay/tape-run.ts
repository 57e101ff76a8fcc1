import type { ModelAnswer } from '../../agent/definition/model.ts';
import { getConfirmedId, isMadeBy, listConfirmationRequests, listSteps, type Step } from '../../agent/loop/script.ts';
import { toOriginal } from '../../agent/loop/structured-output.ts';
import { getFunctionCalls, getParts, type JsonObject, type Part } from '../../core/content.ts';
import { type Event, type EventActions, isSteer } from '../../core/event.ts';
import type { SessionHistory } from '../../conversation/sessions/history.ts';
import type { Tape } from '../tape.ts';
import { isDeepStrictEqual } from 'node:util';
import { cloneJson } from '../../core/exact-json.ts';

/** One stored run of an invocation. An invocation that was resumed has several runs. */
export interface TapeRun {
  /** Events of the session when the run began; the last one is the prompt. */
  history: Event[];
  /** All events of the session after `history`. */
  later: Event[];
  /** Events that the loop produced. */
  events: Step[];
  /** Messages that the invocation took while it ran, each with the number of `events` before it. */
  messages: { event: Event; after: number }[];
  /** Events that the runtime added because the loop could not go on: responses to open calls, and the error. */
  ending: Step[];
  /** The tape of the run. `undefined` if its process died, or if the invocation had too many tapes (with_tape). */
  tape: Tape | undefined;
}

/** An invocation's runs in order; none without stored events. Ignores events of clients, whatever they claim. */
export function toRuns(
  session: Pick<SessionHistory, 'events' | 'runtimeEventIds'>,
  invocationId: string,
  tapes: Tape[],
): TapeRun[] {
  const stored = listSteps(session, invocationId);
  const starts = [...new Set([...guessStarts(stored, tapes), ...tapes.map(({ start }) => start)])];
  const ordered = starts.toSorted((one, other) => one - other);
  return ordered.flatMap((start, index) => {
    const end = ordered[index + 1] ?? Number.POSITIVE_INFINITY;
    const own = stored.filter(
      ({ event, isOwn, sequence }) => isOwn && event.author !== 'user' && sequence > start && sequence <= end,
    );
    const tape = tapes.find((one) => one.start === start);
    if (own.length === 0 && !tape) return [];
    const ending = findEnding(own);
    const events = own.slice(0, own.length - ending.length);
    const messages = stored
      .filter(({ event, isOwn, sequence }) => isOwn && isSteer(event) && sequence > start && sequence <= end)
      .map(({ event, sequence }) => ({ event, after: events.filter((step) => step.sequence < sequence).length }));
    const [history, later] = [session.events.slice(0, start), session.events.slice(start)];
    return [{ history, later, events, messages, ending, tape }];
  });
}

/** Returns the ids of the calls that people confirmed, or that received their response after their run. */
export function listAttendedCalls({ events, runtimeEventIds }: SessionHistory): ReadonlySet<string> {
  const own = events.filter(({ id }) => runtimeEventIds.has(id ?? ''));
  const ids = own.flatMap((event) => [
    ...(event.longRunningToolIds ?? []),
    ...Object.keys(event.actions?.requestedToolConfirmations ?? {}),
    ...listConfirmationRequests(event).flatMap((request) => getConfirmedId(request) ?? []),
  ]);
  return new Set(ids);
}

/**
 * Runs without a tape began after each prompt, and after each error from which the agent was resumed. They come before
 * the first tape, or after the last one, where only a prompt counts.
 */
function guessStarts(stored: Step[], tapes: Tape[]): number[] {
  const first = tapes[0]?.start ?? Number.POSITIVE_INFINITY;
  const last = tapes.at(-1)?.start ?? Number.POSITIVE_INFINITY;
  return stored.flatMap(({ event, sequence }, index) => {
    const before = stored[index - 1]?.event;
    // A message behind a step begins no run.
    if (isSteer(event) && before && before.author !== 'user') return [];
    if (sequence > first) return event.author === 'user' && sequence > last ? [sequence] : [];
    if (event.author === 'user') return [sequence];
    return index === 0 || (before?.errorCode && before.author !== 'user' && !event.errorCode) ? [sequence - 1] : [];
  });
}

/** Returns the events at the end of a run that the runtime added. Unlike events of the loop, they have no actions. */
function findEnding(own: Step[]): Step[] {
  const isOfRuntime = ({ event }: Step) =>
    event.actions == null && Boolean(event.errorCode || isMadeBy('tools', event));
  const from = own.findLastIndex((one) => !isOfRuntime(one)) + 1;
  return own.slice(from);
}

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
export function getResponses(events: Step[]): Map<string, { stored: Step; part: Part }> {
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

export interface ToolRun {
  id: string;
  name: string;
  args: JsonObject;
}

interface StoredAnswer {
  stored: Step;
  part: Part;
}

export class StoredAnswers {
  readonly #responses: Map<string, StoredAnswer>;
  readonly #calls: ToolRun[];
  /** Ids of the calls whose stored response {@link findLike} has already returned. */
  readonly #used = new Set<string>();
  /** Events whose actions were already applied. One event holds the actions of all tool calls of its step. */
  readonly #acted = new Set<Step>();

  constructor({ events, ending, history }: TapeRun) {
    this.#responses = getResponses([...events, ...ending]);
    const all = [...history, ...events.map(({ event }) => event)];
    this.#calls = all.flatMap((event) =>
      getFunctionCalls(event.content).flatMap(({ id, name, args }) =>
        id && this.#responses.has(id) ? [{ id, name: name ?? '', args: args ?? {} }] : [],
      ),
    );
  }

  find(id: string): StoredAnswer | undefined {
    return this.#responses.get(id);
  }

  /** Returns the next unused stored response of this tool to the same arguments. */
  findLike({ id, name, args }: ToolRun): StoredAnswer | undefined {
    if (this.#responses.has(id)) return this.find(id);
    const like = this.#calls.find(
      (call) => call.name === name && !this.#used.has(call.id) && isDeepStrictEqual(call.args, args),
    );
    if (!like) return undefined;
    this.#used.add(like.id);
    return this.find(like.id);
  }

  /** A stored event's effects of one tool call, without the loop's own; the first call gets the event's actions. */
  effectsOf({ stored, part }: StoredAnswer, id: string): { actions: EventActions; attachments: Part[] } {
    const attachments = cloneJson((part.functionResponse?.parts ?? []) as Part[]);
    if (this.#acted.has(stored)) return { actions: {}, attachments };
    this.#acted.add(stored);
    const { requestedToolConfirmations = {}, skipSummarization, ...actions } = stored.event.actions ?? {};
    const isConfirmation = Object.keys(requestedToolConfirmations ?? {}).length > 0;
    const own = requestedToolConfirmations?.[id];
    return {
      actions: cloneJson({
        ...actions,
        ...(skipSummarization && !isConfirmation ? { skipSummarization } : {}),
        ...(own === undefined ? {} : { requestedToolConfirmations: { [id]: own } }),
      }),
      attachments,
    };
  }
}
