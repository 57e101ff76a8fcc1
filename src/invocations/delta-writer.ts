import { getParts, type Part } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { textTopic } from '../core/names.ts';
import { appendDeltas } from '../conversation/sessions/delta-store.ts';
import type { InvocationContext } from './context.ts';
import type { EventFrame } from './request.ts';
import type { Lease } from './lock-store.ts';

/** Time in milliseconds to collect streamed text, because one SQL statement per token would be too expensive. */
const BATCH_MS = 75;
/** Number of collected characters at which the text is stored without waiting for {@link BATCH_MS}. */
const BATCH_CHARACTERS = 4_096;

/** The streamed text of an event that is not complete yet. */
interface OpenText {
  /** The newest partial event of this text. */
  event: NewEvent;
  /** Text parts not stored yet; `undefined` if no more text is stored: the deltas are a prefix of the event's text. */
  parts: Part[] | undefined;
  /** Number of characters of the text that the model has sent so far. */
  size: number;
  /** Number of the last stored delta of this text. */
  last?: number;
}

/**
 * Stores the streamed text of an invocation in batches (deltas), for clients of other connections and processes. The
 * model does not wait for the writes. An event that completes within one batch stores no deltas.
 */
export class DeltaWriter {
  readonly #context: Pick<InvocationContext, 'database' | 'notifications' | 'newId' | 'now' | 'log' | 'limits'>;
  readonly #lease: Lease;
  readonly #onStored: ((frame: EventFrame) => void) | undefined;
  /** The open texts by event id. Several events may stream at once, because agents may run in parallel. */
  readonly #texts = new Map<string, OpenText>();
  #waiting = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Settles when the last write is done. Writes run in turn, because each needs the previous one's delta number. */
  #turn: Promise<unknown> = Promise.resolve();

  /** @param onStored - called with each delta after the delta was stored */
  constructor(context: InvocationContext, lease: Lease, onStored: ((frame: EventFrame) => void) | undefined) {
    this.#context = context;
    this.#lease = lease;
    this.#onStored = onStored;
  }

  /** Adds a partial event. Its id is that of the complete event that follows. Only text is stored. */
  add(event: NewEvent): void {
    const added = getParts(event.content);
    const size = added.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    if (size === 0 || added.some(({ text }) => text === undefined)) return;
    const open = this.#texts.get(event.id) ?? { event, parts: [], size: 0 };
    this.#texts.set(event.id, open);
    // The complete event would exceed the maximum size, so its text is no longer stored.
    if ((open.size += size) > this.#context.limits.eventBytes) open.parts = undefined;
    if (!open.parts) return;
    open.event = event;
    for (const part of added) addPart(open.parts, part);
    this.#waiting += size;
    if (this.#waiting >= BATCH_CHARACTERS) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), BATCH_MS);
  }

  /** Replaces an event's deltas. @param append - stores the complete event; called with true if deltas may be stored */
  async replace<T>(eventId: string, append: (hasDeltas: boolean) => Promise<T>): Promise<T> {
    const open = this.#texts.get(eventId);
    if (!open) return append(false);
    open.parts = undefined;
    return this.#inTurn(async () => {
      const appended = await append(true);
      this.#texts.delete(eventId);
      return appended;
    });
  }

  async end(): Promise<void> {
    clearTimeout(this.#timer);
    this.#close();
    await this.#turn;
  }

  /** Number of the last stored delta of any incomplete event; `undefined` if there is none. */
  get last(): number | undefined {
    const numbers = [...this.#texts.values()].flatMap(({ last }) => last ?? []);
    return numbers.length > 0 ? Math.max(...numbers) : undefined;
  }

  #close(): void {
    for (const open of this.#texts.values()) open.parts = undefined;
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#waiting = 0;
    void this.#inTurn(() => this.#write());
  }

  async #write(): Promise<void> {
    const { newId, now, database, notifications, log } = this.#context;
    const pieces = [...this.#texts.values()].flatMap((open) => {
      const { event, parts } = open;
      if (!parts?.length) return [];
      open.parts = [];
      const content = { role: 'model', parts };
      const text = JSON.stringify({ ...event, id: newId(), content, timestamp: now() });
      return [{ open, event, eventId: event.id, text }];
    });
    if (pieces.length === 0) return;
    const stored = await appendDeltas(database.db, this.#lease, this.last, pieces).catch((error: unknown) => {
      log.warn({ err: error, invocationId: this.#lease.invocationId }, 'text could not be stored as it came');
      return undefined;
    });
    // A write without a confirmation is not retried: a client would get the same text twice, or text would be missing.
    if (!stored) return this.#close();
    for (const [place, { open, event, text }] of pieces.entries()) {
      open.last = stored.last - pieces.length + place + 1;
      this.#onStored?.({ text, event, sequence: stored.sequence, delta: open.last });
    }
    notifications.publish(textTopic(this.#lease.key));
  }
}

/** Appends a part. Text is merged into the preceding part if both are thoughts or both are not. */
function addPart(parts: Part[], part: Part): void {
  const last = parts.at(-1);
  if (last && last.thought === part.thought) parts[parts.length - 1] = { ...last, text: `${last.text}${part.text}` };
  else parts.push(part);
}
