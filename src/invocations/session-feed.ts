import { setTimeout as sleep } from 'node:timers/promises';
import { runAsSystem } from '../platform/context.ts';
import type { SessionKey } from '../core/session.ts';
import { isPassingFailure } from '../core/errors.ts';
import { sessionTopic, textTopic } from '../core/names.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { SingleFlight } from '../platform/work/single-flight.ts';
import {
  type EventsAfter,
  listEventsAfter,
  listSessionEnds,
  type SessionEnd,
} from '../conversation/sessions/event-store.ts';
import { listDeltas, type SessionText } from '../conversation/sessions/delta-store.ts';
import type { Invocation } from './invocation.ts';
import { findInvocationText, listInvocationStates } from './invocation-store.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** Events of one read. */
const PAGE = 100;
/** Time between two polls: notifications only save time, they may be lost. */
const POLL_MS = 1_000;
/** Time in which a notification comes, unless it is lost. */
const NOTICE_MS = 100;

/** The resources that feeds read from. */
interface FeedContext {
  database: DatabasePool;
  notifications: Pick<Notifications, 'subscribe'>;
}

/** A session as one of its followers sees it. */
export interface Feed {
  /** Reads at most 100 events after a sequence; `undefined` without a session. Followers that read at once share it. */
  read(after: number): Promise<EventsAfter | undefined>;
  /** Reads the text of events to come; `undefined` without a session. One read of what is new serves all followers. */
  readText(): Promise<SessionText | undefined>;
  end(): void;
}

/** An invocation whose end a follower waits for. */
interface Watcher {
  key: SessionKey;
  invocationId: string;
  wake: () => void;
  /** As the last poll found it; `undefined` before the first one, which therefore wakes. */
  state?: string;
}

/**
 * The sessions and invocations that the streams of a process follow: once a second one statement polls all sessions
 * and one all invocations, and one read serves all followers of a session.
 */
export class SessionFeeds {
  readonly #context: FeedContext;
  readonly #byTopic = new Map<string, FollowedSession>();
  readonly #watchers = new Set<Watcher>();
  readonly #invocations = new SingleFlight<Invocation | undefined>();
  #isPolling = false;

  constructor(context: FeedContext) {
    this.#context = context;
  }

  /** Follows a session: `wake` is called whenever it may have changed; with its text as that comes. */
  follow(key: SessionKey, wake: () => void, withText = false): Feed {
    const topic = sessionTopic(key);
    const session = this.#byTopic.get(topic) ?? new FollowedSession(this.#context, key);
    this.#byTopic.set(topic, session);
    session.followers.set(wake, withText);
    void this.#pollWhileFollowed();
    return {
      read: (after) => session.read(after),
      readText: () => session.readText(),
      end: () => {
        session.followers.delete(wake);
        if (session.followers.size > 0) return;
        session.unsubscribe();
        // Another one may follow under this topic by now.
        if (this.#byTopic.get(topic) === session) this.#byTopic.delete(topic);
      },
    };
  }

  /** Reads an invocation; followers that do so at once share it. `undefined` where there is none. */
  readInvocation(key: SessionKey, invocationId: string): Promise<Invocation | undefined> {
    return this.#invocations.run(`${sessionTopic(key)} ${invocationId}`, async () => {
      const text = await findInvocationText(this.#context.database.db, key, invocationId);
      return text === undefined ? undefined : (parseExactJson(text) as Invocation);
    });
  }

  /** Calls `wake` when an invocation has changed or its process has died. @returns what ends it. */
  watch(key: SessionKey, invocationId: string, wake: () => void): () => void {
    const watcher: Watcher = { key, invocationId, wake };
    this.#watchers.add(watcher);
    void this.#pollWhileFollowed();
    return () => void this.#watchers.delete(watcher);
  }

  async #pollWhileFollowed(): Promise<void> {
    if (this.#isPolling) return;
    this.#isPolling = true;
    while (this.#byTopic.size + this.#watchers.size > 0) {
      await sleep(POLL_MS, undefined, { ref: false });
      // The request of one user has started this, and it polls for all.
      await runAsSystem(() => Promise.all([this.#pollSessions(), this.#pollInvocations()]));
    }
    this.#isPolling = false;
  }

  async #pollSessions(): Promise<void> {
    const sessions = [...this.#byTopic.values()];
    if (sessions.length === 0) return;
    const keys = sessions.map(({ key }) => key);
    for (const session of sessions) if (session.hasText) session.wakeReaders();
    const ends = await listSessionEnds(this.#context.database.reads, keys).catch(wakeUnlessPassing(sessions));
    if (ends) for (const [position, session] of sessions.entries()) session.compare(ends[position]);
  }

  async #pollInvocations(): Promise<void> {
    const watchers = [...this.#watchers];
    if (watchers.length === 0) return;
    const states = await listInvocationStates(this.#context.database.reads, watchers).catch(
      wakeUnlessPassing(watchers),
    );
    if (!states) return;
    for (const [position, watcher] of watchers.entries()) {
      const state = states[position] ?? 'gone';
      if (state !== watcher.state) watcher.wake();
      watcher.state = state;
    }
  }
}

/** A database that is away is polled again later; any other error is for the followers, who meet it when they read. */
const wakeUnlessPassing = (followers: { wake(): void }[]) => (error: unknown) => {
  if (!isPassingFailure(error)) for (const follower of followers) follower.wake();
  return undefined;
};

class FollowedSession {
  readonly key: SessionKey;
  /** True for those that read its text too. */
  readonly followers = new Map<() => void, boolean>();
  readonly #database: DatabasePool;
  /** Reads under way, by the sequence that they begin after. */
  #reads = new SingleFlight<EventsAfter | undefined>();
  #seen: SessionEnd | undefined;
  #textReads = new SingleFlight<SessionText | undefined>();
  /** The text of events to come as it was read last. */
  #text: SessionText['deltas'] = [];
  readonly #subscriptions: (() => void)[];

  constructor({ database, notifications }: FeedContext, key: SessionKey) {
    this.key = key;
    this.#database = database;
    this.#subscriptions = [
      notifications.subscribe(sessionTopic(key), () => this.wake()),
      notifications.subscribe(textTopic(key), () => this.wakeReaders()),
    ];
  }

  unsubscribe(): void {
    for (const unsubscribe of this.#subscriptions) unsubscribe();
  }

  /** True while text comes in: its followers look again even where no notification arrives. */
  get hasText(): boolean {
    return this.#text.length > 0;
  }

  wake(): void {
    // A read that began before may not see what this is about.
    this.#reads = new SingleFlight();
    this.#textReads = new SingleFlight();
    for (const follower of this.followers.keys()) follower();
  }

  wakeReaders(): void {
    this.#textReads = new SingleFlight();
    for (const [follower, withText] of this.followers) if (withText) follower();
  }

  /** Wakes the followers if the session has moved on, a moment later: a notification may be under way. */
  compare(end: SessionEnd | undefined): void {
    const seen = this.#seen;
    if (end?.lastSequence === seen?.lastSequence && end?.createTime === seen?.createTime) return;
    setTimeout(() => {
      if (this.#seen === seen) this.wake();
    }, NOTICE_MS).unref();
  }

  read(after: number): Promise<EventsAfter | undefined> {
    return this.#reads.run(String(after), () =>
      listEventsAfter(this.#database.reads, this.key, after, PAGE).then((found) => (this.#seen = found)),
    );
  }

  readText(): Promise<SessionText | undefined> {
    return this.#textReads.run('', async () => {
      const found = await listDeltas(this.#database.reads, this.key, this.#text);
      this.#text = found?.deltas ?? [];
      return found;
    });
  }
}
