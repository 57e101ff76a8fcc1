import { getParts, type Part } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { textTopic } from '../core/names.ts';
import type { AppendedDeltas, DeltaWrite } from '../conversation/sessions/delta-store.ts';
import { isUnsent } from '../platform/db/client.ts';
import type { InvocationContext } from './context.ts';
import { type DeltaSource, FIRST_MS, LIVE_MS, LONG_MS } from './delta-batches.ts';
import type { EventFrame } from './request.ts';
import type { Lease } from './lock-store.ts';

/** Number of batches of an invocation after which {@link LONG_MS} applies, unless its own client reads stored text. */
const SHORT_BATCHES = 10;

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

/** Text that is being stored. */
interface Piece {
  open: OpenText;
  event: NewEvent;
  eventId: string;
  parts: Part[];
  text: string;
}

/**
 * Stores the streamed text of an invocation in batches (deltas), for clients of other connections and processes. The
 * model does not wait for the writes. An event that completes within one batch stores no deltas.
 */
export class DeltaWriter implements DeltaSource {
  readonly #context: Pick<InvocationContext, 'deltas' | 'notifications' | 'newId' | 'now' | 'log' | 'limits'>;
  readonly #lease: Lease;
  readonly #onStored: ((frame: EventFrame) => void) | undefined;
  /** The open texts by event id. Several events may stream at once, because agents may run in parallel. */
  readonly #texts = new Map<string, OpenText>();
  #batches = 0;
  /** The text of the write under way. */
  #pieces: Piece[] = [];
  /** Settles when the last write is done. Writes run in turn, because each needs the previous one's delta number. */
  #turn: Promise<unknown> = Promise.resolve();
  /** Number of writes under way, and of those that wait for them. */
  #turns = 0;

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
    this.#storeLater();
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
    this.#close();
    await this.#turn;
  }

  /** Number of the last stored delta of any incomplete event; `undefined` if there is none. */
  get last(): number | undefined {
    const numbers = [...this.#texts.values()].flatMap(({ last }) => last ?? []);
    return numbers.length > 0 ? Math.max(...numbers) : undefined;
  }

  take(): DeltaWrite | undefined {
    if (this.#turns > 0) return undefined;
    const { newId, now } = this.#context;
    this.#pieces = [...this.#texts.values()].flatMap((open) => {
      const { event, parts } = open;
      if (!parts?.length) return [];
      open.parts = [];
      const content = { role: 'model', parts };
      const text = JSON.stringify({ ...event, id: newId(), content, timestamp: now() });
      return [{ open, event, eventId: event.id, parts, text }];
    });
    const { key, token } = this.#lease;
    return { key, token, after: this.last, pieces: this.#pieces.map(({ eventId, text }) => ({ eventId, text })) };
  }

  settle(appending: Promise<AppendedDeltas>): void {
    void this.#inTurn(async () => {
      const { notifications, log } = this.#context;
      const pieces = this.#pieces.splice(0);
      const { key, invocationId } = this.#lease;
      const stored = await appending.catch((error: unknown) => {
        if (isUnsent(error)) return 'unsent' as const;
        log.warn({ err: error, sessionId: key.sessionId, invocationId }, 'text could not be stored as it came');
        return undefined;
      });
      if (stored === 'locked' || stored === 'unsent') {
        this.#putBack(pieces);
        // Without a connection it is tried less often, so that a database that starts is not flooded.
        if (stored === 'unsent') this.#context.deltas.putOff(this);
        return;
      }
      // A write without a confirmation is not retried: a client would get the same text twice, or text would be missing.
      if (!stored) return this.#close();
      this.#batches += 1;
      for (const [place, { open, event, text }] of pieces.entries()) {
        open.last = stored.last - pieces.length + place + 1;
        this.#onStored?.({ text, event, sequence: stored.sequence, delta: open.last });
      }
      notifications.publish(textTopic(key));
    });
  }

  #storeLater(): void {
    const isLong = this.#onStored === undefined && this.#batches >= SHORT_BATCHES;
    const interval = this.#batches === 0 ? FIRST_MS : isLong ? LONG_MS : LIVE_MS;
    this.#context.deltas.add(this, interval);
  }

  #putBack(pieces: Piece[]): void {
    for (const { open, parts } of pieces) {
      if (!open.parts) continue;
      for (const part of open.parts) addPart(parts, part);
      open.parts = parts;
      this.#storeLater();
    }
  }

  #close(): void {
    for (const open of this.#texts.values()) open.parts = undefined;
    this.#context.deltas.remove(this);
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    this.#turns += 1;
    const done = this.#turn.then(work).finally(() => (this.#turns -= 1));
    this.#turn = done.catch(() => undefined);
    return done;
  }
}

/** Appends a part. Text is merged into the preceding part if both are thoughts or both are not. */
function addPart(parts: Part[], part: Part): void {
  const last = parts.at(-1);
  if (last && last.thought === part.thought) parts[parts.length - 1] = { ...last, text: `${last.text}${part.text}` };
  else parts.push(part);
}
