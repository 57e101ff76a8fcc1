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

/** A run with what it has used, and what ends it at a limit. */
interface LimitedRun {
  context: InvocationContext;
  lease: Lease;
  usage: Usage;
  handOver: HandOver;
  limitReached: AbortController;
}

/** Where a limit is reached, the loop answers the calls that are open and ends. */
export function endWhereOver({ context, usage, limitReached, handOver }: LimitedRun, over?: OverBudget | null): void {
  const { toolCalls } = context.limits;
  // One that waits stops before its next model call, where nothing is open.
  if (over && !handOver.waitsForBudget) limitReached.abort(new AgentError('budget_exceeded', budgetText(over)));
  else if (usage.used.toolCalls > toolCalls) limitReached.abort(toolCallsLimitError(toolCalls));
}

/** Counts an event of an agent that is a tool, which is not stored: the limits of the invocation hold there too. */
export async function countUnstoredEvent(running: LimitedRun, event: NewEvent): Promise<void> {
  const { context, lease, usage } = running;
  usage.used.toolCalls += getFunctionCalls(event.content).length;
  const uses = usage.take();
  const count = () => spend(context.database.db, lease.key, uses, event.id);
  const over = uses.length > 0 && (await persist(count, lease.durationMs));
  endWhereOver(running, over || null);
}

/** Reserves a model call where there are budgets. @throws {AgentError} where less is left than it may use */
export async function reserve({ context, lease, usage, limitReached, handOver }: LimitedRun, request: ModelRequest) {
  if (lease.isLimited === false) return undefined;
  const { db } = context.database;
  const reserved = await persist(() => reserveCall(db, lease.key, request, lease.durationMs), lease.durationMs);
  if ('what' in reserved) {
    const error = new AgentError('budget_exceeded', budgetText(reserved));
    handOver.stopFor(reserved);
    // An agent that is a tool has asked, whose own end is no end of the invocation.
    limitReached.abort(error);
    throw error;
  }
  const { reservation } = reserved;
  const end = () => {
    reserved.end();
    // Beside what it used, if anything: one statement counts that and gives this back.
    usage.add({ model: request.modelName, promptTokens: 0, outputTokens: 0, reservation });
  };
  return { request: reserved.request, end };
}
