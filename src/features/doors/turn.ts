import { getFunctionResponses } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import {
  findEventsById,
  findPlaceBefore,
  listChosenEvents,
  listNextInvocationEvents,
} from '../../conversation/sessions/event-store.ts';
import type { SessionKey } from '../../core/session.ts';
import { followSession } from '../../invocations/follow.ts';
import { type Invocation, isActive } from '../../invocations/invocation.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { SessionFeeds } from '../../invocations/session-feed.ts';
import type { InvocationRef } from './handle.ts';
import { type Piece, TextCutter } from './text-cutter.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/**
 * A step of an invocation, which each protocol converts to its own events. `text`: a piece of an event's text. `event`:
 * a complete event, after its pieces. `void`: retracts the pieces of an event that will never be complete.
 */
export type TurnStep =
  | ({ kind: 'text'; eventId: string; author: string; after: number } & Piece)
  | { kind: 'event'; event: Event; sequence: number }
  | { kind: 'void'; eventId: string; after: number }
  | { kind: 'end'; invocation: Invocation };

/** An invocation with its events, in order. */
export interface WholeTurn extends InvocationRef {
  invocation: Invocation;
  events: Event[];
  /** Sequence of the last event. */
  sequence: number | undefined;
}

type Unread = Omit<WholeTurn, 'events' | 'sequence'>;

/** The events of an invocation to read: the user's newest ones [all], and the agent's [all]. */
interface Selection {
  maxUserEvents?: number | undefined;
  agentEvents?: boolean | undefined;
}

/** Reads the chosen events of a user's invocations: after the first invocation only as many as fit into `maxBytes`. */
export async function readWholeTurns(
  db: Database,
  user: Omit<SessionKey, 'sessionId'>,
  turns: readonly Unread[],
  { maxUserEvents, agentEvents = true }: Selection,
  maxBytes: number,
): Promise<WholeTurn[]> {
  const selections = turns.map(({ key: { sessionId }, invocationId, invocation: { status } }) => {
    // A pause is shown by its open calls.
    return { sessionId, invocationId, maxUserEvents, agentEvents, calls: status === 'paused' };
  });
  const lists = await listChosenEvents(db, user, selections, maxBytes);
  return lists.map((stored, place) => ({
    ...(turns[place] as Unread),
    events: stored.map(({ text }) => parseExactJson(text) as Event),
    sequence: stored.at(-1)?.sequence,
  }));
}

/**
 * Reads the chosen events of the invocation that a client's id names. If that is a message that steered, the turn is the
 * part of the invocation that took it, from the message on; it keeps the client's id.
 */
export async function readWholeTurn(
  { feeds, database }: { feeds: SessionFeeds; database: DatabasePool },
  ref: Unread,
  selection: Selection,
  maxBytes: number,
): Promise<WholeTurn | undefined> {
  const { steeredInto } = ref.invocation;
  const taker = steeredInto === undefined ? undefined : await feeds.readInvocation(ref.key, steeredInto);
  const unread = taker ? { ...ref, invocationId: taker.id, invocation: taker } : ref;
  const [turn] = await readWholeTurns(database.db, ref.key, [unread], selection, maxBytes);
  if (!turn || !taker) return turn;
  const place = turn.events.findIndex(({ id }) => id === ref.invocationId);
  return { ...turn, invocationId: ref.invocationId, events: turn.events.slice(Math.max(0, place)) };
}

/** The invocation that runs or waits: it is another one than a client's id names if that is a message that steered. */
export const toRunning = ({ key, invocation }: Unread): InvocationRef => ({ key, invocationId: invocation.id });

interface Turn extends Pick<InvocationRef, 'key' | 'invocationId' | 'run'> {
  /** Sequence number of the last event to skip; default: start with the invocation's first event. */
  after?: number | undefined;
  /** True: read only the complete events that are already stored, and do not wait for more. */
  isSoFar?: boolean;
  /** True (default): also yield pieces of text. False: yield complete events only. */
  withText?: boolean;
  /** True: keep reading while the invocation is paused. `run` must be absent then. */
  throughPauses?: boolean;
  /** True for an invocation as what took a message: a row that an import forged to be a message itself is not followed. */
  isTaker?: boolean;
}

/**
 * Yields the stored steps of an invocation, then new steps as they come. All readers get the same steps, except for
 * retracted text. The user's events are included. For agents that run in parallel only complete events are yielded,
 * without pieces of text. If the last step is not `end`, `signal` was aborted or the session was deleted.
 */
export async function* readTurn(
  context: { feeds: SessionFeeds; database: DatabasePool },
  { key, invocationId, after, isSoFar = false, withText = true, throughPauses = false, run, isTaker = false }: Turn,
  signal: AbortSignal,
): AsyncGenerator<TurnStep> {
  const { reads } = context.database;
  const goesOn = (invocation: Invocation) => isActive(invocation) || (throughPauses && invocation.status === 'paused');
  let last: Invocation | undefined;
  const isOver = async (ended?: Invocation) => {
    last = ended ?? (await context.feeds.readInvocation(key, invocationId));
    return !last || !goesOn(last);
  };
  /** A message that steered goes on as a part of the invocation that took it, which begins with the message. */
  const endOf = async function* (invocation: Invocation): AsyncGenerator<TurnStep> {
    const { steeredInto } = invocation;
    if (steeredInto === undefined || isTaker) {
      yield { kind: 'end', invocation };
      return;
    }
    const [message] = await findEventsById(context.database.db, key, [invocationId]);
    const from = Math.max(after ?? 0, (message?.sequence ?? 1) - 1);
    const taken = { key, invocationId: steeredInto, after: from, isSoFar, withText, throughPauses, isTaker: true };
    yield* readTurn(context, taken, signal);
  };
  const local = isSoFar ? undefined : run;
  // The status is read before the events, because all events of an invocation are stored before its end.
  if (!local && ((await isOver()) || isSoFar)) {
    yield* readStored(reads, { key, invocationId, after: after ?? 0, withText }, signal);
    if (last && !goesOn(last) && !signal.aborted) yield* endOf(last);
    return;
  }
  let sequence = after ?? (local ? 0 : await findPlaceBefore(reads, key, invocationId));
  if (local?.before !== undefined) {
    // Only a resumed invocation has events before its run.
    if (local.isResumed && sequence < local.before)
      sequence = yield* readStored(reads, { key, invocationId, after: sequence, withText }, signal, local.before);
    sequence = Math.max(sequence, local.before);
  }
  const options = { withText, until: { invocationId, isOver, run: local } };
  let open: OpenEvent | undefined;
  for await (const step of followSession(context, key, { sequence, delta: 0 }, signal, options)) {
    const { kind, position } = step;
    if (kind === 'void') {
      if (open) yield { kind, eventId: open.eventId, after: open.after };
      open = undefined;
    } else {
      const event = parseExactJson(step.text) as Event;
      if (event.invocationId !== invocationId) continue;
      if (kind === 'delta') {
        const { eventId } = step;
        const author = event.author ?? '';
        if (event.branch || (open && open.eventId !== eventId)) continue;
        open ??= { eventId, cutter: new TextCutter(), after: position.sequence };
        for (const piece of open.cutter.add(event.content))
          yield { kind: 'text', eventId, author, after: open.after, ...piece };
      } else {
        yield* takeEvent(event, position.sequence, withText, open);
        if (open?.eventId === event.id) open = undefined;
      }
    }
  }
  if (last && !goesOn(last) && !signal.aborted) yield* endOf(last);
}

/**
 * Yields the stored events of an invocation, without events of other invocations of the same session.
 * @param upTo - ends when an event with this sequence, or a later one, has been read
 * @returns sequence of the last event
 */
async function* readStored(
  db: Database,
  {
    key,
    invocationId,
    after,
    withText,
  }: Pick<InvocationRef, 'key' | 'invocationId'> & { after: number; withText: boolean },
  signal: AbortSignal,
  upTo = Infinity,
): AsyncGenerator<TurnStep, number> {
  let place = after;
  while (!signal.aborted && place < upTo) {
    const page = await listNextInvocationEvents(db, key, invocationId, place);
    if (page.length === 0) break;
    for (const { sequence, text } of page) yield* takeEvent(parseExactJson(text) as Event, sequence, withText);
    place = page.at(-1)?.sequence ?? place;
  }
  return place;
}

/**
 * The part of an invocation that answers one request, for protocols in which an answer to a pause is a request of its
 * own: from the answer to a call, or from the beginning, up to the next answer.
 */
export class Part {
  /** Place of the latest step: `before` the part, `in` it or `after` it. */
  place: 'before' | 'in' | 'after';
  readonly #answeredCallId: string | undefined;
  #isEmpty = true;

  constructor({ answeredCallId }: Pick<InvocationRef, 'answeredCallId'>) {
    this.place = answeredCallId === undefined ? 'in' : 'before';
    this.#answeredCallId = answeredCallId;
  }

  /** Takes the next step. @returns its place */
  take(step: TurnStep): Part['place'] {
    if (step.kind !== 'event') return this.place;
    const answers = step.event.author === 'user' ? getFunctionResponses(step.event.content) : [];
    if (this.place === 'in' && !this.#isEmpty && answers.length > 0) this.place = 'after';
    if (this.place === 'before' && answers.some(({ id }) => id === this.#answeredCallId)) this.place = 'in';
    this.#isEmpty &&= this.place === 'before';
    return this.place;
  }
}

/** An incomplete event: partial text of it has come, but not the event. */
interface OpenEvent {
  eventId: string;
  cutter: TextCutter;
  after: number;
}

function* takeEvent(event: Event, sequence: number, withText: boolean, open?: OpenEvent): Generator<TurnStep> {
  const { author, content } = event;
  const eventId = event.id ?? '';
  const isOpen = open?.eventId === eventId;
  const after = isOpen ? open.after : sequence - 1;
  const isBeginning = isOpen && open.cutter.isBeginningOf(content);
  if (isOpen && !isBeginning) yield { kind: 'void', eventId, after };
  const cutter = isBeginning ? open.cutter : new TextCutter();
  if (withText && author !== 'user')
    for (const piece of cutter.finish(content)) yield { kind: 'text', eventId, author: author ?? '', after, ...piece };
  yield { kind: 'event', event, sequence };
}

export const readWhole = (event: Event, sequence = 0): Generator<TurnStep> => takeEvent(event, sequence, true);
