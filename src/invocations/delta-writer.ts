import type { Part } from '../core/content.ts';
import { getParts } from '../core/content.ts';
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
  /** Parts that are not stored yet. */
  parts: Part[];
  /** Characters so far. */
  size: number;
  /** Number of its last stored piece. */
  last?: number;
  /** True: no more of it is stored. What is stored is a beginning of it, and the whole event follows. */
  isClosed?: boolean;
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
  #writing: Promise<void> | undefined;
  /** True once a statement was sent. */
  #isUsed = false;
  /** True once it is not known what is stored. */
  #isUnsure = false;

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
    if ((open.size += size) > this.#context.limits.eventBytes) open.isClosed = true;
    if (open.isClosed) return;
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
    Object.assign(open, { parts: [], isClosed: true });
    await this.#writing;
    if (open.last === undefined && !this.#isUnsure) {
      this.#texts.delete(eventId);
      return append(false);
    }
    // Meanwhile nothing else is written: what the next statement finds there is known.
    const appended = append(true);
    this.#hold(
      appended.then(
        () => void this.#texts.delete(eventId),
        () => undefined,
      ),
    );
    return appended;
  }

  /** Ends all of it. @returns true where some may be stored */
  async end(): Promise<boolean> {
    clearTimeout(this.#timer);
    for (const open of this.#texts.values()) Object.assign(open, { parts: [], isClosed: true });
    await this.#writing;
    return this.#isUsed;
  }

  /** The number of the last piece that is stored of events to come; `undefined` for none. */
  get last(): number | undefined {
    const numbers = [...this.#texts.values()].flatMap(({ last }) => last ?? []);
    return numbers.length > 0 ? Math.max(...numbers) : undefined;
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#writing) this.#hold(this.#write());
  }

  /** Writes nothing until `writing` has settled. */
  #hold(writing: Promise<void>): void {
    this.#writing = writing.finally(() => {
      this.#writing = undefined;
      if (this.#waiting > 0) this.#timer ??= setTimeout(() => this.#flush(), BATCH_MS);
    });
  }

  async #write(): Promise<void> {
    const { newId, now, database, notifications, log } = this.#context;
    const texts = [...this.#texts.values()].filter(({ parts }) => parts.length > 0);
    const pieces = texts.map(({ event, parts }) => {
      const content = { role: 'model', parts };
      return { event, eventId: event.id, text: JSON.stringify({ ...event, id: newId(), content, timestamp: now() }) };
    });
    for (const open of texts) open.parts = [];
    this.#waiting = 0;
    if (pieces.length === 0) return;
    this.#isUsed = true;
    const stored = await appendDeltas(database.db, this.#lease, this.last, pieces).catch((error: unknown) => {
      log.warn({ err: error, invocationId: this.#lease.invocationId }, 'text could not be stored as it came');
      return undefined;
    });
    if (!stored) {
      // A try whose end is not known is not repeated: a reader would have text twice, or with a hole.
      this.#isUnsure = true;
      for (const open of this.#texts.values()) open.isClosed = true;
      return;
    }
    const before = stored.last - pieces.length;
    for (const [place, { event, text }] of pieces.entries()) {
      const number = before + place + 1;
      (texts[place] as OpenText).last = number;
      this.#onStored?.({ text, event, sequence: stored.sequence, delta: number });
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
