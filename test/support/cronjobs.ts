import { randomUUID } from 'node:crypto';
import type { InvocationOutcome } from '../../src/invocations/finish-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { claimQueued, type Lease } from '../../src/invocations/lock-store.ts';
import { findQueued, listHeads } from '../../src/invocations/queue-store.ts';
import { fireDueCronjobs } from '../../src/features/cronjobs/fire.ts';
import type { DatabasePool } from '../../src/platform/db/database.ts';
import { textEvent } from './store.ts';

const notifications = { publish: () => undefined };

/** Fires until nothing is due. */
export async function fireAll(database: DatabasePool): Promise<void> {
  while ((await fireDueCronjobs({ database, newId: randomUUID, notifications })).fired > 0);
}

/** Begins the runs of an application as the background queue of a process does. @returns those that it began */
export async function beginRuns(
  { db }: DatabasePool,
  { appName = 'harness_agent', runs = 100, perUser = 100, durationMs = 60_000 } = {},
): Promise<Lease[]> {
  const choice = { appNames: [appName], without: [], limit: 100, runs, runsPerUser: perUser, aheadMs: 0 };
  const { waiting } = await listHeads(db, choice, 3);
  const begun: Lease[] = [];
  for (const { key, invocationId } of waiting) {
    const queued = await findQueued(db, { key, invocationId });
    if (!queued) continue;
    const lease: Lease = {
      key,
      invocationId,
      token: randomUUID(),
      readToken: queued.token,
      durationMs,
      places: perUser,
      storedRequest: queued.request as never,
    };
    if (await claimQueued(db, lease, [textEvent('hello', { id: randomUUID(), invocationId })])) begun.push(lease);
  }
  return begun;
}

export const endRun = (database: DatabasePool, lease: Lease, outcome: InvocationOutcome) =>
  finishInvocation(database.db, lease, [], outcome);
