import type { Event } from '../../core/event.ts';
import { findPlaceBefore, listNextInvocationEvents } from '../../conversation/sessions/event-store.ts';
import { followSession } from '../../invocations/follow.ts';
import type { Invocation } from '../../invocations/invocation.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { SessionFeeds } from '../../invocations/session-feed.ts';
import type { InvocationRef } from './handle.ts';
import { type Piece, TextCutter } from './text-cutter.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/**
 * A step of an invocation as every door shows it: a `text` piece of an event; the `event`, once it is whole and all
 * its pieces were given; `void`, which takes back the pieces of an event that has not come; the `end`.
 */
export type TurnStep =
  | ({ kind: 'text'; eventId: string; author: string; after: number } & Piece)
  | { kind: 'event'; event: Event; sequence: number }
  | { kind: 'void'; eventId: string; after: number }
  | { kind: 'end'; invocation: Invocation };

/** An invocation to read. */
interface Turn extends Pick<InvocationRef, 'key' | 'invocationId'> {
  /** Sequence of the event behind which it is read [all of it]. */
  after?: number | undefined;
  /** True: what there is by now, whole events only, instead of what is to come. */
  isSoFar?: boolean;
  /** False: whole events only [true]. */
  withText?: boolean;
  /** True: it is not over while it waits for a person. */
  throughPauses?: boolean;
}

/**
 * Yields the steps of an invocation from a place on, those so far and those to come. They are the same each time, but
 * for text that was taken back. Events of the user are among them; text of agents that run side by side comes with
 * its whole events. Without an `end` it was left while it goes on: `signal` aborted, or its session is gone.
 */
export async function* readTurn(
  context: { feeds: SessionFeeds; database: DatabasePool },
  { key, invocationId, after, isSoFar = false, withText = true, throughPauses = false }: Turn,
  signal: AbortSignal,
): AsyncGenerator<TurnStep> {
  const sequence = after ?? (isSoFar ? 0 : await findPlaceBefore(context.database.reads, key, invocationId));
  const going = new Set<string>(['queued', 'running', ...(throughPauses ? ['paused'] : [])]);
  const isActive = ({ status }: Invocation) => going.has(status);
  let last: Invocation | undefined;
  if (isSoFar) {
    // Before its events: they are all there where it is over.
    last = await context.feeds.readInvocation(key, invocationId);
    yield* readStored(context.database.reads, { key, invocationId, after: sequence }, signal);
    if (last && !isActive(last) && !signal.aborted) yield { kind: 'end', invocation: last };
    return;
  }
  const isOver = async () => {
    last = await context.feeds.readInvocation(key, invocationId);
    return !last || !isActive(last);
  };
  const options = { withText, until: { invocationId, isOver } };
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
        yield* takeEvent(event, position.sequence, open);
        if (open?.eventId === event.id) open = undefined;
      }
    }
  }
  if (last && !isActive(last) && !signal.aborted) yield { kind: 'end', invocation: last };
}

/** Yields the stored events of an invocation, and nothing that others of its session have said since. */
async function* readStored(
  db: Database,
  { key, invocationId, after }: Pick<InvocationRef, 'key' | 'invocationId'> & { after: number },
  signal: AbortSignal,
): AsyncGenerator<TurnStep> {
  for (let place = after; !signal.aborted; ) {
    const found = await listNextInvocationEvents(db, key, invocationId, place);
    if (found.length === 0) return;
    for (const { sequence, text } of found) yield* takeEvent(parseExactJson(text) as Event, sequence);
    place = found.at(-1)?.sequence ?? place;
  }
}

/** An event to come, of which there is text. */
interface OpenEvent {
  eventId: string;
  cutter: TextCutter;
  after: number;
}

function* takeEvent(event: Event, sequence: number, open?: OpenEvent): Generator<TurnStep> {
  const { author, content } = event;
  const eventId = event.id ?? '';
  const isOpen = open?.eventId === eventId;
  const after = isOpen ? open.after : sequence - 1;
  const isBeginning = isOpen && open.cutter.isBeginningOf(content);
  if (isOpen && !isBeginning) yield { kind: 'void', eventId, after };
  const cutter = isBeginning ? open.cutter : new TextCutter();
  if (author !== 'user')
    for (const piece of cutter.finish(content)) yield { kind: 'text', eventId, author: author ?? '', after, ...piece };
  yield { kind: 'event', event, sequence };
}

/** Yields the steps of one whole event. */
export const readWhole = (event: Event, sequence = 0): Generator<TurnStep> => takeEvent(event, sequence);
