import type { Delta } from '../conversation/sessions/delta-store.ts';

/** A position in a session's event stream: after an event, and after a delta of the incomplete events that follow. */
export interface Position {
  /** Sequence of the last event before the position; 0 if there is none. */
  sequence: number;
  /** Number of the last delta before the position whose complete event is not stored yet; 0 if there is none. */
  delta: number;
}

/** Formats a position as the id of a server-sent event: `sequence` or `sequence.delta`. */
export const formatPosition = ({ sequence, delta }: Position): string =>
  delta > 0 ? `${sequence}.${delta}` : String(sequence);

export function parsePosition(text: string): Position {
  const [sequence, delta = 0] = text.split('.').map(Number);
  return { sequence: sequence ?? 0, delta };
}

/** The text that one reader of the event stream has received of events that are not complete yet. */
export class OpenText {
  /** Ids of incomplete events whose text the reader has. */
  readonly #eventIds = new Set<string>();
  /** Number of the last delta that the reader has; 0 if there is none. */
  delta: number;

  /** @param delta - number of the last delta before the position where the reader resumes */
  constructor(delta: number) {
    this.delta = delta;
  }

  /** True if the reader resumes after a delta, and the event of that delta is not known yet. */
  get isUnknown(): boolean {
    return this.delta > 0 && this.#eventIds.size === 0;
  }

  /** Forgets all text, because the reader was told to discard it. */
  clear(): void {
    this.#eventIds.clear();
    this.delta = 0;
  }

  /** Records that a complete event has replaced its deltas. */
  replace(eventId: string): void {
    if (this.#eventIds.delete(eventId) && this.#eventIds.size === 0) this.delta = 0;
  }

  /**
   * False if the reader has orphaned text: the process that wrote it died, or its complete event was stored while the
   * reader was disconnected.
   * @param events - the next events that the reader gets, which replace their text
   */
  matches(deltas: readonly Delta[], events: readonly { id: string }[] = []): boolean {
    const known = new Set([...deltas.map(({ eventId }) => eventId), ...events.map(({ id }) => id)]);
    if (!this.isUnknown) return [...this.#eventIds].every((id) => known.has(id));
    // Delta numbers are never reused, so one at or before the reader's position belongs to text that the reader has.
    for (const { number, eventId } of deltas) if (number <= this.delta) this.#eventIds.add(eventId);
    return this.#eventIds.size > 0;
  }

  /**
   * The deltas that the reader lacks. `deltas` may be older than before, because reads overlap and replicas serve them.
   */
  take(deltas: readonly Delta[]): readonly Delta[] {
    const next = deltas.slice(deltas.findLastIndex(({ number }) => number <= this.delta) + 1);
    for (const { eventId } of next) this.#eventIds.add(eventId);
    this.delta = Math.max(this.delta, deltas.at(-1)?.number ?? 0);
    return next;
  }
}
