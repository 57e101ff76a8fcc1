import { setTimeout as sleep } from 'node:timers/promises';
import { isPassingFailure } from '../core/errors.ts';
import type { SessionKey } from '../core/session.ts';
import type { EventsAfter, FollowedEvent } from '../sessions/event-store.ts';
import { type Feed, type FeedContext, openFeed } from './session-feed.ts';

/** Maximum time between two looks at what ends a follower, and between two tries of a database that is away. */
const LOOK_MS = 1_000;

/** How a session is followed. */
interface FollowOptions {
  /** True when nothing is to come any more: the follower ends after the events so far. */
  isOver?: () => Promise<boolean>;
  /**
   * Called when the place of the follower is not one of this session: another one has its name by now, or it has fewer
   * events. All its events follow then; without it the follower ends.
   */
  onRestart?: (reason: string) => Promise<void>;
}

/**
 * The events of a session after a sequence, then those to come, in order, from whatever replica wrote them. Ends when
 * `signal` aborts, when the session is gone, and as the options say.
 */
export async function* followEvents(
  context: FeedContext,
  key: SessionKey,
  afterSequence: number,
  signal: AbortSignal,
  { isOver, onRestart }: FollowOptions = {},
): AsyncGenerator<FollowedEvent> {
  let woken = Promise.withResolvers<void>();
  const wake = () => woken.resolve();
  const feed = openFeed(context, key, wake);
  signal.addEventListener('abort', wake);
  let createTime: string | undefined;
  try {
    for (let after = afterSequence; !signal.aborted; ) {
      woken = Promise.withResolvers<void>();
      const over = (await isOver?.()) ?? false;
      const found = await readPatiently(feed, after, signal);
      if (!found) return;
      const reason = whyRestart(found, after, createTime);
      createTime = found.createTime;
      if (reason !== undefined) {
        if (!onRestart) return;
        await onRestart(reason);
        after = 0;
        continue;
      }
      for (const event of found.events) yield event;
      after = found.events.at(-1)?.sequence ?? after;
      if (after < found.lastSequence) continue;
      if (over) return;
      await Promise.race([woken.promise, ...(isOver ? [pause(signal)] : [])]);
    }
  } finally {
    signal.removeEventListener('abort', wake);
    feed.end();
  }
}

const pause = (signal: AbortSignal) => sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);

function whyRestart({ createTime, lastSequence }: EventsAfter, after: number, before?: string): string | undefined {
  if (before !== undefined && before !== createTime) return 'The session was deleted and created again.';
  if (lastSequence < after) return `The session has ${lastSequence} events, so ${after} is no place in it.`;
  return undefined;
}

/** Reads, again where the database is away: an open stream outlasts that. `undefined` also once `signal` aborts. */
async function readPatiently(feed: Feed, after: number, signal: AbortSignal): Promise<EventsAfter | undefined> {
  while (!signal.aborted) {
    try {
      return await feed.read(after);
    } catch (error) {
      if (!isPassingFailure(error)) throw error;
      await pause(signal);
    }
  }
  return undefined;
}
