import type { ModelRequest } from '../agent/definition/model.ts';
import { budgetText, type OverBudget } from '../conversation/budgets/budget.ts';
import { spend } from '../conversation/budgets/budget-store.ts';
import { reserveCall } from '../conversation/budgets/reserve-call.ts';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import { getFunctionCalls } from '../core/content.ts';
import { AgentError, isPassingFailure, LeaseLostError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import { stopTopic } from '../core/names.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import type { InvocationContext } from './context.ts';
import type { HandOver } from './hand-over.ts';
import type { EventListener, InvocationEnd, InvocationRequest } from './request.ts';
import { stoppedMessage, toolCallsLimitError } from './invocation.ts';
import { type Lease, renewLease } from './lock-store.ts';
import { persist, type Usage } from './persist.ts';

/** One abort signal for all causes that end a running invocation early; its reason names the cause. */
export interface Fence {
  /**
   * Aborted by the time limit or a stop request (`AgentError`), a lost lease ({@link LeaseLostError}) or the caller.
   */
  signal: AbortSignal;
  /** Time at which the time limit is reached, in milliseconds of `performance.now()`. */
  endTime: number;
  /** Stops the timer of the time limit and the renewal of the lease. */
  release(): void;
}

interface FenceTimes {
  /** What the error of the time limit calls the invocation. */
  what: 'invocation' | 'run';
  timeoutMs: number;
  spentMs?: number | undefined;
  renewalMs: number;
}

/** Starts time limit and lease renewal. `spentMs` milliseconds are used already; the signal `outside` also ends it. */
export function fenceIn(
  context: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  { what, timeoutMs, spentMs = 0, renewalMs }: FenceTimes,
  outside: AbortSignal,
): Fence {
  const renewal = keepLease(context, lease, renewalMs);
  const limit = new AbortController();
  const message = `The ${what} took longer than its limit of ${timeoutMs / 1000} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), Math.max(0, timeoutMs - spentMs));
  return {
    signal: AbortSignal.any([renewal.signal, limit.signal, outside]),
    endTime: performance.now() + timeoutMs - spentMs,
    release: () => {
      clearTimeout(timer);
      renewal.stop();
    },
  };
}

/**
 * Renews a lease until `stop` is called. The signal aborts at a stop request, and with a {@link LeaseLostError} if a
 * renewal is refused or was not confirmed before the lease expired: then another process may write to the session.
 */
function keepLease(
  { database, notifications }: { database: DatabasePool; notifications: Notifications },
  lease: Lease,
  renewalMs: number,
): { signal: AbortSignal; stop(): void } {
  const leaseEnd = new AbortController();
  let heldUntil = performance.now() + lease.durationMs;
  const lost = () => new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`);
  const renew = async () => {
    const sentAt = performance.now();
    const renewal = await renewLease(database.db, lease).catch((error: unknown) => {
      if (isPassingFailure(error)) return 'unsure' as const;
      throw error;
    });
    if (renewal === 'lost') return leaseEnd.abort(lost());
    if (renewal === 'cancelled' || renewal === 'interrupted') {
      leaseEnd.abort(new AgentError(renewal, stoppedMessage(renewal)));
    }
    if (renewal !== 'unsure') heldUntil = sentAt + lease.durationMs;
  };
  let renewing = false;
  const renewOrEnd = () => {
    // Without a response of the database the process must assume that the lease has expired.
    if (performance.now() >= heldUntil) leaseEnd.abort(lost());
    if (renewing) return;
    renewing = true;
    renew()
      .catch((error: unknown) => leaseEnd.abort(error))
      .finally(() => (renewing = false));
  };
  const timer = setInterval(renewOrEnd, renewalMs);
  const unsubscribe = notifications.subscribe(stopTopic(lease.invocationId), renewOrEnd);
  return {
    signal: leaseEnd.signal,
    stop: () => {
      clearInterval(timer);
      unsubscribe();
    },
  };
}

/** An invocation of which this process holds the lease. */
export interface ClaimedInvocation {
  context: InvocationContext;
  request: InvocationRequest;
  agent: HostedAgent;
  lease: Lease;
  /** Absent if nobody reads the events as they come. */
  listener?: EventListener | undefined;
}

/** Runs a claimed invocation to its end or pause. An abort of `outside` stops it. */
export type RunClaimed = (claimed: ClaimedInvocation, outside: AbortSignal) => Promise<InvocationEnd>;

/** A running invocation, its usage, and the controller that stops its loop at a limit. */
interface LimitedRun {
  context: InvocationContext;
  request: Pick<InvocationRequest, 'child'>;
  lease: Lease;
  usage: Usage;
  handOver: HandOver;
  limitReached: AbortController;
}

/** Calls of tools that an invocation may make, without those that it has lent; a child has what its parent had left. */
export const toToolCallsAtMost = ({
  context,
  request,
  usage,
}: Pick<LimitedRun, 'context' | 'request' | 'usage'>): number =>
  Math.min(context.limits.toolCalls, request.child?.toolCallsAtMost ?? Infinity) - usage.used.lent.toolCalls;

/** Aborts the loop when a limit is reached. Open calls get a response first. */
export function abortIfOverLimit(running: LimitedRun, over?: OverBudget | null): void {
  const { usage, limitReached, handOver } = running;
  const toolCalls = toToolCallsAtMost(running);
  // An invocation that may wait for a budget pauses at its next model call instead, because no tool call is open there.
  if (over && !handOver.waitsForBudget) limitReached.abort(new AgentError('budget_exceeded', budgetText(over)));
  else if (usage.used.toolCalls > toolCalls) limitReached.abort(toolCallsLimitError(toolCalls));
}

/** Charges the model usage of an agent-as-tool to the invocation. The events of an agent-as-tool are not stored. */
export async function countUnstoredEvent(running: LimitedRun, event: NewEvent): Promise<void> {
  const { context, lease, usage } = running;
  usage.used.toolCalls += getFunctionCalls(event.content).length;
  const uses = usage.take();
  const count = () => spend(context.database.db, lease.key, uses, event.id);
  const over = uses.length > 0 && (await persist(count, lease.durationMs));
  abortIfOverLimit(running, over || null);
}

/** Reserves a model call's tokens if the user has budgets. @throws {AgentError} if a budget has too few left */
export async function reserve({ context, lease, usage, limitReached, handOver }: LimitedRun, request: ModelRequest) {
  if (lease.hasBudgets === false) return undefined;
  const { db } = context.database;
  const reserved = await persist(() => reserveCall(db, lease.key, request, lease.durationMs), lease.durationMs);
  if ('what' in reserved) {
    const error = new AgentError('budget_exceeded', budgetText(reserved));
    handOver.stopFor(reserved);
    // An exhausted budget also aborts the loop, because the error of an agent-as-tool alone does not end it.
    limitReached.abort(error);
    throw error;
  }
  const { reservation } = reserved;
  const end = () => {
    reserved.end();
    // The statement that stores the usage of this call also returns the reservation.
    usage.add({ model: request.modelName, promptTokens: 0, outputTokens: 0, reservation });
  };
  return { request: reserved.request, end };
}
