import { getParts, type Part } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { textTopic } from '../core/names.ts';
import { appendDeltas } from '../conversation/sessions/delta-store.ts';
import type { EventFrame, InvocationContext } from './context.ts';
import type { Lease } from './lock-store.ts';

/** How long text waits for more: a statement for each token would cost more than the model's own answer. */
const BATCH_MS = 75;
/** Characters that are stored without a wait for more. */
const BATCH_CHARACTERS = 4_096;

/** The text of an event to come. */
interface OpenText {
  /** Its newest partial event. */
  event: NewEvent;
  /** Parts that are not stored yet; `undefined` once no more are: what is stored is a beginning of the whole event. */
  parts: Part[] | undefined;
  /** Characters so far. */
  size: number;
  /** Number of its last stored piece. */
  last?: number;
}

/**
 * Stores the text of an invocation that streams as it comes, in batches, for readers of other connections and
 * processes. The model is not waited for, nor does it wait. An event that is whole within a batch leaves no trace.
 */
export class DeltaWriter {
  readonly #context: Pick<InvocationContext, 'database' | 'notifications' | 'newId' | 'now' | 'log' | 'limits'>;
  readonly #lease: Lease;
  readonly #onStored: ((frame: EventFrame) => void) | undefined;
  /** By id of the event to come. Agents that run side by side write several at once. */
  readonly #texts = new Map<string, OpenText>();
  #waiting = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Statements follow one another: what one finds stored is known. */
  #turn: Promise<unknown> = Promise.resolve();

  /** @param onStored - called with each piece once it is stored, with its place */
  constructor(context: InvocationContext, lease: Lease, onStored: ((frame: EventFrame) => void) | undefined) {
    this.#context = context;
    this.#lease = lease;
    this.#onStored = onStored;
  }

  /** Takes a partial event whose id is that of the event to come. One that is not text is not stored. */
  add(event: NewEvent): void {
    const added = getParts(event.content);
    const size = added.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    if (size === 0 || added.some(({ text }) => text === undefined)) return;
    const open = this.#texts.get(event.id) ?? { event, parts: [], size: 0 };
    this.#texts.set(event.id, open);
    // The whole event would be refused.
    if ((open.size += size) > this.#context.limits.eventBytes) open.parts = undefined;
    if (!open.parts) return;
    open.event = event;
    for (const part of added) addPart(open.parts, part);
    this.#waiting += size;
    if (this.#waiting >= BATCH_CHARACTERS) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), BATCH_MS);
  }

  /**
   * Ends the text of an event that is whole now: `append` stores the event in its place.
   * @param append - called with true where some of its text may be stored
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

  /** Stores no more. */
  async end(): Promise<void> {
    clearTimeout(this.#timer);
    this.#close();
    await this.#turn;
  }

  /** The number of the last piece that is stored of events to come; `undefined` for none. */
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
    // A try whose end is not known is not repeated: a reader would have text twice, or with a hole.
    if (!stored) return this.#close();
    for (const [place, { open, event, text }] of pieces.entries()) {
      open.last = stored.last - pieces.length + place + 1;
      this.#onStored?.({ text, event, sequence: stored.sequence, delta: open.last });
    }
    notifications.publish(textTopic(this.#lease.key));
  }
}

/** Adds a part to others; text goes on with the text before it that is of the same kind. */
function addPart(parts: Part[], part: Part): void {
  const last = parts.at(-1);
  if (last && last.thought === part.thought) parts[parts.length - 1] = { ...last, text: `${last.text}${part.text}` };
  else parts.push(part);
}
