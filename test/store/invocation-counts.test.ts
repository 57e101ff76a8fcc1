import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { deleteBudget, saveBudget } from '../../src/conversation/budgets/budget-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { requestStop } from '../../src/invocations/invocation-store.ts';
import { claimQueued, claimSession, enqueueInvocation, type Lease } from '../../src/invocations/lock-store.ts';
import { findQueued, pauseQueued } from '../../src/invocations/queue-store.ts';
import { endLostInvocations, leaveRun, takeOver } from '../../src/invocations/take-over.ts';
import { newKey, takerOn, testPool, textEvent } from '../support/store.ts';

const store = testPool(4);

/** One invocation of a user of its own, and the acts on it. */
function newRun() {
  const { db } = store.pool;
  const lease: Lease = {
    key: newKey(),
    invocationId: `e-${randomUUID()}`,
    token: randomUUID(),
    durationMs: 60_000,
    storedRequest: { version: 1 },
  };
  const { appName, userId, sessionId } = lease.key;
  const prompt = () => textEvent('p', { invocationId: lease.invocationId });
  const budget = { appliesTo: 'user', forUser: userId, period: 'day' } as const;
  const ask = { callId: 'c', callName: 'ask', about: 'c', tool: 'ask', args: {}, wait: {} };
  return {
    begin: async () => {
      expect(await claimSession(db, lease, [prompt()], true)).toBe(true);
    },
    limit: () => saveBudget(db, appName, { ...budget, maxInvocations: 9 }),
    unlimit: () => deleteBudget(db, appName, budget),
    finish: () => finishInvocation(db, lease, [], { status: 'succeeded' }),
    pause: () => finishInvocation(db, lease, [], { status: 'paused', waits: [ask] }),
    answer: async () => {
      lease.answers = [{ id: 'c', name: 'ask', invocationId: lease.invocationId }];
      lease.token = randomUUID();
      expect(await claimSession(db, lease, [prompt()], false)).toBe(true);
    },
    expire: () =>
      db.execute(sql`update invocations set lease_expire_time = '2026-01-01' where session_id = ${sessionId}`),
    takeOver: () => takeOver(takerOn(store.pool), lease.key),
    resume: async ({ isFree = false } = {}) => {
      const readToken = (await findQueued(db, lease))?.token ?? '';
      Object.assign(lease, { readToken, token: randomUUID(), ...(isFree && { isFree }) });
      expect(await claimQueued(db, lease, [])).toBe(true);
    },
    leave: () => {
      const over = { what: 'tokens', isShort: false, seconds: 60, opens: '2026-01-02T00:00:00Z' } as const;
      return leaveRun(takerOn(store.pool), lease, { appliesTo: 'user', period: 'day', ...over });
    },
    lose: () => db.execute(sql`update sessions set lease_token = null where id = ${sessionId}`),
    endLost: () => endLostInvocations(db),
    cancel: () => requestStop(db, lease.key, lease.invocationId, 'cancelled'),
    queue: async () => {
      await claimSession(db, { ...lease, invocationId: 'e-first', token: randomUUID() }, [textEvent('p')], true);
      await db.execute(sql`update invocations set count_time = now() where session_id = ${sessionId}`);
      await enqueueInvocation(db, lease, 9, { version: 1 });
    },
    refuse: () => pauseQueued(db, lease),
    count: async () => {
      const { rows } = await db.execute<{ n: number }>(
        sql`select coalesce(sum(invocations), 0)::int as n from budget_uses where user_id = ${userId}`,
      );
      return rows[0]?.n;
    },
  };
}

type Act = Exclude<keyof ReturnType<typeof newRun>, 'count'> | 'resumeFree';

test.each<{ acts: [Act, number][] }>([
  {
    acts: [
      ['begin', 0],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['limit', 0],
      ['begin', 1],
      ['finish', 1],
    ],
  },
  // A maximum that is set during an incident holds from then on.
  {
    acts: [
      ['begin', 0],
      ['limit', 1],
      ['limit', 1],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['limit', 0],
      ['begin', 1],
      ['unlimit', 1],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['pause', 1],
      ['answer', 1],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['pause', 1],
      ['limit', 1],
      ['answer', 1],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['pause', 1],
      ['cancel', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['expire', 0],
      ['takeOver', 0],
      ['resume', 0],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['expire', 0],
      ['takeOver', 0],
      ['limit', 1],
      ['resumeFree', 1],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['expire', 0],
      ['takeOver', 0],
      ['resumeFree', 0],
      ['finish', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['leave', 1],
      ['cancel', 1],
    ],
  },
  {
    acts: [
      ['limit', 0],
      ['begin', 1],
      ['leave', 1],
      ['cancel', 1],
    ],
  },
  {
    acts: [
      ['begin', 0],
      ['lose', 0],
      ['expire', 0],
      ['endLost', 1],
    ],
  },
  // It never began.
  {
    acts: [
      ['queue', 0],
      ['cancel', 0],
    ],
  },
  {
    acts: [
      ['queue', 0],
      ['limit', 0],
      ['refuse', 0],
      ['cancel', 0],
    ],
  },
])('what has begun counts once: $acts', async ({ acts }) => {
  const run = newRun();
  const counts: [Act, number | undefined][] = [];
  for (const [act] of acts) {
    await (act === 'resumeFree' ? run.resume({ isFree: true }) : run[act]());
    counts.push([act, await run.count()]);
  }
  expect(counts).toEqual(acts);
});
