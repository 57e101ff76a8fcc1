import { getParts, type Part } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { textTopic } from '../core/names.ts';
import { appendDeltas } from '../conversation/sessions/delta-store.ts';
import type { EventFrame, InvocationContext } from './context.ts';
import type { Lease } from './lock-store.ts';

/** How long text is batched: one statement per token would cost more than the model's answer. */
const BATCH_MS = 75;
/** Number of characters at which a batch is stored at once. */
const BATCH_CHARACTERS = 4_096;

/** The streamed text of an event that is not complete yet. */
interface OpenText {
  /** The newest partial event of this text. */
  event: NewEvent;
  /** Parts that are not stored yet. `undefined` when storing has stopped; the deltas are then a prefix of the event. */
  parts: Part[] | undefined;
  /** Characters received so far. */
  size: number;
  /** Number of the last stored delta of this text. */
  last?: number;
}

/**
 * Stores the streamed text of an invocation in batches, for readers at other connections and processes. The model and
 * the writes do not wait for each other. An event that completes within one batch stores no deltas.
 */
export class DeltaWriter {
  readonly #context: Pick<InvocationContext, 'database' | 'notifications' | 'newId' | 'now' | 'log' | 'limits'>;
  readonly #lease: Lease;
  readonly #onStored: ((frame: EventFrame) => void) | undefined;
  /** By event id. Parallel agents stream several events at once. */
  readonly #texts = new Map<string, OpenText>();
  #waiting = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Chains the statements, because each must know what the one before stored. */
  #turn: Promise<unknown> = Promise.resolve();

  /** @param onStored - called with each delta after it was stored */
  constructor(context: InvocationContext, lease: Lease, onStored: ((frame: EventFrame) => void) | undefined) {
    this.#context = context;
    this.#lease = lease;
    this.#onStored = onStored;
  }

  /** Adds a partial event, which has the id of the complete event to come. Other content than text is not stored. */
  add(event: NewEvent): void {
    const added = getParts(event.content);
    const size = added.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    if (size === 0 || added.some(({ text }) => text === undefined)) return;
    const open = this.#texts.get(event.id) ?? { event, parts: [], size: 0 };
    this.#texts.set(event.id, open);
    // The complete event would exceed the size limit.
    if ((open.size += size) > this.#context.limits.eventBytes) open.parts = undefined;
    if (!open.parts) return;
    open.event = event;
    for (const part of added) addPart(open.parts, part);
    this.#waiting += size;
    if (this.#waiting >= BATCH_CHARACTERS) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), BATCH_MS);
  }

  /**
   * Stops the text of an event that is complete now; `append` stores that event.
   * @param append - called with true if deltas of the event may be stored
   */
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

  /** Number of the last stored delta of incomplete events; `undefined` for none. */
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
    // An unconfirmed write is not retried: a reader would get text twice or with a hole.
    if (!stored) return this.#close();
    for (const [place, { open, event, text }] of pieces.entries()) {
      open.last = stored.last - pieces.length + place + 1;
      this.#onStored?.({ text, event, sequence: stored.sequence, delta: open.last });
    }
    notifications.publish(textTopic(this.#lease.key));
  }
}

/** Appends a part; text is merged into a preceding part of the same kind. */
function addPart(parts: Part[], part: Part): void {
  const last = parts.at(-1);
  if (last && last.thought === part.thought) parts[parts.length - 1] = { ...last, text: `${last.text}${part.text}` };
  else parts.push(part);
}
