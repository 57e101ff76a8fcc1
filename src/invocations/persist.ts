import { setTimeout as sleep } from 'node:timers/promises';
import type { Loan } from '../agent/loop/run.ts';
import type { ModelUse } from '../conversation/budgets/budget.ts';
import type { Database } from '../platform/db/database.ts';
import { ConflictError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import { onlyTemporary } from '../core/session.ts';
import { findEventsById, findStep } from '../conversation/sessions/event-store.ts';
import {
  type Appended,
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
 * Retries `work` while the database is not available, until `patienceMs` after the first failure. `work` must be
 * idempotent: each try must first look up whether an earlier try succeeded without confirmation.
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
 * Appends an event exactly once, with ledger and usage: after a lost result the next try looks the event up by its id.
 */
export function appendOnce(
  db: Database,
  lease: Lease,
  event: NewEvent,
  usage?: Usage,
  more: Pick<AppendOptions, 'hasDeltas' | 'calls' | 'takesMessages'> = {},
): Promise<Omit<Appended, 'version'>> {
  let repeated = false;
  const { token: leaseToken, invocationId } = lease;
  const counts = usage && { invocationId, ...usage.takeCounts() };
  const models = usage?.take() ?? [];
  return persist(async () => {
    try {
      return await appendEvents(db, lease.key, [event], { leaseToken, models, counts, ...more });
    } catch (error) {
      if (error instanceof ConflictError && repeated)
        return { events: await findStep(db, lease.key, invocationId, event.id) };
      repeated = true;
      throw error;
    }
  }, lease.durationMs);
}

/** Stores an event's `temp:` state, which the stored event lacks, for a process that resumes the run. */
export async function persistTemporary(db: Database, lease: Lease, { actions }: NewEvent): Promise<void> {
  const values = onlyTemporary(actions?.stateDelta);
  if (Object.keys(values).length > 0) await persist(() => keepTemporary(db, lease, values), lease.durationMs);
}

/** Ends an invocation exactly once. If the result of a try was lost, the next try looks the invocation's row up. */
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

/** Model and tool usage of an invocation, and how much of it is not stored yet. */
export interface Usage {
  readonly used: InvocationCounts & { readonly lent: Loan };
  add: (use: ModelUse) => void;
  /** Adds counts that the invocation's row contains already: those of a child that has ended. */
  addStored(counts: InvocationCounts): void;
  /** Takes off what the invocation may still use, for an agent in the background, or one that lent and has ended. */
  lend(loan: Loan): void;
  /** Removes and returns the model usage that must be charged to the budgets now. */
  take(): ModelUse[];
  /** Removes and returns the counts that must be added to the invocation's row now. */
  takeCounts(): InvocationCounts;
}

/** @param before - counts of earlier processes, which are already stored. @param lent - what these have lent */
export function newUsage(before: Partial<InvocationCounts> = {}, lent?: Loan): Usage {
  const uses: ModelUse[] = [];
  const used = {
    llmCalls: before.llmCalls ?? 0,
    toolCalls: before.toolCalls ?? 0,
    promptTokens: before.promptTokens ?? 0,
    outputTokens: before.outputTokens ?? 0,
    lent: { llmCalls: 0, toolCalls: 0, tokens: 0, ...lent },
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
    addStored(counts) {
      for (const name of ['llmCalls', 'toolCalls', 'promptTokens', 'outputTokens'] as const) {
        used[name] += counts[name];
        counted[name] += counts[name];
      }
    },
    lend(loan) {
      for (const name of ['llmCalls', 'toolCalls', 'tokens'] as const) used.lent[name] += loan[name];
    },
    take: () => uses.splice(0),
  };
}
