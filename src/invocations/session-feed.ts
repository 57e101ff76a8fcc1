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

const PAGE = 100;
/** Time in milliseconds between two polls. Polls are necessary because the database's notifications may be lost. */
const POLL_MS = 1_000;
/** Maximum time in milliseconds that a notification takes to arrive. */
const NOTICE_MS = 100;

interface FeedContext {
  database: DatabasePool;
  notifications: Pick<Notifications, 'subscribe'>;
}

/** The subscription of one stream to a session. */
export interface Feed {
  /** Reads at most 100 events after a sequence; `undefined` without a session. Concurrent streams share the read. */
  read(after: number): Promise<EventsAfter | undefined>;
  /** Deltas of incomplete events; `undefined` without a session. All streams of the session share the read. */
  readText(): Promise<SessionText | undefined>;
  end(): void;
}

/** State of an invocation that a living process runs. */
export const LIVE_RUN = 'running true';

interface Watcher {
  key: SessionKey;
  invocationId: string;
  /** Called with the state if it has changed; without it if the streams must look for themselves. */
  wake: (state?: string) => void;
  /** The invocation's status at the last poll; `undefined` before the first, which therefore always calls `wake`. */
  state?: string;
}

/**
 * The sessions and invocations that the streams of this process follow. Once a second, one SQL statement polls all
 * these sessions and another statement all these invocations. The streams of one session share each read.
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

  /** `wake` is called when the session may have changed, with `withText` also when there are new deltas. */
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
        // Another stream may have replaced the entry by now.
        if (this.#byTopic.get(topic) === session) this.#byTopic.delete(topic);
      },
    };
  }

  /** Reads an invocation; `undefined` if it does not exist. Concurrent streams share the read. */
  readInvocation(key: SessionKey, invocationId: string): Promise<Invocation | undefined> {
    return this.#invocations.run(`${sessionTopic(key)} ${invocationId}`, async () => {
      const text = await findInvocationText(this.#context.database.db, key, invocationId);
      return text === undefined ? undefined : (parseExactJson(text) as Invocation);
    });
  }

  /**
   * Calls `wake` when an invocation has changed or its process has died, with its state: status and whether its process
   * lives, or `gone`. @returns a function that stops watching
   */
  watch(key: SessionKey, invocationId: string, wake: Watcher['wake']): () => void {
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
      // The poll serves streams of all users, so it must not run as the user whose stream started it.
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
      if (state !== watcher.state) watcher.wake(state);
      watcher.state = state;
    }
  }
}

/** After a passing failure the next poll retries. After any other the streams wake, and their own reads throw it. */
const wakeUnlessPassing = (followers: { wake(): void }[]) => (error: unknown) => {
  if (!isPassingFailure(error)) for (const follower of followers) follower.wake();
  return undefined;
};

class FollowedSession {
  readonly key: SessionKey;
  /** The subscribed streams by their `wake` function; the value is true for streams that also read deltas. */
  readonly followers = new Map<() => void, boolean>();
  readonly #database: DatabasePool;
  /** Reads in progress, by the sequence after which they start. */
  #reads = new SingleFlight<EventsAfter | undefined>();
  #lastEnd: SessionEnd | undefined;
  #textReads = new SingleFlight<SessionText | undefined>();
  /** The deltas of the last read. */
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

  /** True while the model streams text. The deltas are then polled too, because a notification may be lost. */
  get hasText(): boolean {
    return this.#text.length > 0;
  }

  wake(): void {
    // Later callers must not share a read that is in progress, because it may lack the change.
    this.#reads = new SingleFlight();
    this.#textReads = new SingleFlight();
    for (const follower of this.followers.keys()) follower();
  }

  wakeReaders(): void {
    this.#textReads = new SingleFlight();
    for (const [follower, withText] of this.followers) if (withText) follower();
  }

  /**
   * Wakes streams if the session has changed, after a pause in which the notification of the change may still arrive.
   */
  compare(end: SessionEnd | undefined): void {
    const before = this.#lastEnd;
    if (end?.lastSequence === before?.lastSequence && end?.createTime === before?.createTime) return;
    setTimeout(() => {
      if (this.#lastEnd === before) this.wake();
    }, NOTICE_MS).unref();
  }

  read(after: number): Promise<EventsAfter | undefined> {
    return this.#reads.run(String(after), () =>
      listEventsAfter(this.#database.reads, this.key, after, PAGE).then((update) => (this.#lastEnd = update)),
    );
  }

  readText(): Promise<SessionText | undefined> {
    return this.#textReads.run('', async () => {
      const update = await listDeltas(this.#database.reads, this.key, this.#text);
      this.#text = update?.deltas ?? [];
      return update;
    });
  }
}
