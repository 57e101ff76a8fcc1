import { setTimeout as sleep } from 'node:timers/promises';
import type { ModelUse, OverBudget } from '../conversation/budgets/budget.ts';
import type { Database } from '../platform/db/database.ts';
import { ConflictError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import { onlyTemporary } from '../core/session.ts';
import { findEventsById } from '../conversation/sessions/event-store.ts';
import {
  appendEvents,
  type AppendOptions,
  type InvocationCounts,
  type StoredEvent,
} from '../conversation/sessions/append-store.ts';
import { hasFinished, keepTemporary, type Lease } from './lock-store.ts';
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

/**
 * Appends an event, with its calls, and counts what was used since the last, once: where the answer is lost, its id is
 * looked up.
 */
export function appendOnce(
  db: Database,
  lease: Lease,
  event: NewEvent,
  usage?: Usage,
  more: Pick<AppendOptions, 'hasDeltas' | 'calls'> = {},
): Promise<(StoredEvent & { over?: OverBudget | undefined; limited?: boolean })[]> {
  let repeated = false;
  const { token: leaseToken, invocationId } = lease;
  const counts = usage && { invocationId, ...usage.takeCounts() };
  const models = usage?.take() ?? [];
  return persist(async () => {
    try {
      return await appendEvents(db, lease.key, [event], { leaseToken, models, counts, ...more });
    } catch (error) {
      if (error instanceof ConflictError && repeated) return findEventsById(db, lease.key, [event.id]);
      repeated = true;
      throw error;
    }
  }, lease.durationMs);
}

/** Keeps the `temp:` values of an event, which has none where it is stored, for who goes on with the invocation. */
export async function persistTemporary(db: Database, lease: Lease, { actions }: NewEvent): Promise<void> {
  const values = onlyTemporary(actions?.stateDelta);
  if (Object.keys(values).length > 0) await persist(() => keepTemporary(db, lease, values), lease.durationMs);
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

/** Use of models and tools by an invocation, and what of it no statement has counted yet. */
export interface Usage {
  /** All of it, so far. */
  readonly used: InvocationCounts;
  /** Called after each model call. */
  add(use: ModelUse): void;
  /** Takes the uses that the budgets are to count now; each is returned once. */
  take(): ModelUse[];
  /** Takes what the row of the invocation is to count now, once. */
  takeCounts(): InvocationCounts;
}

/** Creates a record of uses. @param before - what was used and counted before this process */
export function newUsage(before: Partial<Pick<InvocationCounts, 'llmCalls' | 'toolCalls'>> = {}): Usage {
  const uses: ModelUse[] = [];
  const used: InvocationCounts = {
    llmCalls: before.llmCalls ?? 0,
    toolCalls: before.toolCalls ?? 0,
    promptTokens: 0,
    outputTokens: 0,
  };
  let counted = { ...used };
  return {
    used,
    takeCounts() {
      const { llmCalls, toolCalls, promptTokens, outputTokens } = counted;
      counted = { ...used };
      return {
        llmCalls: used.llmCalls - llmCalls,
        toolCalls: used.toolCalls - toolCalls,
        promptTokens: used.promptTokens - promptTokens,
        outputTokens: used.outputTokens - outputTokens,
      };
    },
    add(use) {
      if (use.promptTokens > 0 || use.outputTokens > 0 || use.reservation) uses.push(use);
    },
    take: () => uses.splice(0),
  };
}
