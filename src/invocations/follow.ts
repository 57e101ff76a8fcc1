import { setTimeout as sleep } from 'node:timers/promises';
import { isPassingFailure } from '../core/errors.ts';
import type { SessionKey } from '../core/session.ts';
import type { EventsAfter, FollowedEvent } from '../conversation/sessions/event-store.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { SessionFeeds } from './session-feed.ts';

/** Pause between two attempts to read from a database that is away. */
const RETRY_PAUSE_MS = 1_000;

/** Options of following a session; without any it lasts until `signal` aborts. */
export interface FollowOptions {
  /** The follower ends with an invocation: after the events so far, once `isOver` says that none are to come. */
  until?: { invocationId: string; isOver: () => Promise<boolean> };
  /** Called when the place is not in this session any more: all its events follow. Without it the follower ends. */
  onRestart?: (reason: string) => Promise<void>;
}

/** Yields the events of a session after a sequence and those to come, until `signal` aborts or it is gone. */
export async function* followEvents(
  { feeds }: { feeds: SessionFeeds },
  key: SessionKey,
  afterSequence: number,
  signal: AbortSignal,
  { until, onRestart }: FollowOptions = {},
): AsyncGenerator<FollowedEvent> {
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const feed = feeds.follow(key, wake);
  const unwatch = until && feeds.watch(key, until.invocationId, wake);
  signal.addEventListener('abort', wake);
  let seen: Seen = {};
  try {
    for (let after = afterSequence; !signal.aborted; ) {
      wakeup.reset();
      const over = until ? await readPatiently(() => until.isOver(), signal) : false;
      const found = await readPatiently(() => feed.read(after), signal);
      if (!found) return;
      const reason = restartReason(found, after, seen);
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

/** The state of a session as a follower saw it last. */
interface Seen {
  createTime?: string;
  /** Id of the event at its place. */
  lastId?: string;
}

/** Returns why a follower has to start again. After a failover sequences may be the same while ids differ. */
function restartReason(
  { createTime, lastSequence, placeId }: EventsAfter,
  after: number,
  seen: Seen,
): string | undefined {
  if (seen.createTime !== undefined && seen.createTime !== createTime) {
    return 'The session was deleted and created again.';
  }
  if (lastSequence < after) return `The session has ${lastSequence} events, so ${after} is no place in it.`;
  if (seen.lastId !== undefined && seen.lastId !== placeId) return `The session has lost its event ${after}.`;
  return undefined;
}

/** Reads, again while the database is away: an open stream outlasts that. `undefined` also once `signal` aborts. */
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
