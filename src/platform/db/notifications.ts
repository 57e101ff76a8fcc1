import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { bindUser } from '../context.ts';
import { VERSION } from '../version.ts';
import type { DatabaseAddress } from './connection.ts';
import { connect, readOnlyServer, type ServerClient } from './client.ts';
import type { Database } from './database.ts';

/** Notifies processes that share a database that something changed: topics only, never data. */
export interface Notifications {
  /** Wakes the subscribers of a topic: those of this process at once, those of others within tens of milliseconds. */
  publish(topic: string): void;
  /**
   * Calls `wake` whenever the topic may have changed; also after a gap in which notifications may have been lost.
   * @returns what ends the subscription.
   */
  subscribe(topic: string, wake: () => void): () => void;
  /** Closes the connection; settles when it is closed. */
  close(): Promise<void>;
}

const CHANNEL = 'agent_runtime';
/**
 * Minimum time between two statements that notify: a NOTIFY inside each append costs about two thirds of the write rate
 * (measured). The first topic after a pause goes at once, those that come meanwhile together.
 */
const FLUSH_MS = 20;
/** PostgreSQL refuses a payload of 8,000 bytes and more. */
const MAX_TOPICS_PER_PAYLOAD = 100;
/** Maximum wait for a connection, and for each answer. */
const TIMEOUT_MS = 5_000;
/** Time between two signs of life that the connection has to give: a network may swallow one without a word. */
const HEARTBEAT_MS = 10_000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;

/** Interval of polls where no notifications arrive: behind a pooler, without a way past it. */
const POLL_MS = 1_000;

/**
 * Opens LISTEN and NOTIFY on a connection of their own, made anew when it breaks. They only save time: a subscriber
 * must also look by itself. Behind a pooler in transaction mode, without LISTEN, it is woken every second.
 */
export const openNotifications = (
  address: DatabaseAddress,
  onError: (error: unknown) => void,
  { heartbeatMs = HEARTBEAT_MS, timeoutMs = TIMEOUT_MS } = {},
): Notifications =>
  address.isPooled ? new PolledNotifications() : new ListenNotifications(address, onError, { heartbeatMs, timeoutMs });

/** The subscribers of a process. */
class Subscribers {
  readonly #calls = new Map<string, Set<() => void>>();

  add(topic: string, wake: () => void): () => void {
    const calls = this.#calls.get(topic) ?? new Set();
    // Woken by the publisher: what follows is done for the subscriber, not for the publisher.
    const asHere = bindUser(wake);
    this.#calls.set(topic, calls.add(asHere));
    return () => {
      calls.delete(asHere);
      if (calls.size === 0) this.#calls.delete(topic);
    };
  }

  wake(topic: string): void {
    this.#calls.get(topic)?.forEach((call) => call());
  }

  wakeAll(): void {
    for (const topic of this.#calls.keys()) this.wake(topic);
  }
}

class PolledNotifications implements Notifications {
  readonly #subscribers = new Subscribers();
  readonly #timer = setInterval(() => this.#subscribers.wakeAll(), POLL_MS).unref();

  publish(topic: string): void {
    this.#subscribers.wake(topic);
  }

  subscribe(topic: string, wake: () => void): () => void {
    return this.#subscribers.add(topic, wake);
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
  }
}

class ListenNotifications implements Notifications {
  readonly #address: DatabaseAddress;
  readonly #onError: (error: unknown) => void;
  readonly #times: Record<'heartbeatMs' | 'timeoutMs', number>;
  readonly #subscribers = new Subscribers();
  readonly #pending = new Set<string>();
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  /** The connection while it listens. */
  #client: ServerClient | undefined;
  #isFlushing = false;

  constructor(
    address: DatabaseAddress,
    onError: (error: unknown) => void,
    times: Record<'heartbeatMs' | 'timeoutMs', number>,
  ) {
    this.#address = address;
    this.#times = times;
    this.#onError = onError;
    this.#running = this.#stayConnected();
  }

  publish(topic: string): void {
    this.#subscribers.wake(topic);
    this.#pending.add(topic);
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setImmediate(() => void this.#flush());
  }

  subscribe(topic: string, wake: () => void): () => void {
    return this.#subscribers.add(topic, wake);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  async #stayConnected(): Promise<void> {
    const { signal } = this.#closing;
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      await this.#listen().then(() => (pauseMs = FIRST_PAUSE_MS), this.#onError);
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Listens on one connection until it ends. @throws what kept it from listening, or ended it. */
  async #listen(): Promise<void> {
    const { timeoutMs } = this.#times;
    const client = await connect(this.#address, {
      // By it operators see which replicas there are.
      application_name: `agent-runtime/${VERSION} ${hostname()}`,
      connectionTimeoutMillis: timeoutMs,
      query_timeout: timeoutMs,
      keepAlive: true,
    });
    const ended = new AbortController();
    client.once('end', () => ended.abort());
    client.on('error', this.#onError);
    try {
      const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
      client.on('notification', ({ payload, processId }) => {
        // What this process sent has woken its own subscribers already.
        if (processId === rows[0]?.pid) return;
        for (const topic of toTopics(payload)) this.#subscribers.wake(topic);
      });
      await client.query(`listen ${CHANNEL}`);
      this.#client = client;
      this.#subscribers.wakeAll();
      await this.#stayAlive(client, AbortSignal.any([ended.signal, this.#closing.signal]));
    } finally {
      this.#client = undefined;
      // A connection whose query has not been answered is cut instead of being told.
      await Promise.race([client.end(), sleep(timeoutMs, undefined, { ref: false })]).catch(this.#onError);
    }
  }

  /** Settles when the connection has ended or is to end. @throws when it gives no sign of life, or may not be used. */
  async #stayAlive(client: ServerClient, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.#times.heartbeatMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await client.query('select 1');
      if (client.isReadOnly) throw readOnlyServer();
    }
  }

  /** Sends what is pending, one statement at a time; topics that come meanwhile go with the next one. */
  async #flush(): Promise<void> {
    while (this.#pending.size > 0 && this.#client) {
      const topics = [...this.#pending].slice(0, MAX_TOPICS_PER_PAYLOAD);
      for (const topic of topics) this.#pending.delete(topic);
      const client = this.#client;
      await client.query('select pg_notify($1, $2)', [CHANNEL, JSON.stringify(topics)]).catch((error: unknown) => {
        this.#onError(error);
        // Whatever keeps it from sending may keep it from listening.
        return client.end().catch(() => undefined);
      });
      await sleep(FLUSH_MS, undefined, { ref: false });
    }
    // Without a connection there are no notifications; subscribers poll.
    this.#pending.clear();
    this.#isFlushing = false;
  }
}

/** Reads the topics of a notification; any role of the database may send one, so one of others has none. */
function toTopics(payload = ''): string[] {
  try {
    const topics: unknown = JSON.parse(payload);
    return Array.isArray(topics) ? topics.map(String) : [];
  } catch {
    return [];
  }
}

/** Wakes the subscribers of a topic in all processes when the transaction commits: not before they can see why. */
export async function notifyOnCommit(tx: Database, topic: string): Promise<void> {
  await tx.execute(sql`select pg_notify(${CHANNEL}, ${JSON.stringify([topic])})`);
}
