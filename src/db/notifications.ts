import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
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
/** Topics are sent together: a NOTIFY inside each append costs about two thirds of the write rate (measured). */
const FLUSH_MS = 20;
/** PostgreSQL refuses a payload of 8,000 bytes and more. */
const MAX_TOPICS_PER_PAYLOAD = 100;
const CONNECT_TIMEOUT_MS = 5_000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;

/**
 * Opens notifications over LISTEN and NOTIFY on one connection of their own, which is made anew when it breaks. They
 * only save time: a subscriber must also look by itself now and then, for instance behind a pooler without LISTEN.
 */
export const openNotifications = (url: string, onError: (error: unknown) => void): Notifications =>
  new ListenNotifications(url, onError);

class ListenNotifications implements Notifications {
  readonly #url: string;
  readonly #onError: (error: unknown) => void;
  readonly #subscribers = new Map<string, Set<() => void>>();
  readonly #pending = new Set<string>();
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  /** The connection while it listens. */
  #client: Client | undefined;
  #isFlushing = false;

  constructor(url: string, onError: (error: unknown) => void) {
    this.#url = url;
    this.#onError = onError;
    this.#running = this.#stayConnected();
  }

  publish(topic: string): void {
    this.#wake(topic);
    this.#pending.add(topic);
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    setTimeout(() => void this.#flush(), FLUSH_MS).unref();
  }

  subscribe(topic: string, wake: () => void): () => void {
    const calls = this.#subscribers.get(topic) ?? new Set();
    this.#subscribers.set(topic, calls.add(wake));
    return () => {
      calls.delete(wake);
      if (calls.size === 0) this.#subscribers.delete(topic);
    };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  #wake(topic: string): void {
    this.#subscribers.get(topic)?.forEach((call) => call());
  }

  async #stayConnected(): Promise<void> {
    const { signal } = this.#closing;
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      await this.#listen().then(() => (pauseMs = FIRST_PAUSE_MS), this.#onError);
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Listens on one connection until it ends. @throws what kept it from listening. */
  async #listen(): Promise<void> {
    const client = new Client({
      connectionString: this.#url,
      application_name: 'agent-runtime notifications',
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: CONNECT_TIMEOUT_MS,
      keepAlive: true,
    });
    const ended = new Promise<void>((resolve) => client.once('end', resolve));
    client.on('error', this.#onError);
    await client.connect();
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
    client.on('notification', ({ payload, processId }) => {
      // What this process sent has woken its own subscribers already.
      if (processId === rows[0]?.pid) return;
      for (const topic of JSON.parse(payload ?? '[]') as string[]) this.#wake(topic);
    });
    await client.query(`listen ${CHANNEL}`);
    this.#client = client;
    for (const topic of this.#subscribers.keys()) this.#wake(topic);
    await this.#endWhenClosing(client, ended);
  }

  async #endWhenClosing(client: Client, ended: Promise<void>): Promise<void> {
    const end = () => {
      this.#client = undefined;
      client.end().catch(this.#onError);
    };
    const { signal } = this.#closing;
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
    await ended;
    signal.removeEventListener('abort', end);
    this.#client = undefined;
  }

  /** Sends what is pending, one statement at a time; topics that come meanwhile go with the next one. */
  async #flush(): Promise<void> {
    while (this.#pending.size > 0 && this.#client) {
      const topics = [...this.#pending].slice(0, MAX_TOPICS_PER_PAYLOAD);
      for (const topic of topics) this.#pending.delete(topic);
      await this.#client.query('select pg_notify($1, $2)', [CHANNEL, JSON.stringify(topics)]).catch(this.#onError);
    }
    // Without a connection nobody can be notified; subscribers look by themselves.
    this.#pending.clear();
    this.#isFlushing = false;
  }
}

/**
 * Wakes the subscribers of a topic everywhere, this process included, when the transaction commits: not before they
 * can see why.
 */
export async function notifyOnCommit(tx: Database, topic: string): Promise<void> {
  await tx.execute(sql`select pg_notify(${CHANNEL}, ${JSON.stringify([topic])})`);
}
