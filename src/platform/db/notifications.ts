import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { bindUser } from '../context.ts';
import { VERSION } from '../version.ts';
import type { DatabaseAddress } from './connection.ts';
import { connect, readOnlyServer, type ServerClient } from './client.ts';
import type { Database } from './database.ts';

/** Tells the processes that share a database about changes: only topics, never data. */
export interface Notifications {
  /** Wakes a topic's subscribers: in this process at once, elsewhere within tens of milliseconds. */
  publish(topic: string): void;
  /**
   * Calls `wake` when the topic may have changed, also after an interruption that may have lost notifications.
   * @returns a function that unsubscribes
   */
  subscribe(topic: string, wake: () => void): () => void;
  close(): Promise<void>;
}

const CHANNEL = 'agent_runtime';
/**
 * Minimum interval between NOTIFY statements, in milliseconds; topics within it are batched. A NOTIFY with each append
 * would cost two thirds of the write rate (measured).
 */
const FLUSH_MS = 20;
/** Maximum number of topics in a notification, because a payload of PostgreSQL has at most 8,000 bytes. */
const MAX_TOPICS_PER_PAYLOAD = 100;
/** Time-out for connecting and for each response, in milliseconds. */
const TIMEOUT_MS = 5_000;
/** Interval of health checks in milliseconds; needed because a network may drop a connection silently. */
const HEARTBEAT_MS = 10_000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;

/** Polling interval in milliseconds behind a pooler, where no notifications arrive. */
const POLL_MS = 1_000;

/**
 * LISTEN and NOTIFY on a separate connection reduce latency only: subscribers must also poll. Behind a pooler in
 * transaction mode LISTEN does not work, so subscribers are woken every second.
 */
export const openNotifications = (
  address: DatabaseAddress,
  onError: (error: unknown) => void,
  { heartbeatMs = HEARTBEAT_MS, timeoutMs = TIMEOUT_MS } = {},
): Notifications =>
  address.isPooled ? new PolledNotifications() : new ListenNotifications(address, onError, { heartbeatMs, timeoutMs });

class Subscribers {
  readonly #calls = new Map<string, Set<() => void>>();

  add(topic: string, wake: () => void): () => void {
    const calls = this.#calls.get(topic) ?? new Set();
    // `wake` is bound to the subscriber's user, so that it does not run under the publisher's.
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
  /** The connection that listens; `undefined` while there is none. */
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

  /** Listens on one connection until it ends. @throws if it fails */
  async #listen(): Promise<void> {
    const { timeoutMs } = this.#times;
    const client = await connect(this.#address, {
      // The application name shows operators which replicas are connected.
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
        // Notifications of this process are ignored, because `publish` has already woken its subscribers.
        if (processId === rows[0]?.pid) return;
        for (const topic of toTopics(payload)) this.#subscribers.wake(topic);
      });
      await client.query(`listen ${CHANNEL}`);
      this.#client = client;
      this.#subscribers.wakeAll();
      await this.#stayAlive(client, AbortSignal.any([ended.signal, this.#closing.signal]));
    } finally {
      this.#client = undefined;
      // If a query was not answered, `end` never settles, so the connection is abandoned after the time-out.
      await Promise.race([client.end(), sleep(timeoutMs, undefined, { ref: false })]).catch(this.#onError);
    }
  }

  /** Checks the connection regularly until it ends. @throws if it does not answer or has become read-only */
  async #stayAlive(client: ServerClient, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.#times.heartbeatMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await client.query('select 1');
      if (client.isReadOnly) throw readOnlyServer();
    }
  }

  /** Sends pending topics in batches; topics published meanwhile go into the next one. */
  async #flush(): Promise<void> {
    while (this.#pending.size > 0 && this.#client) {
      const topics = [...this.#pending].slice(0, MAX_TOPICS_PER_PAYLOAD);
      for (const topic of topics) this.#pending.delete(topic);
      const client = this.#client;
      await client.query('select pg_notify($1, $2)', [CHANNEL, JSON.stringify(topics)]).catch((error: unknown) => {
        this.#onError(error);
        // The connection is closed: one that cannot send probably cannot listen either.
        return client.end().catch(() => undefined);
      });
      await sleep(FLUSH_MS, undefined, { ref: false });
    }
    // Without a connection the topics are dropped, because subscribers also poll.
    this.#pending.clear();
    this.#isFlushing = false;
  }
}

/** Reads the topics of a payload. Any role of the database may send notifications, so invalid payloads are ignored. */
function toTopics(payload = ''): string[] {
  try {
    const topics: unknown = JSON.parse(payload);
    return Array.isArray(topics) ? topics.map(String) : [];
  } catch {
    return [];
  }
}

/** Wakes a topic's subscribers when the transaction commits, so that they see the change. */
export async function notifyOnCommit(tx: Database, topic: string): Promise<void> {
  await tx.execute(sql`select pg_notify(${CHANNEL}, ${JSON.stringify([topic])})`);
}
