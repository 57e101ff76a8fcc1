import type { z } from 'zod';
import type { Content, JsonObject, Part } from '../../core/content.ts';
import type { Event, EventActions } from '../../core/event.ts';
import { type JsonDifference, jsonDifference } from '../../core/json-difference.ts';
import type { replayDifferenceSchema } from './replay-schema.ts';
import type { TapeRun } from './tape-run.ts';
import type { Step } from '../../agent/loop/script.ts';

/** A difference and the event to which it belongs. */
export type ReplayDifference = z.infer<typeof replayDifferenceSchema>;

/** Compares replayed with stored events per branch, because events of parallel agents have no fixed order. */
export class Differences {
  /** The first difference, in a model request or in an event. */
  first: ReplayDifference | undefined;
  firstEvent: ReplayDifference | undefined;
  compared = 0;
  readonly #stored: Step[];
  readonly #comparedEvents = new Set<Step>();
  /** Numbers of the function calls in the stored and in the replayed events, by branch. */
  readonly #numbers = new Map<string, { stored: CallNumbers; replayed: CallNumbers }>();
  readonly #end: number;

  constructor({ events, ending }: TapeRun, firstPlace: number) {
    this.#stored = [...events, ...ending];
    this.#end = (this.#stored.at(-1)?.place ?? firstPlace - 1) + 1;
  }

  /** Returns the first stored event that has not been compared yet and for which `counts` returns true. */
  next(counts: (event: Event) => boolean = () => true): Step | undefined {
    return this.#stored.find((one) => !this.#comparedEvents.has(one) && counts(one.event));
  }

  /** Returns the first event among the next `places` stored events for which `isWanted` returns true. */
  peek(places: number, isWanted: (event: Event) => boolean): Event | undefined {
    const remaining = this.#stored.filter((one) => !this.#comparedEvents.has(one));
    return remaining.slice(0, places).find(({ event }) => isWanted(event))?.event;
  }

  /** @returns the stored event that it was compared with; `undefined` if there is none */
  take(event: Event): Step | undefined {
    const branch = event.branch ?? '';
    const numbers = this.#numbers.get(branch) ?? { stored: new CallNumbers(), replayed: new CallNumbers() };
    this.#numbers.set(branch, numbers);
    this.compared += 1;
    const stored = this.next((one) => (one.branch ?? '') === branch);
    const after = toComparable(event, numbers.replayed);
    if (!stored) {
      this.#note(undefined, { path: '', before: null, after }, true);
      return undefined;
    }
    this.#comparedEvents.add(stored);
    const difference = jsonDifference(toComparable(stored.event, numbers.stored), after);
    if (difference) this.#note(stored, difference, true);
    return stored;
  }

  /** A request's difference belongs to the stored event that it produced, or without one to the next event. */
  noteRequest(stored: Step | undefined, difference: JsonDifference): void {
    this.#note(stored ?? this.next(), difference, false);
  }

  /** Records the first stored event that the replay did not reach as a difference. */
  end(): void {
    const missing = this.next();
    if (missing)
      this.#note(missing, { path: '', before: toComparable(missing.event, new CallNumbers()), after: null }, true);
  }

  #note(stored: Step | undefined, difference: JsonDifference, isOfEvent: boolean): void {
    const { place: event = this.#end, sequence } = stored ?? {};
    const id = stored?.event.id;
    const entry = {
      event,
      ...(sequence === undefined ? {} : { sequence }),
      ...(id ? { eventId: id } : {}),
      ...difference,
    };
    if (!this.first || event < this.first.event) this.first = entry;
    if (isOfEvent && (!this.firstEvent || event < this.firstEvent.event)) this.firstEvent = entry;
  }
}

/** Numbers call ids in order of appearance, because two runs have different ids for the same call. */
class CallNumbers {
  readonly #numbers = new Map<string, number>();

  of(id: string | null | undefined): number | null {
    if (id == null) return null;
    const number = this.#numbers.get(id) ?? this.#numbers.size + 1;
    this.#numbers.set(id, number);
    return number;
  }
}

/** What two runs' events can have in common: no ids, times, token counts or request metadata. */
function toComparable(event: Event, calls: CallNumbers): JsonObject {
  const { author, branch, finishReason, errorCode, errorMessage, interrupted, modelVersion } = event;
  const content = event.content ? toComparableContent(event.content, calls) : undefined;
  const longRunning = (event.longRunningToolIds ?? []).map((id) => calls.of(id));
  return withoutAbsent({
    author,
    branch,
    content,
    errorCode,
    errorMessage,
    interrupted: interrupted === true ? true : undefined,
    longRunningToolIds: longRunning.length > 0 ? longRunning : undefined,
    actions: toComparableActions(event.actions ?? {}, calls),
    finishReason,
    modelVersion,
    groundingMetadata: event.groundingMetadata,
    citationMetadata: event.citationMetadata,
  });
}

const toComparableContent = ({ role, parts }: Content, calls: CallNumbers) => ({
  role,
  parts: (parts ?? []).map((part) => toComparablePart(part, calls)),
});

/** Drops thought signatures, which differ each time a model replies. */
function toComparablePart({ thoughtSignature: _signature, ...part }: Part, calls: CallNumbers): JsonObject {
  const { functionCall: call, functionResponse: response } = part;
  if (call)
    return { ...part, functionCall: { ...call, args: toComparableArgs(call.args, calls), id: calls.of(call.id) } };
  return response ? { ...part, functionResponse: { ...response, id: calls.of(response.id) } } : part;
}

/** Replaces call ids by numbers in the arguments of a call, including the call inside a confirmation request. */
function toComparableArgs(args: JsonObject | null | undefined, calls: CallNumbers): JsonObject {
  const original = args?.['originalFunctionCall'] as { id?: string } | undefined;
  return original?.id === undefined
    ? (args ?? {})
    : { ...args, originalFunctionCall: { ...original, id: calls.of(original.id) } };
}

/** Drops empty actions, and the times of a compaction, because the compacted events are compared anyway. */
function toComparableActions(actions: EventActions, calls: CallNumbers): JsonObject | undefined {
  const { compaction, requestedToolConfirmations, ...others } = actions;
  const requested = Object.entries(requestedToolConfirmations ?? {}).map(([id, value]) => [calls.of(id), value]);
  const all = withoutAbsent({
    ...others,
    requestedToolConfirmations: requested.length > 0 ? requested : undefined,
    compaction: compaction?.compactedContent,
  });
  const members = Object.entries(all).filter(([, value]) => !isEmptyObject(value));
  return members.length > 0 ? Object.fromEntries(members) : undefined;
}

const isEmptyObject = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

const withoutAbsent = (members: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined && value !== null));
