import { runAsSystem } from '../platform/context.ts';
import type { SessionKey } from '../core/session.ts';
import { isPassingFailure } from '../core/errors.ts';
import { sessionTopic } from '../core/names.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import {
  type EventsAfter,
  listEventsAfter,
  listSessionEnds,
  type SessionEnd,
} from '../conversation/sessions/event-store.ts';

/** Events that are read at once. */
const PAGE = 100;
/** Time between two looks at all followed sessions: notifications only save time, they may be lost. */
const LOOK_MS = 1_000;
/** Time in which a notification comes, unless it is lost. */
const NOTICE_MS = 100;

/** What following needs of the process. */
export interface FeedContext {
  database: DatabasePool;
  notifications: Notifications;
}

/** A session as one of its followers sees it. */
export interface Feed {
  /** At most 100 events after a sequence; `undefined` where there is no session. Those who read at once share it. */
  read(after: number): Promise<EventsAfter | undefined>;
  end(): void;
}

/** The followed sessions of this process; two runtimes in one process, each with its database, have their own. */
const followed = new WeakMap<DatabasePool, FollowedSessions>();

/** Follows a session: `wake` is called whenever it may have changed. */
export function openFeed(context: FeedContext, key: SessionKey, wake: () => void): Feed {
  const sessions = followed.get(context.database) ?? new FollowedSessions(context);
  followed.set(context.database, sessions);
  return sessions.follow(key, wake);
}

/**
 * The sessions that streams follow. One statement looks at all of them, and one reads for all followers of a session:
 * a look of each stream by itself was 998 statements a second for 1,000 streams that had nothing to send.
 */
class FollowedSessions {
  readonly #context: FeedContext;
  readonly #byTopic = new Map<string, FollowedSession>();
  #isLooking = false;

  constructor(context: FeedContext) {
    this.#context = context;
  }

  follow(key: SessionKey, wake: () => void): Feed {
    const topic = sessionTopic(key);
    const session = this.#byTopic.get(topic) ?? new FollowedSession(this.#context, key);
    this.#byTopic.set(topic, session);
    session.followers.add(wake);
    this.#lookLater();
    return {
      read: (after) => session.read(after),
      end: () => {
        session.followers.delete(wake);
        if (session.followers.size > 0) return;
        session.unsubscribe();
        // Another one may follow under this topic by now.
        if (this.#byTopic.get(topic) === session) this.#byTopic.delete(topic);
      },
    };
  }

  #lookLater(): void {
    if (this.#isLooking || this.#byTopic.size === 0) return;
    this.#isLooking = true;
    setTimeout(() => {
      // The timer was set within the request of one user, and looks for all.
      void runAsSystem(() => this.#look()).finally(() => {
        this.#isLooking = false;
        this.#lookLater();
      });
    }, LOOK_MS).unref();
  }

  async #look(): Promise<void> {
    const sessions = [...this.#byTopic.values()];
    const keys = sessions.map(({ key }) => key);
    try {
      const ends = await listSessionEnds(this.#context.database.reads, keys);
      for (const [position, session] of sessions.entries()) session.compare(ends[position]);
    } catch (error) {
      // A database that is away is looked at the next time; any other error is for those who read.
      if (!isPassingFailure(error)) for (const session of sessions) session.wake();
    }
  }
}

class FollowedSession {
  readonly key: SessionKey;
  readonly followers = new Set<() => void>();
  readonly unsubscribe: () => void;
  readonly #database: DatabasePool;
  /** Reads under way, by the sequence that they begin after. */
  readonly #reading = new Map<number, Promise<EventsAfter | undefined>>();
  #seen: SessionEnd | undefined;

  constructor({ database, notifications }: FeedContext, key: SessionKey) {
    this.key = key;
    this.#database = database;
    this.unsubscribe = notifications.subscribe(sessionTopic(key), () => this.wake());
  }

  wake(): void {
    // A read that began before may not see what this is about.
    this.#reading.clear();
    for (const follower of this.followers) follower();
  }

  /**
   * Wakes the followers unless the session ends where it ended when it was read last. A moment later, unless it has
   * been read by then: a notification under way would make them read twice.
   */
  compare(end: SessionEnd | undefined): void {
    const seen = this.#seen;
    if (end?.lastSequence === seen?.lastSequence && end?.createTime === seen?.createTime) return;
    setTimeout(() => {
      if (this.#seen === seen) this.wake();
    }, NOTICE_MS).unref();
  }

  read(after: number): Promise<EventsAfter | undefined> {
    const shared = this.#reading.get(after);
    if (shared) return shared;
    const reading = listEventsAfter(this.#database.reads, this.key, after, PAGE)
      .then((found) => (this.#seen = found))
      .finally(() => {
        if (this.#reading.get(after) === reading) this.#reading.delete(after);
      });
    this.#reading.set(after, reading);
    return reading;
  }
}
