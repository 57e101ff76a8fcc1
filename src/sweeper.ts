import { sessionTopic } from './core/topics.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabasePool } from './db/database.ts';
import type { Notifications } from './db/notifications.ts';
import { deleteOldSpans } from './traces/span-store.ts';
import { isPassingFailure } from './core/errors.ts';
import { deleteOldKeys } from './idempotency/key-store.ts';
import { forgetInvocationKeys } from './invocations/invocation-store.ts';
import type { Log } from './core/log.ts';
import { endDeadWaiters, endLostInvocations, listDeadHolders } from './invocations/lock-store.ts';
import { takeOver } from './invocations/take-over.ts';

/** Sessions that one sweep takes over at most. */
const BATCH = 100;
const IDEMPOTENCY_HOURS = 24;

/** What sweeping needs of the process. */
interface SweepContext {
  database: DatabasePool;
  notifications: Notifications;
  log: Log;
  newId: () => string;
  /** How long traces are kept; also where none are made any more. */
  traceHours: number;
}

/**
 * Ends the invocations whose process died, everywhere, forgets idempotency keys of yesterday and deletes old traces. Several
 * replicas may sweep at once.
 */
async function sweep({ database, notifications, newId, traceHours }: SweepContext): Promise<void> {
  await endDeadWaiters(database.db);
  await endLostInvocations(database.db);
  for (const key of await listDeadHolders(database.db, BATCH)) {
    await takeOver(database, key, newId);
    notifications.publish(sessionTopic(key));
  }
  await deleteOldKeys(database.db, IDEMPOTENCY_HOURS);
  await forgetInvocationKeys(database.db, IDEMPOTENCY_HOURS);
  await deleteOldSpans(database.db, traceHours);
}

/** Sweeps now and then until `signal` aborts; a database that is away is tried again the next time. */
export async function sweepRegularly(context: SweepContext, intervalMs: number, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await sweep(context).catch((error: unknown) => {
      if (!isPassingFailure(error)) context.log.error({ err: error }, 'the sweep failed');
    });
    await sleep(intervalMs, undefined, { signal }).catch(() => undefined);
  }
}
