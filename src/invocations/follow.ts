import { setTimeout as sleep } from 'node:timers/promises';
import { isPassingFailure } from '../core/errors.ts';
import type { SessionKey } from '../core/session.ts';
import type { Delta } from '../conversation/sessions/delta-store.ts';
import type { EventsAfter, FollowedEvent } from '../conversation/sessions/event-store.ts';
import { currentContext } from '../platform/context.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { Invocation } from './invocation.ts';
import type { LocalRun } from './local-run.ts';
import { LIVE_RUN, type SessionFeeds } from './session-feed.ts';

/** Pause in milliseconds between two reads while the database is not available. */
const RETRY_PAUSE_MS = 1_000;

/** Options of following a session's events. Default: following lasts until the abort signal aborts. */
export interface FollowOptions {
  withText?: boolean;
  /**
   * Ends following with this invocation: when `isOver` returns true and all events stored so far have been read. `run`:
   * the invocation, if this process runs it; its events then come from memory for as long as possible, and if that is
   * up to its end, `isOver` is called with its row.
   */
  until?: {
    invocationId: string;
    isOver: (ended?: Invocation) => Promise<boolean>;
    run?: LocalRun | undefined;
  };
  /** Called if the reader's position no longer exists, before all events follow again. Absent: following ends then. */
  onRestart?: (reason: string) => Promise<void>;
}

/**
 * A step. `event`: a stored event, which replaces the deltas of its text. `delta`: text of an incomplete event.
 * `void`: the reader must discard all deltas whose complete event it has not received.
 */
export type FollowedStep = { position: Position; text: string } & (
  | ({ kind: 'event' } & FollowedEvent)
  | ({ kind: 'delta' } & Delta)
  | { kind: 'void' }
);

/**
 * Yields the events of a session after a position, then new events as they are stored, and with `withText` also deltas.
 * Ends when `signal` aborts or the session is deleted. A reader may stop after any step and resume at that step's
 * position in any process; it receives each delta once.
 */
export async function* followSession(
  { feeds }: { feeds: SessionFeeds },
  key: SessionKey,
  from: Position,
  signal: AbortSignal,
  { withText = false, until, onRestart }: FollowOptions = {},
): AsyncGenerator<FollowedStep> {
  // Kept over the change from memory to the feed: text whose event is stored by then is replaced, not taken back.
  const open = new OpenText(withText ? from.delta : 0);
  let start: Place = { sequence: from.sequence };
  if (until?.run) {
    const { place, hasEnded } = yield* followHere(
      feeds,
      key,
      { ...until, run: until.run },
      start,
      open,
      signal,
      withText,
    );
    if (hasEnded && (await readPatiently(() => until.isOver(until.run?.invocation), signal)) !== false) return;
    start = place;
  }
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const feed = feeds.follow(key, wake, withText);
  let mayBeOver = true;
  const unwatch =
    until &&
    feeds.watch(key, until.invocationId, () => {
      mayBeOver = true;
      wake();
    });
  signal.addEventListener('abort', wake);
  let view: SessionView = { lastId: start.lastId };
  try {
    for (let after = start.sequence; !signal.aborted; ) {
      wakeup.reset();
      const text = withText ? await readPatiently(() => feed.readText(), signal) : undefined;
      const isHere = text?.lastSequence === after && text.createTime === view.createTime;
      // While the invocation streams text, it is not over, unless its process has died.
      const isDue = until && (mayBeOver || !isHere || text.deltas.length === 0);
      mayBeOver = false;
      const over = isDue ? await readPatiently(() => until.isOver(), signal) : false;
      if (text && (isHere || open.isUnknown) && !open.matches(text.deltas)) yield takeBack(open, key, after);
      if (text && isHere && !over) yield* takeText(open, text.deltas, after);
      else {
        const page = await readPatiently(() => feed.read(after), signal);
        if (!page) return;
        const reason = restartReason(page, after, view);
        const isFirst = view.createTime === undefined;
        view = { ...view, createTime: page.createTime };
        if (reason !== undefined) {
          if (!onRestart) return;
          await onRestart(reason);
          after = 0;
          view = {};
          open.clear();
          continue;
        }
        // The reader must discard orphaned text first, because the events that follow would not replace that text.
        if (text && !open.matches(text.deltas, page.events)) yield takeBack(open, key, after);
        yield* takeEvents(open, page.events);
        const last = page.events.at(-1);
        if (last) [after, view] = [last.sequence, { ...view, lastId: last.id }];
        if (after < page.lastSequence || (withText && (last || isFirst) && !(over && open.matches([])))) continue;
      }
      if (over) return;
      currentContext().hasRead?.();
      await wakeup.wait();
    }
  } finally {
    signal.removeEventListener('abort', wake);
    unwatch?.();
    feed.end();
  }
}

/** A sequence, and the id of its event if this follower has read that. */
type Place = { sequence: number; lastId?: string | undefined };

/**
 * Yields the steps of an invocation that this process runs.
 * @returns the place at which the follower goes on with the session's feed, unless the invocation has ended
 */
async function* followHere(
  feeds: SessionFeeds,
  key: SessionKey,
  { invocationId, run }: { invocationId: string; run: LocalRun },
  from: Place,
  open: OpenText,
  signal: AbortSignal,
  withText: boolean,
): AsyncGenerator<FollowedStep, { place: Place; hasEnded: boolean }> {
  const gone = new AbortController();
  // A process that stalled, or whose session was deleted, may learn of its loss much later than the database shows it.
  const unwatch = feeds.watch(key, invocationId, (state) => state !== LIVE_RUN && gone.abort());
  let place = from;
  const steps = run.follow(from.sequence, AbortSignal.any([signal, gone.signal]), withText);
  try {
    for (;;) {
      const { value, done } = await steps.next();
      if (done) return { place, hasEnded: value };
      if (value.kind === 'event') place = { sequence: value.sequence, lastId: value.id };
      yield* value.kind === 'event' ? takeEvents(open, [value]) : takeText(open, [value], place.sequence);
    }
  } finally {
    unwatch();
    await steps.return(false);
  }
}

function* takeText(open: OpenText, deltas: readonly Delta[], sequence: number): Generator<FollowedStep> {
  for (const next of open.take(deltas)) yield { kind: 'delta', ...next, position: { sequence, delta: next.number } };
}

function takeBack(open: OpenText, key: SessionKey, sequence: number): FollowedStep {
  open.clear();
  return { kind: 'void', position: { sequence, delta: 0 }, text: toVoidEvent(key) };
}

function* takeEvents(open: OpenText, events: readonly FollowedEvent[]): Generator<FollowedStep> {
  for (const event of events) {
    open.replace(event.id);
    yield { kind: 'event', ...event, position: { sequence: event.sequence, delta: open.delta } };
  }
}

/** An event neither stored nor partial, without content: ADK clients replace the streamed text with it. */
const toVoidEvent = ({ appName }: SessionKey) => JSON.stringify({ author: appName, partial: false, interrupted: true });

/** What a reader of the event stream last saw of the session. */
interface SessionView {
  createTime?: string;
  /** Id of the event at the reader's position. */
  lastId?: string | undefined;
}

/** Why an event stream's reader must start again. Event ids are compared, as a failover may reuse a sequence. */
function restartReason(
  { createTime, lastSequence, placeId }: EventsAfter,
  after: number,
  view: SessionView,
): string | undefined {
  if (view.createTime !== undefined && view.createTime !== createTime) {
    return 'The session was deleted and created again.';
  }
  if (lastSequence < after) return `The session has ${lastSequence} events, so ${after} is no place in it.`;
  if (view.lastId !== undefined && view.lastId !== placeId) return `The session has lost its event ${after}.`;
  return undefined;
}

/** Retries a read while the database is not available, so that a stream survives that; `undefined` if aborted. */
async function readPatiently<T>(read: () => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  while (!signal.aborted) {
    try {
      return await read();
    } catch (error) {
      if (!isPassingFailure(error)) throw error;
      await sleep(RETRY_PAUSE_MS, undefined, { signal }).catch(() => undefined);
    }
  }
  return undefined;
}

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
