import { setTimeout as sleep } from 'node:timers/promises';
import type { ModelUse, OverBudget } from '../conversation/budgets/budget.ts';
import type { Database } from '../platform/db/database.ts';
import { ConflictError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import { findEventsById } from '../conversation/sessions/event-store.ts';
import { appendEvents, type StoredEvent } from '../conversation/sessions/append-store.ts';
import { hasFinished, type Lease } from './lock-store.ts';
import { finishInvocation, type InvocationOutcome } from './finish-store.ts';

const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 500;

/**
 * Repeats work while the database is away, for `patienceMs` after its first failure. The work must recognise that
 * an earlier try was done although its answer was lost: it is looked up, never repeated blindly.
 */
export async function persist<T>(work: () => Promise<T>, patienceMs: number): Promise<T> {
  let deadline: number | undefined;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
    try {
      return await work();
    } catch (error) {
      deadline ??= performance.now() + patienceMs;
      if (!isPassingFailure(error) || performance.now() + pauseMs > deadline) throw error;
      await sleep(pauseMs);
    }
  }
}

/** Appends an event and counts the uses of models once, also when the answer is lost: its id is then looked up. */
export function appendOnce(
  db: Database,
  lease: Lease,
  event: NewEvent,
  models: readonly ModelUse[] = [],
): Promise<(StoredEvent & { over?: OverBudget | undefined })[]> {
  let repeated = false;
  return persist(async () => {
    try {
      return await appendEvents(db, lease.key, [event], { leaseToken: lease.token, models });
    } catch (error) {
      if (error instanceof ConflictError && repeated) return findEventsById(db, lease.key, [event.id]);
      repeated = true;
      throw error;
    }
  }, lease.durationMs);
}

/** Ends an invocation once, also when the answer to that is lost: its row is then looked up. */
export function finishOnce(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  outcome: InvocationOutcome,
): Promise<StoredEvent[]> {
  let repeated = false;
  return persist(async () => {
    try {
      return await finishInvocation(db, lease, events, outcome);
    } catch (error) {
      if (error instanceof LeaseLostError && repeated && (await hasFinished(db, lease))) {
        return findEventsById(
          db,
          lease.key,
          events.map(({ id }) => id),
        );
      }
      repeated = true;
      throw error;
    }
  }, lease.durationMs);
}

/** Uses of models by an invocation that no statement has counted in the budgets yet. */
export interface Usage {
  /** Called after each model call. */
  add(use: ModelUse): void;
  /** Takes the uses to count now; each is returned once. */
  take(): ModelUse[];
}

/** Creates an empty record of uses. */
export function newUsage(): Usage {
  const uses: ModelUse[] = [];
  return {
    add(use) {
      if (use.promptTokens > 0 || use.outputTokens > 0) uses.push(use);
    },
    take: () => uses.splice(0),
  };
}
