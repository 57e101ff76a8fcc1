import type { Delta } from '../conversation/sessions/delta-store.ts';

/** A place in the stream of a session: behind an event, and of what comes behind that behind a delta. */
export interface Position {
  /** Sequence of the event; 0 for none. */
  sequence: number;
  /** Number of the delta whose event is still to come; 0 for none. */
  delta: number;
}

/** Writes a place as streams name it: `sequence`, or `sequence.delta`. */
export const formatPosition = ({ sequence, delta }: Position): string =>
  delta > 0 ? `${sequence}.${delta}` : String(sequence);

/** Reads a place; its form was checked. */
export function parsePosition(text: string): Position {
  const [sequence, delta = 0] = text.split('.').map(Number);
  return { sequence: sequence ?? 0, delta };
}

/** The text of events to come that one reader has. */
export class OpenText {
  /** Ids of the events that it has text of. */
  readonly #eventIds = new Set<string>();
  /** Number of the last delta that it has; 0 for none. */
  delta: number;

  /** @param delta - that of the place where the reader goes on */
  constructor(delta: number) {
    this.delta = delta;
  }

  /** True where a reader goes on that has text of which nothing is known yet. */
  get isUnknown(): boolean {
    return this.delta > 0 && this.#eventIds.size === 0;
  }

  /** Takes back all text. */
  clear(): void {
    this.#eventIds.clear();
    this.delta = 0;
  }

  /** An event has come: it replaces its text. */
  replace(eventId: string): void {
    if (this.#eventIds.delete(eventId) && this.#eventIds.size === 0) this.delta = 0;
  }

  /**
   * Compares with the text of the session. @returns false where the reader has text that is void: what wrote it has
   * died, or its event came while the reader was away.
   */
  isIn(deltas: readonly Delta[]): boolean {
    if (!this.isUnknown) return [...this.#eventIds].every((id) => deltas.some(({ eventId }) => eventId === id));
    // A number is never given twice, so the place is one of this text where some of it stands before the place.
    for (const { number, eventId } of deltas) if (number <= this.delta) this.#eventIds.add(eventId);
    return this.#eventIds.size > 0;
  }

  /**
   * Returns the deltas that the reader has not had, and counts them as had. `deltas` may be older than those before: of
   * two reads at once the one that began later may be the older, and so may one of a replica.
   */
  take(deltas: readonly Delta[]): readonly Delta[] {
    const next = deltas.slice(deltas.findLastIndex(({ number }) => number <= this.delta) + 1);
    for (const { eventId } of next) this.#eventIds.add(eventId);
    this.delta = Math.max(this.delta, deltas.at(-1)?.number ?? 0);
    return next;
  }
}
