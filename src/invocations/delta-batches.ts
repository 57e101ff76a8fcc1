import { type AppendedDeltas, appendDeltasOfAll, type DeltaWrite } from '../conversation/sessions/delta-store.ts';
import { runOutside } from '../platform/context.ts';
import type { DatabasePool } from '../platform/db/database.ts';

/**
 * Intervals in milliseconds at which text is stored, the shortest first: the first words soon, later ones in larger
 * batches. Each is a multiple of {@link TICK_MS}, so that streams are stored at the same moments.
 */
export const [FIRST_MS, LIVE_MS, LONG_MS] = [25, 75, 250];
const TICK_MS = FIRST_MS;
/** Maximum size of one statement, in characters of text. A single stream may exceed it. */
const MAX_STATEMENT = 1_048_576;

/** A stream whose text is stored in batches. */
export interface DeltaSource {
  /** Takes the text to store, whose result goes to `settle`; `undefined` while another write is under way. */
  take(): DeltaWrite | undefined;
  settle(appending: Promise<AppendedDeltas>): void;
}

/** Stores the streamed text of this process's invocations. One statement stores the text of all that are due. */
export class DeltaBatches {
  readonly #database: DatabasePool;
  /** The streams with text to store, and when it is due, by the monotonic clock. */
  readonly #due = new Map<DeltaSource, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(database: DatabasePool) {
    this.#database = database;
  }

  /** Stores a stream's text at the next of the moments that are `interval` ms apart, unless it is already due. */
  add(source: DeltaSource, interval: number): void {
    if (this.#due.has(source)) return;
    this.#due.set(source, nextMoment(interval));
    this.#startTimer();
  }

  /** Stores a stream's text at the next moment of {@link LONG_MS}, even if it is due before. */
  putOff(source: DeltaSource): void {
    this.#due.set(source, nextMoment(LONG_MS));
    this.#startTimer();
  }

  remove(source: DeltaSource): void {
    this.#due.delete(source);
  }

  readonly #store = (): void => {
    this.#timer = undefined;
    const now = performance.now();
    let batch: { source: DeltaSource; write: DeltaWrite }[] = [];
    let size = 0;
    for (const [source, due] of this.#due) {
      const write = due > now ? undefined : source.take();
      if (!write) continue;
      this.#due.delete(source);
      if (write.pieces.length === 0) continue;
      batch.push({ source, write });
      size += write.pieces.reduce((sum, { text }) => sum + text.length, 0);
      if (size < MAX_STATEMENT) continue;
      this.#send(batch);
      [batch, size] = [[], 0];
    }
    this.#send(batch);
    if (this.#due.size > 0) this.#startTimer();
  };

  #startTimer(): void {
    if (this.#timer) return;
    const waitMs = Math.ceil(nextMoment(TICK_MS) - performance.now());
    // The statement is for streams of several users, so it must not run as the one whose text started the timer.
    this.#timer = runOutside(() => setTimeout(this.#store, waitMs));
  }

  #send(batch: { source: DeltaSource; write: DeltaWrite }[]): void {
    if (batch.length === 0) return;
    const writes = batch.map(({ write }) => write);
    const appended = appendDeltasOfAll(this.#database.db, writes);
    for (const [place, { source }] of batch.entries()) source.settle(appended[place] as Promise<AppendedDeltas>);
  }
}

const nextMoment = (interval: number) => (Math.floor(performance.now() / interval) + 1) * interval;
