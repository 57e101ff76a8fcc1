import type { RunEnd } from '../agent/loop/run.ts';
import { budgetText, type OverBudget } from '../conversation/budgets/budget.ts';
import { getFunctionCalls, getFunctionResponses } from '../core/content.ts';
import { AgentError, HandedOverError, sizeRefusal } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationContext, InvocationRequest } from './context.ts';
import type { Lease } from './lock-store.ts';
import { persist } from './persist.ts';
import { leaveRun } from './take-over.ts';

/** A run that its process may leave. */
interface LeavableRun {
  context: InvocationContext;
  request: Pick<InvocationRequest, 'inBackground' | 'waitsForBudget' | 'idempotency'>;
  lease: Lease;
  /** Signal of its fence. */
  signal: AbortSignal;
}

/**
 * Decides when a process that stops leaves a run to another one: between two steps at once where no client waits, else
 * at the end of the grace. A call that is open is waited for until then: its tool may be one that acts once.
 */
export class HandOver {
  readonly #run: LeavableRun;
  readonly #open = new Set<string | null | undefined>();
  #over: OverBudget | undefined;

  constructor(run: LeavableRun) {
    this.#run = run;
  }

  /** Notes calls that run from now on. */
  begin(calls: readonly { id?: string | null | undefined }[]): void {
    for (const { id } of calls) this.#open.add(id);
  }

  /** Notes an event of the run: its calls are open until an event answers them. */
  note({ content }: NewEvent): void {
    this.begin(getFunctionCalls(content));
    for (const { id } of getFunctionResponses(content)) this.#open.delete(id);
  }

  /** True where a budget that has nothing left does not end the run: it waits for those who may change that. */
  get waitsForBudget(): boolean {
    return this.#run.request.waitsForBudget === true && this.#canGoOn;
  }

  /** Notes the budget that refuses the next step. */
  stopFor(over: OverBudget): void {
    if (this.waitsForBudget) this.#over = over;
  }

  /** @throws {HandedOverError} where the run is to be left before its next step */
  checkStep(): void {
    const { context, request, signal } = this.#run;
    const isQuiet = request.inBackground === true && this.#open.size === 0 && !signal.aborted;
    if ((isQuiet && context.draining.aborted && this.#canGoOn) || this.#isCutOff) throw this.#toError();
  }

  /** @throws {HandedOverError} where the loop was cut off: all but whole responses another process makes anew */
  checkEvent({ content, errorCode }: NewEvent): void {
    if (this.#isCutOff && (errorCode || getFunctionResponses(content).length === 0)) throw this.#toError();
  }

  /** @throws {HandedOverError} where the end of the process is why the loop ended */
  checkEnd({ error }: Pick<RunEnd, 'error'>): void {
    if (error && this.#isCutOff) throw this.#toError();
  }

  /**
   * Leaves a run that threw to any process, unless it threw for another reason. @throws {HandedOverError} then
   * @returns the reason: that of the budget where the user may have no task more
   */
  async leaveAfter(error: unknown): Promise<unknown> {
    if (!(error instanceof HandedOverError || this.#isCutOff)) return error;
    const { context, lease } = this.#run;
    try {
      await persist(() => leaveRun(context, lease, this.#over), lease.durationMs);
    } catch (failure) {
      if (!this.#over || !sizeRefusal(failure)) throw failure;
      return new AgentError('budget_exceeded', budgetText(this.#over));
    }
    throw this.#toError();
  }

  /** True where the end of the process, or a budget, has cut the run off, and a process can go on with it. */
  get #isCutOff(): boolean {
    const { context, signal } = this.#run;
    if (this.#over && !signal.aborted) return true;
    return context.stopping.aborted && signal.reason === context.stopping.reason && this.#canGoOn;
  }

  get #canGoOn(): boolean {
    const { context, lease } = this.#run;
    return context.limits.attempts > 1 && lease.kept?.['endsBecause'] === undefined;
  }

  #toError(): HandedOverError {
    const { lease, request } = this.#run;
    return new HandedOverError(lease, request.idempotency !== undefined);
  }
}
