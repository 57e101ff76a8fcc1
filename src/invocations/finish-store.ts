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

/** How an invocation ended, as its row keeps it. */
export interface InvocationOutcome {
  status: InvocationStatus;
  error?: InvocationError | undefined;
  /** The answer as it is sent. */
  answer?: string | undefined;
  /** Use that its row has not counted yet. */
  counts?: InvocationCounts | undefined;
  /** Use of models that no statement has counted in the budgets yet. */
  uses?: readonly ModelUse[];
  /** Entries of the ledger to write; calls that are still open in it become unknown. */
  calls?: readonly CallRecord[] | undefined;
  /** Calls that stay open: tasks where it pauses. */
  waits?: readonly OpenWait[] | undefined;
  /** Counts those. */
  metrics?: Metrics | undefined;
  /** The tape of the run, for replays. */
  tape?: Tape | undefined;
  /** True: text of its events may be stored beside them, and goes. */
  hasDeltas?: boolean;
  /** True: something of it may be remembered. */
  remembers?: boolean;
  /** True: its process is taken for dead, and must not take this end for its own should it wake up. */
  revokesToken?: boolean;
  /** Called where work in the background waits for the session, which is free now. */
  onAwaited?: () => void;
}

/**
 * Ends an invocation: last events, status and answer, and the session released, in one statement: waiting requests may
 * be notified of success after it.
 * @returns the events with their sequences. @throws {LeaseLostError} when the lease is another's; nothing was written
 * then.
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
    // The answer of a model is any text: PostgreSQL refuses U+0000 in one.
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
