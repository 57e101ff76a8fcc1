import type { JsonDifference } from '../../core/json-difference.ts';
import type { Event } from '../../core/event.ts';
import { jsonDifference } from '../../core/json-difference.ts';
import { CallNumbers, toComparable } from './comparable.ts';
import type { StoredEvent, TapeRun } from './tape-run.ts';

/** A difference and the event that it is about. */
export interface ReplayDifference extends JsonDifference {
  /** Place of the event within the invocation, from 0. */
  event: number;
  /** Its place in the session, from 1; absent for an event that only the replay has. */
  sequence?: number;
  eventId?: string;
}

/** The calls of both sides of one branch. */
interface Numbers {
  stored: CallNumbers;
  replayed: CallNumbers;
}

/** Compares events of a replay with stored ones, each branch by itself: which of them is faster is no difference. */
export class Differences {
  /** The first of all, requests of models included. */
  first: ReplayDifference | undefined;
  /** The first in an event itself. */
  firstEvent: ReplayDifference | undefined;
  /** Number of events that were compared. */
  compared = 0;
  readonly #stored: StoredEvent[];
  readonly #taken = new Set<StoredEvent>();
  readonly #numbers = new Map<string, Numbers>();
  readonly #end: number;

  constructor({ events, ending }: TapeRun, firstPlace: number) {
    this.#stored = [...events, ...ending];
    this.#end = (this.#stored.at(-1)?.place ?? firstPlace - 1) + 1;
  }

  /** The first stored event that was not compared yet and that `counts`. */
  next(counts: (event: Event) => boolean = () => true): StoredEvent | undefined {
    return this.#stored.find((one) => !this.#taken.has(one) && counts(one.event));
  }

  /** Compares an event of the replay with the next stored one of its branch. */
  take(event: Event): void {
    const branch = event.branch ?? '';
    const numbers = this.#numbers.get(branch) ?? { stored: new CallNumbers(), replayed: new CallNumbers() };
    this.#numbers.set(branch, numbers);
    this.compared += 1;
    const stored = this.next((one) => (one.branch ?? '') === branch);
    const after = toComparable(event, numbers.replayed);
    if (!stored) return this.#note(undefined, { path: '', before: null, after }, true);
    this.#taken.add(stored);
    const found = jsonDifference(toComparable(stored.event, numbers.stored), after);
    if (found) this.#note(stored, found, true);
  }

  /** Notes that the model call which made a stored event was given something else; without an event, the next one. */
  noteRequest(stored: StoredEvent | undefined, found: JsonDifference): void {
    this.#note(stored ?? this.next(), found, false);
  }

  /** Notes the stored events that the replay did not come to. */
  end(): void {
    const left = this.next();
    if (left) this.#note(left, { path: '', before: toComparable(left.event, new CallNumbers()), after: null }, true);
  }

  #note(stored: StoredEvent | undefined, found: JsonDifference, isOfEvent: boolean): void {
    const { place: event = this.#end, sequence } = stored ?? {};
    const id = stored?.event.id;
    const named = { event, ...(sequence === undefined ? {} : { sequence }), ...(id ? { eventId: id } : {}), ...found };
    if (!this.first || event < this.first.event) this.first = named;
    if (isOfEvent && (!this.firstEvent || event < this.firstEvent.event)) this.firstEvent = named;
  }
}
