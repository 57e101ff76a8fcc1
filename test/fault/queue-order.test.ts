import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { claimQueued, claimSession, enqueueInvocation, type Lease } from '../../src/invocations/lock-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { newKey, testPool, textEvent } from '../support/store.ts';
import { report } from './support/faults.ts';
import { random } from './support/seed.ts';

const store = testPool(20);
const WAITERS = 12;

test('however the waiters look, one by one or all at once, the session goes round in the order they came', async () => {
  const { db } = store.pool;
  const { next: chance } = random('queue order');
  const key = newKey();
  const newLease = (): Lease => ({ key, invocationId: `e-${randomUUID()}`, token: randomUUID(), durationMs: 60_000 });
  const eventsOf = ({ invocationId }: Lease) => [textEvent(invocationId, { invocationId })];
  const first = newLease();
  expect(await claimSession(db, first, eventsOf(first), true)).toBe(true);
  const waiters = Array.from({ length: WAITERS }, newLease);
  for (const waiter of waiters) await enqueueInvocation(db, waiter, WAITERS);
  await finishInvocation(db, first, [], { status: 'succeeded' });
  const served: string[] = [];
  let waiting = waiters;
  while (waiting.length > 0) {
    const looking = waiting.toSorted(() => chance() - 0.5);
    const claims = await Promise.all(
      looking.map(async (lease) => ({ lease, isMine: await claimQueued(db, lease, eventsOf(lease)) })),
    );
    const holders = claims.filter(({ isMine }) => isMine).map(({ lease }) => lease);
    expect(holders.length).toBeLessThanOrEqual(1);
    for (const holder of holders) {
      served.push(holder.invocationId);
      waiting = waiting.filter((lease) => lease !== holder);
      await finishInvocation(db, holder, [], { status: 'succeeded' });
    }
  }
  report('queue order', `${WAITERS} waiters, 0 overtaken`);
  expect(served).toEqual(waiters.map(({ invocationId }) => invocationId));
});
