import { randomUUID } from 'node:crypto';
import type { CallRecord, OpenWait } from '../agent/loop/call-ledger.ts';
import type { ModelUse } from '../conversation/budgets/budget.ts';
import {
  type InvocationCounts,
  type StoredEvent,
  type StoredLines,
  toCountParameters,
  toEventParameters,
  toStoredEvents,
} from '../conversation/sessions/append-store.ts';
import { LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import { rememberAfterEnd } from './memory.ts';
import { callFunction } from '../platform/db/statement.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeJson, escapeList, escapeText } from '../platform/json-escape.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { Invocation, InvocationError, InvocationStatus } from './invocation.ts';
import type { Lease } from './lock-store.ts';
import { listNewPrompts, markStored, type Tape } from './tape.ts';
import { toTasksParameter } from './waits/task.ts';

export interface InvocationOutcome {
  status: InvocationStatus;
  error?: InvocationError | undefined;
  /** The result that is stored for retries with the same idempotency key. */
  answer?: string | undefined;
  /** Token and call counts that the invocation's row does not contain yet. */
  counts?: InvocationCounts | undefined;
  /** Model usage that has not been charged to the budgets yet. */
  uses?: readonly ModelUse[];
  /** Entries to write to the tool-call ledger. Calls that are still open in the ledger get the state `unknown`. */
  calls?: readonly CallRecord[] | undefined;
  /** Calls that stay open as tasks while the invocation is paused. */
  waits?: readonly OpenWait[] | undefined;
  /** API keys whose waiting messages wake the invocation if it only sleeps. Default: none. */
  keys?: readonly string[] | undefined;
  /** Receives the number of calls whose state became `unknown`. */
  metrics?: Metrics | undefined;
  tape?: Tape | undefined;
  /** True if streamed deltas of the invocation's events may be stored. They are deleted. */
  hasDeltas?: boolean;
  /** True if memories may be extracted from the invocation. */
  remembers?: boolean;
  /** The invocation's process is assumed dead; a new lease token keeps it from taking this end for its own. */
  revokesToken?: boolean;
  /** Called if background invocations are queued for the session, which is free now. */
  onAwaited?: () => void;
  /** Called with the invocation as the HTTP API returns it from now on. Not called if the answer to the write was lost. */
  onEnded?: (invocation: Invocation) => void;
}

/** What only the invocation's row knows of its end. */
type EndedRow = Required<Pick<Invocation, 'createTime' | 'startTime' | 'endTime' | keyof InvocationCounts>> &
  Pick<Invocation, 'failedToolCalls' | 'workSeconds'> & {
    /** Of one that was to pause, but was asked to stop before. */
    status?: InvocationStatus;
  };

/**
 * Ends an invocation in one SQL statement: stores the last events, the status and the result, and releases the session.
 * A client may be told of success only after this statement.
 * @returns the events with their sequences
 * @throws {LeaseLostError} if another invocation holds the lease; nothing was written then
 */
export async function finishInvocation(
  db: Database,
  lease: Lease,
  events: NewEvent[],
  { status, error, answer, tape, uses, ...outcome }: InvocationOutcome,
): Promise<StoredEvent[]> {
  type Finished = StoredLines & { unknown: number | null; is_awaited: boolean | null; ended: EndedRow };
  const { remembers = false } = outcome;
  const { isOnCluster = false } = db;
  if (remembers && isOnCluster) await rememberAfterEnd(db, lease.key, lease.invocationId);
  const prompts = listNewPrompts(db, lease.key, tape);
  const stored = await callFunction<Finished>(db, 'finish_invocation', {
    ...toEventParameters(db, lease.key, events, undefined, { keys: outcome.keys ?? [] }),
    p_invocation: lease.invocationId,
    p_token: lease.token,
    p_new_token: outcome.revokesToken === true ? randomUUID() : null,
    p_status: status,
    // The result may contain U+0000, which PostgreSQL refuses.
    p_answer: answer === undefined ? null : escapeText(answer),
    p_error_code: error?.code,
    p_error_message: error && escapeText(error.message),
    ...toCountParameters(outcome.counts),
    p_models: escapeList(uses),
    p_calls: escapeList(outcome.calls),
    p_tasks: status === 'paused' ? toTasksParameter(outcome.waits) : null,
    p_tape: tape && escapeJson({ start: tape.start, payload: tape.payload }),
    p_prompts: escapeList(prompts),
    p_has_deltas: outcome.hasDeltas === true,
    p_remembers: remembers && !isOnCluster,
  });
  if (stored.last === null) throw new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  outcome.metrics?.count('agent_runtime_tool_calls_unknown_total', {}, stored.unknown ?? 0);
  if (stored.is_awaited === true) outcome.onAwaited?.();
  outcome.onEnded?.({
    id: lease.invocationId,
    ...lease.key,
    status,
    ...stored.ended,
    ...(lease.version !== undefined && { agentVersion: lease.version }),
    ...(error && { error: { ...error } }),
  });
  markStored(db, lease.key, prompts);
  return toStoredEvents(stored);
}
