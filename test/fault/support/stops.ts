import { randomUUID } from 'node:crypto';
import { isRenewal, type Message, type PostgresProxy, type Rules, startProxy } from './postgres-proxy.ts';
import { type ServerProcess, startServer } from './server-process.ts';

/** What an operation works on, apart from all others: its user and session carry the id that tells its messages. */
export interface Point {
  userId: string;
  sessionId: string;
  /** What makes prompts and texts unique. */
  id: string;
}

/** A message of an operation at which it is held for good. */
export interface Stop {
  point: Point;
  /** Which message, from 1. */
  message: number;
  when: 'before' | 'after';
  /** Messages so far. */
  seen: number;
  reached: PromiseWithResolvers<'reached'>;
}

/** The n-th point of an operation, from 1: before message 1, after it, before message 2 … */
export function stopAt(n: number): Stop {
  const id = randomUUID().replaceAll('-', '_');
  const point = { userId: `u-${id}`, sessionId: `s-${id}`, id };
  const place = { message: Math.ceil(n / 2), when: n % 2 === 1 ? 'before' : 'after' } as const;
  return { point, ...place, seen: 0, reached: Promise.withResolvers() };
}

const isTransactionEnd = ({ sql }: Message) => /^(?:commit|rollback)$/i.test(sql);

/** Holds each operation at its point for good. */
export function holdAt(stops: Stop[]): Rules {
  const lastOf = new Map<number, Stop>();
  const counted = new WeakMap<Message, Stop>();
  const hold = (stop: Stop): Promise<void> => {
    stop.reached.resolve('reached');
    return new Promise(() => undefined);
  };
  return {
    before(message) {
      if (isRenewal(message)) return undefined;
      const marked = stops.find(({ point }) => message.has(point.id));
      const stop = marked ?? (isTransactionEnd(message) ? lastOf.get(message.connection) : undefined);
      if (!stop) return undefined;
      lastOf.set(message.connection, stop);
      if (++stop.seen !== stop.message) return undefined;
      if (stop.when === 'before') return hold(stop);
      counted.set(message, stop);
      return undefined;
    },
    after(message) {
      const stop = counted.get(message);
      return stop && hold(stop);
    },
  };
}

/**
 * A process behind a proxy of its own: what is held of it is cut with it, and not the connections on which the next one
 * starts.
 */
export interface Victim extends ServerProcess {
  proxy: PostgresProxy;
}

/** Starts a process that is going to be killed. */
export async function startVictim(databaseUrl: string, environment: Record<string, string>): Promise<Victim> {
  const proxy = await startProxy(databaseUrl);
  const server = await startServer(proxy.url, environment);
  const kill = async () => {
    await server.kill();
    await proxy.close();
  };
  return { ...server, kill, proxy };
}
