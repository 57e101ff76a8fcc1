import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, inject, test } from 'vitest';
import { rowContent } from '../../src/conversation/artifacts/artifact.ts';
import type { CallRecord } from '../../src/agent/loop/call-ledger.ts';
import { InvocationLedger } from '../../src/invocations/invocation-ledger.ts';
import { claimSession, type Lease } from '../../src/invocations/lock-store.ts';
import { takeOver } from '../../src/invocations/take-over.ts';
import { newKey, takerOn, testPool, textEvent } from '../support/store.ts';

/** The ledger of tool calls, written over two connections at once. */

const store = testPool();
/** Locks that somebody waits for: on a cluster those of all nodes, else those of this file's database. */
const WAITS = sql.raw(
  inject('workerUrls').length > 0
    ? 'citus_locks where not granted'
    : `pg_locks join pg_stat_activity using (pid) where not granted and datname = current_database()`,
);

async function claim(durationMs: number): Promise<Lease> {
  const lease = { key: newKey(), invocationId: `e-${randomUUID()}`, token: randomUUID(), durationMs };
  await claimSession(store.pool.db, lease, [textEvent('hello', { invocationId: lease.invocationId })], true);
  return lease;
}

const call: CallRecord = { id: 'c', tool: 'book', effect: 'transactional', operationId: randomUUID(), attempt: 1 };
const answer = { response: { booked: 1 }, actions: {}, attachments: [] };

/** Keeps the answer of the call in a transaction that ends when it is told to. */
function keepAnswer(lease: Lease) {
  const [kept, commit] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isCommitted = false;
  const committed = store.pool.transaction(async (tx) => {
    await new InvocationLedger(tx, lease, { contentStore: rowContent(1_000) }).write([
      { ...call, state: 'done', response: answer },
    ]);
    kept.resolve();
    await commit.promise;
    isCommitted = true;
  });
  return { kept: kept.promise, committed, commit: commit.resolve, isCommitted: () => isCommitted };
}

/** Waits until another connection waits for a lock, or `work` has not. */
async function untilItWaits(work: Promise<unknown>): Promise<void> {
  let isOver = false;
  const over = () => void (isOver = true);
  work.then(over, over);
  for (let waiting = 0; waiting === 0 && !isOver; ) {
    const { rows } = await store.pool.db.execute<{ n: number }>(sql`select count(*)::int as n from ${WAITS}`);
    waiting = rows[0]?.n ?? 0;
  }
}

test('who looks a call up waits for a transaction that may still commit its answer', async () => {
  const lease = await claim(60_000);
  const ledger = new InvocationLedger(store.pool.db, lease, { contentStore: rowContent(1_000) });
  await ledger.write([{ ...call, state: 'started' }]);
  const keeping = keepAnswer(lease);
  await keeping.kept;
  const looking = ledger.write([call]);
  await untilItWaits(looking);
  keeping.commit();
  await keeping.committed;
  expect((await looking).get('c')).toEqual({ id: 'c', state: 'done', attempt: 1, response: answer });
});

test('a take-over waits for a transaction that keeps an answer under the lease', async () => {
  const lease = await claim(0);
  const keeping = keepAnswer(lease);
  await keeping.kept;
  const taking = takeOver(takerOn(store.pool), lease.key).then(() => keeping.isCommitted());
  await untilItWaits(taking);
  keeping.commit();
  await keeping.committed;
  expect(await taking).toBe(true);
});
