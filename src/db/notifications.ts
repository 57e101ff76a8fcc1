import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';

/** Tells processes that share a database that something changed: topics only, never data. */
export interface Notifications {
  /** Wakes the subscribers of a topic: those of this process at once, those of others within tens of milliseconds. */
  publish(topic: string): void;
  /** Calls `wake` whenever the topic may have changed; also after a gap in which notifications may have been lost. */
  subscribe(topic: string, wake: () => void): () => void;
  close(): Promise<void>;
}

const CHANNEL = 'agent_runtime';
/** Topics are sent together: a NOTIFY inside each append costs about two thirds of the write rate (measured by the authors). */
const FLUSH_MS = 20;
/** PostgreSQL refuses a payload of 8,000 bytes and more. */
const MOST_TOPICS_PER_PAYLOAD = 100;
const CONNECT_TIMEOUT_MS = 5_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;

/**
 * Opens notifications over LISTEN and NOTIFY on one connection of their own, which is made anew when it breaks. They only save
 * time: a subscriber must also look by itself now and then, for instance behind a pooler that does not pass LISTEN.
 */
export function openNotifications(url: string, onError: (error: unknown) => void): Notifications {
  const subscribers = new Map<string, Set<() => void>>();
  const pending = new Set<string>();
  const closing = new AbortController();
  let client: Client | undefined;
  let flushing = false;

  const wake = (topic: string) => subscribers.get(topic)?.forEach((call) => call());
  const wakeAll = () => subscribers.forEach((calls) => calls.forEach((call) => call()));

  const connect = async (): Promise<void> => {
    const connecting = new Client({
      connectionString: url,
      application_name: 'agent-runtime notifications',
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: CONNECT_TIMEOUT_MS,
      keepAlive: true,
    });
    const ended = new Promise<void>((resolve) => connecting.once('end', resolve));
    const end = () => {
      client = undefined;
      connecting.end().catch(onError);
    };
    connecting.on('error', onError);
    connecting.on('notification', ({ payload, processId }) => {
      if (processId !== ownProcessId) (JSON.parse(payload ?? '[]') as string[]).forEach(wake);
    });
    await connecting.connect();
    const { rows } = await connecting.query<{ pid: number }>('select pg_backend_pid() as pid');
    const ownProcessId = rows[0]?.pid;
    await connecting.query(`listen ${CHANNEL}`);
    client = connecting;
    wakeAll();
    if (closing.signal.aborted) end();
    else closing.signal.addEventListener('abort', end, { once: true });
    await ended;
    closing.signal.removeEventListener('abort', end);
    client = undefined;
  };

  const stayConnected = async (): Promise<void> => {
    for (let pauseMs = FIRST_PAUSE_MS; !closing.signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      await connect().then(() => (pauseMs = FIRST_PAUSE_MS), onError);
      await sleep(pauseMs, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  };

  /** Sends what is pending, one statement at a time; topics that come meanwhile go with the next one. */
  const flush = async (): Promise<void> => {
    while (pending.size > 0 && client) {
      const topics = [...pending].slice(0, MOST_TOPICS_PER_PAYLOAD);
      for (const topic of topics) pending.delete(topic);
      await client.query('select pg_notify($1, $2)', [CHANNEL, JSON.stringify(topics)]).catch(onError);
    }
    // Without a connection nobody can be told; subscribers look by themselves.
    pending.clear();
    flushing = false;
  };

  const running = stayConnected();
  return {
    publish(topic) {
      wake(topic);
      pending.add(topic);
      if (flushing) return;
      flushing = true;
      setTimeout(() => void flush(), FLUSH_MS).unref();
    },
    subscribe(topic, call) {
      const calls = subscribers.get(topic) ?? new Set();
      subscribers.set(topic, calls.add(call));
      return () => {
        calls.delete(call);
        if (calls.size === 0) subscribers.delete(topic);
      };
    },
    async close() {
      closing.abort();
      await running;
    },
  };
}
