import { randomUUID } from 'node:crypto';
import type { CallRecord, OpenWait } from '../agent/loop/call-ledger.ts';
import type { ModelUse } from '../conversation/budgets/budget.ts';
import {
  type InvocationCounts,
  type StoredEvent,
  type StoredLines,
  toCallsParameter,
  toCountParameters,
  toEventParameters,
  toModelParameter,
  toStoredEvents,
} from '../conversation/sessions/append-store.ts';
import { LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import { callFunction } from '../platform/db/statement.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeText } from '../platform/db/json-escape.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { InvocationError, InvocationStatus } from './invocation.ts';
import type { Lease } from './lock-store.ts';
import { markKept, toTapeParameters } from './tape-store.ts';
import type { Tape } from './tape.ts';
import { toTasksParameter } from './waits/task.ts';

export interface InvocationOutcome {
  status: InvocationStatus;
  error?: InvocationError | undefined;
  /** The answer that retries receive. */
  answer?: string | undefined;
  /** Usage that the invocation's row does not contain yet. */
  counts?: InvocationCounts | undefined;
  /** Model usage that the budgets do not contain yet. */
  uses?: readonly ModelUse[];
  /** Ledger entries to write. Calls that are still open in the ledger become unknown. */
  calls?: readonly CallRecord[] | undefined;
  /** Calls that stay open as tasks while the invocation is paused. */
  waits?: readonly OpenWait[] | undefined;
  /** Receives the number of calls that became unknown. */
  metrics?: Metrics | undefined;
  tape?: Tape | undefined;
  /** True if streamed deltas of its events may be stored; they are deleted. */
  hasDeltas?: boolean;
  /** True if memories may be extracted from the invocation. */
  remembers?: boolean;
  /** True if its process is taken for dead. A new token keeps that process from taking this end for its own. */
  revokesToken?: boolean;
  /** Called if background work waits for the session, which is free now. */
  onAwaited?: () => void;
}

/**
 * Ends an invocation in one statement: stores the last events, status and answer, and releases the session. A client
 * may be told of success only after it.
 * @returns the events with their sequences
 * @throws {LeaseLostError} if another invocation holds the lease; nothing was written then
 */
export async function finishInvocation(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  { status, error, answer, tape, uses = [], ...outcome }: InvocationOutcome,
): Promise<StoredEvent[]> {
  type Finished = StoredLines & { unknown: number | null; is_awaited: boolean | null };
  const stored = await callFunction<Finished>(db, 'finish_invocation', {
    ...toEventParameters(db, lease.key, events),
    p_invocation: lease.invocationId,
    p_token: lease.token,
    p_new_token: outcome.revokesToken === true ? randomUUID() : null,
    p_status: status,
    // The answer may be any text, but PostgreSQL refuses U+0000.
    p_answer: answer === undefined ? null : escapeText(answer),
    p_error_code: error?.code,
    p_error_message: error && escapeText(error.message),
    ...toCountParameters(outcome.counts),
    p_models: toModelParameter(uses),
    p_calls: toCallsParameter(outcome.calls),
    p_tasks: status === 'paused' ? toTasksParameter(outcome.waits) : null,
    ...toTapeParameters(db, lease.key, tape),
    p_has_deltas: outcome.hasDeltas === true,
    p_remembers: outcome.remembers === true,
  });
  if (stored.last === null) throw new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  outcome.metrics?.unknownCalls(stored.unknown ?? 0);
  if (stored.is_awaited === true) outcome.onAwaited?.();
  markKept(db, lease.key, tape);
  return toStoredEvents(stored);
}
