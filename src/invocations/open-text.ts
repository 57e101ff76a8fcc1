import type { Delta } from '../conversation/sessions/delta-store.ts';

/** A position in the event stream of a session: behind an event and behind a delta of the next events. */
export interface Position {
  /** Sequence of the last event; 0 for none. */
  sequence: number;
  /** Number of the last delta whose complete event is not stored yet; 0 for none. */
  delta: number;
}

/** Formats a position as stream ids do: `sequence` or `sequence.delta`. */
export const formatPosition = ({ sequence, delta }: Position): string =>
  delta > 0 ? `${sequence}.${delta}` : String(sequence);

/** Parses a position whose format was already checked. */
export function parsePosition(text: string): Position {
  const [sequence, delta = 0] = text.split('.').map(Number);
  return { sequence: sequence ?? 0, delta };
}

/** What one reader has received of events that are not complete yet. */
export class OpenText {
  /** Ids of incomplete events whose text the reader has. */
  readonly #eventIds = new Set<string>();
  /** Number of the last delta that the reader has; 0 for none. */
  delta: number;

  /** @param delta - the delta of the position where the reader resumes */
  constructor(delta: number) {
    this.delta = delta;
  }

  /** True for a reader that resumes behind a delta before it is known to which event that delta belongs. */
  get isUnknown(): boolean {
    return this.delta > 0 && this.#eventIds.size === 0;
  }

  /** Forgets all text, because the reader was told to discard it. */
  clear(): void {
    this.#eventIds.clear();
    this.delta = 0;
  }

  /** Notes that a complete event has replaced its deltas. */
  replace(eventId: string): void {
    if (this.#eventIds.delete(eventId) && this.#eventIds.size === 0) this.delta = 0;
  }

  /**
   * Compares the reader's text with the deltas of the session.
   * @returns false if the reader has orphaned text: its writer died, or its event was stored while the reader was away
   */
  matches(deltas: readonly Delta[]): boolean {
    if (!this.isUnknown) return [...this.#eventIds].every((id) => deltas.some(({ eventId }) => eventId === id));
    // Delta numbers are never reused, so a delta at or before the position shows that the position is in this text.
    for (const { number, eventId } of deltas) if (number <= this.delta) this.#eventIds.add(eventId);
    return this.#eventIds.size > 0;
  }

  /**
   * Returns the deltas that the reader lacks, and marks them as received. `deltas` may be older than the ones of an
   * earlier call, because reads overlap and may be answered by a replica.
   */
  take(deltas: readonly Delta[]): readonly Delta[] {
    const next = deltas.slice(deltas.findLastIndex(({ number }) => number <= this.delta) + 1);
    for (const { eventId } of next) this.#eventIds.add(eventId);
    this.delta = Math.max(this.delta, deltas.at(-1)?.number ?? 0);
    return next;
  }
}
