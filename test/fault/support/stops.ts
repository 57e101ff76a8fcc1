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

/**
 * Holds each operation at its point for good. A message may be of several operations, which are then held together: the
 * text of all streams is stored by one statement.
 */
export function holdAt(stops: Stop[]): Rules {
  const lastOf = new Map<number, Stop[]>();
  const counted = new WeakMap<Message, Stop[]>();
  const hold = (held: Stop[]): Promise<void> => {
    for (const { reached } of held) reached.resolve('reached');
    return new Promise(() => undefined);
  };
  return {
    before(message) {
      if (isRenewal(message)) return undefined;
      const marked = stops.filter(({ point }) => message.has(point.id));
      const concerned =
        marked.length > 0 ? marked : isTransactionEnd(message) ? lastOf.get(message.connection) : undefined;
      if (!concerned) return undefined;
      lastOf.set(message.connection, concerned);
      for (const stop of concerned) stop.seen += 1;
      const due = concerned.filter((stop) => stop.seen === stop.message);
      if (due.some(({ when }) => when === 'before')) return hold(concerned);
      if (due.length > 0) counted.set(message, concerned);
      return undefined;
    },
    after(message) {
      const held = counted.get(message);
      return held && hold(held);
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
