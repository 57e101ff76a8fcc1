import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { afterAll, beforeAll, inject } from 'vitest';
import { type DatabasePool, openDatabase } from '../../src/platform/db/database.ts';
import type { PoolOptions } from '../../src/platform/db/pool-options.ts';
import type { NewEvent } from '../../src/core/event.ts';
import type { SessionKey } from '../../src/core/session.ts';
import { testDatabase, throughPooler } from './database.ts';
import { MINUTE } from './patience.ts';

/** A pool on a database of the calling file's own; `pool` is there from `beforeAll` on. */
export function testPool(size = 10): { readonly pool: DatabasePool; readonly url: string } {
  const database = testDatabase();
  let opened: DatabasePool | undefined;
  beforeAll(() => {
    opened = openPool(database.url, size);
  });
  afterAll(() => opened?.close());
  return {
    get pool() {
      if (!opened) throw new TypeError('the pool exists from beforeAll on');
      return opened;
    },
    get url() {
      return database.url;
    },
  };
}

/** A pool without limits of time: they would only say how busy the machine is. */
export const openPool = (url: string, size = 10): DatabasePool => openDatabase(poolOptions(url, size));

/** What {@link openPool} opens; behind the pooler of `TEST_POOLER=1` where there is one. */
export function poolOptions(url: string, size: number): PoolOptions {
  const pooled = throughPooler(url);
  return {
    url: pooled ?? url,
    isPooled: pooled !== undefined,
    size,
    statementTimeoutMs: 2 * MINUTE,
    lockTimeoutMs: 2 * MINUTE,
    connectTimeoutMs: 2 * MINUTE,
    maxStateBytes: 1_048_576,
    maxStateKeys: 10_000,
    maxAppStateBytesPerUser: 65_536,
    maxSessionBytes: 33_554_432,
    maxUserBytes: 1_073_741_824,
    maxOpenTasks: 1_000,
    maxPendingDeliveries: 1_000,
    preparesStatements: pooled === undefined && inject('workerUrls').length === 0,
    isOnCluster: inject('workerUrls').length > 0,
    onIdleError: () => undefined,
  };
}

/** A session key that no other test uses. */
export const newKey = (): SessionKey => ({
  appName: `app-${randomUUID()}`,
  userId: `user-${randomUUID()}`,
  sessionId: randomUUID(),
});

/** An event that says `text`. */
export const textEvent = (text: string, more: Partial<NewEvent> = {}): NewEvent => ({
  id: randomUUID(),
  invocationId: 'e-1',
  author: 'user',
  content: { role: 'user', parts: [{ text }] },
  ...more,
});

/** The SQL texts that this process sends while `work` runs: one per round trip, BEGIN and COMMIT included. */
export async function statementsOf(work: () => Promise<unknown>): Promise<string[]> {
  const sent: string[] = [];
  // oxlint-disable-next-line typescript/unbound-method -- put back as it was, and called with its own `this`
  const original = Client.prototype.query;
  Client.prototype.query = function counted(this: Client, ...args: unknown[]) {
    const first = args[0];
    sent.push(typeof first === 'string' ? first : String((first as { text?: string }).text));
    return Reflect.apply(original, this, args) as never;
  };
  try {
    await work();
  } finally {
    Client.prototype.query = original;
  }
  return sent;
}

const TIMES = 5;
export const MAX_TIMES = 200;

/**
 * Returns the fewest statements that one of several requests sent, notifications aside, which go out in the
 * background. What a process does beside requests (heartbeats, a sweep of many statements) falls into some of them,
 * not into all: it is made again while it costs more than `budget`, at most 200 times.
 */
export async function leastStatements(budget: number, request: (run: number) => Promise<unknown>): Promise<number> {
  const counts: number[] = [];
  for (let run = 0; run < TIMES || (run < MAX_TIMES && Math.min(...counts) > budget); run += 1) {
    const sent = await statementsOf(() => request(run));
    counts.push(sent.filter((text) => !text.includes('pg_notify')).length);
  }
  return Math.min(...counts);
}

/** What a take-over needs, for the invocations of a database. */
export const takerOn = (database: DatabasePool) => ({
  database,
  newId: randomUUID,
  notifications: { publish: () => undefined },
  limits: { attempts: 3 },
  leaseTimes: { durationMs: 60_000 },
});
