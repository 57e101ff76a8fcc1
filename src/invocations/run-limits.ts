import { budgetText, type OverBudget } from '../conversation/budgets/budget.ts';
import { spend } from '../conversation/budgets/budget-store.ts';
import { reserveCall } from '../conversation/budgets/reserve-call.ts';
import { getFunctionCalls } from '../core/content.ts';
import { AgentError } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import type { ModelRequest } from '../agent/definition/model.ts';
import type { InvocationContext } from './context.ts';
import type { HandOver } from './hand-over.ts';
import { toolCallsLimitError } from './invocation.ts';
import type { Lease } from './lock-store.ts';
import { persist, type Usage } from './persist.ts';

/** A running invocation, its usage, and the controller that stops its loop at a limit. */
interface LimitedRun {
  context: InvocationContext;
  lease: Lease;
  usage: Usage;
  handOver: HandOver;
  limitReached: AbortController;
}

/** Aborts the loop when a limit is reached. Open calls get a response first. */
export function abortIfOverLimit(
  { context, usage, limitReached, handOver }: LimitedRun,
  over?: OverBudget | null,
): void {
  const { toolCalls } = context.limits;
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
