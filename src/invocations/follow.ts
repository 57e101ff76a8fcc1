import { setTimeout as sleep } from 'node:timers/promises';
import { isPassingFailure } from '../core/errors.ts';
import type { SessionKey } from '../core/session.ts';
import type { EventsAfter, FollowedEvent } from '../conversation/sessions/event-store.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { watchInvocation } from './invocation-watch.ts';
import { type FeedContext, openFeed } from './session-feed.ts';

/** Time between two tries of a database that is away. */
const PAUSE_MS = 1_000;

/** How a session is followed; without any, until `signal` aborts. */
export interface FollowOptions {
  /** The follower ends with an invocation: after the events so far, once `isOver` says that none are to come. */
  until?: { invocationId: string; isOver: () => Promise<boolean> };
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
  { until, onRestart }: FollowOptions = {},
): AsyncGenerator<FollowedEvent> {
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const feed = openFeed(context, key, wake);
  const unwatch = until && watchInvocation(context.database, key, until.invocationId, wake);
  signal.addEventListener('abort', wake);
  let seen: Seen = {};
  try {
    for (let after = afterSequence; !signal.aborted; ) {
      wakeup.reset();
      const over = until ? await patiently(() => until.isOver(), signal) : false;
      const found = await patiently(() => feed.read(after), signal);
      if (!found) return;
      const reason = whyRestart(found, after, seen);
      seen = { ...seen, createTime: found.createTime };
      if (reason !== undefined) {
        if (!onRestart) return;
        await onRestart(reason);
        [after, seen] = [0, {}];
        continue;
      }
      for (const event of found.events) yield event;
      const last = found.events.at(-1);
      if (last) [after, seen] = [last.sequence, { ...seen, lastId: last.id }];
      if (after < found.lastSequence) continue;
      if (over) return;
      await wakeup.wait();
    }
  } finally {
    signal.removeEventListener('abort', wake);
    unwatch?.();
    feed.end();
  }
}

const pause = (signal: AbortSignal) => sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined);

/** What a follower knows of the session that it follows. */
interface Seen {
  createTime?: string;
  /** Of the event at its place. */
  lastId?: string;
}

/**
 * A failover to a standby that was behind loses the last events, and others take their sequences: only the ids differ.
 */
function whyRestart({ createTime, lastSequence, placeId }: EventsAfter, after: number, seen: Seen): string | undefined {
  if (seen.createTime !== undefined && seen.createTime !== createTime) {
    return 'The session was deleted and created again.';
  }
  if (lastSequence < after) return `The session has ${lastSequence} events, so ${after} is no place in it.`;
  if (seen.lastId !== undefined && seen.lastId !== placeId) return `The session has lost its event ${after}.`;
  return undefined;
}

/** Asks the database, again while it is away: an open stream outlasts that. `undefined` also once `signal` aborts. */
async function patiently<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  while (!signal.aborted) {
    try {
      return await ask();
    } catch (error) {
      if (!isPassingFailure(error)) throw error;
      await pause(signal);
    }
  }
  return undefined;
}
