import type { RunEnd } from '../agent/loop/run.ts';
import { budgetText, type OverBudget } from '../conversation/budgets/budget.ts';
import { getFunctionCalls, getFunctionResponses } from '../core/content.ts';
import { AgentError, HandedOverError, sizeRefusal } from '../core/errors.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationContext } from './context.ts';
import type { InvocationRequest } from './request.ts';
import type { Lease } from './lock-store.ts';
import { persist } from './persist.ts';
import { leaveRun } from './take-over.ts';

interface LeavableRun {
  context: InvocationContext;
  request: Pick<InvocationRequest, 'inBackground' | 'waitsForBudget' | 'idempotency'>;
  lease: Lease;
  /** The abort signal of the fence that guards the invocation. */
  signal: AbortSignal;
}

/**
 * Decides when a process that shuts down hands a run over to another process. A run without a waiting client is handed
 * over between two steps, any other run at the end of the grace period. Open tool calls are awaited until the end of
 * the grace period, because a tool may have effects that must not happen twice.
 */
export class HandOver {
  readonly #run: LeavableRun;
  readonly #open = new Set<string | null | undefined>();
  #over: OverBudget | undefined;

  constructor(run: LeavableRun) {
    this.#run = run;
  }

  begin(calls: readonly { id?: string | null | undefined }[]): void {
    for (const { id } of calls) this.#open.add(id);
  }

  /** A function call in an event opens a tool call, its function response closes it. */
  note({ content }: NewEvent): void {
    this.begin(getFunctionCalls(content));
    for (const { id } of getFunctionResponses(content)) this.#open.delete(id);
  }

  /** True if an exhausted budget pauses the run instead of ending it. */
  get waitsForBudget(): boolean {
    return this.#run.request.waitsForBudget === true && this.#isRecoverable;
  }

  /** Remembers the budget that refused the next model call. */
  stopFor(over: OverBudget): void {
    if (this.waitsForBudget) this.#over = over;
  }

  /** @throws {HandedOverError} if the run must be handed over before its next step */
  checkStep(): void {
    const { context, request, signal } = this.#run;
    const isQuiet = request.inBackground === true && this.#open.size === 0 && !signal.aborted;
    if ((isQuiet && context.draining.aborted && this.#isRecoverable) || this.#isCutOff) throw this.#toError();
  }

  /**
   * @throws {HandedOverError} if the shutdown interrupted the loop: the event is not stored, because another process
   * repeats the step. Complete function responses are stored.
   */
  checkEvent({ content, errorCode }: NewEvent): void {
    if (this.#isCutOff && (errorCode || getFunctionResponses(content).length === 0)) throw this.#toError();
  }

  /** @throws {HandedOverError} if the loop ended only because the process shuts down */
  checkEnd({ error }: Pick<RunEnd, 'error'>): void {
    if (error && this.#isCutOff) throw this.#toError();
  }

  /**
   * Hands a run over that failed by this process's shutdown or an exhausted budget.
   * @throws {HandedOverError} after the hand-over
   * @returns the error of any other failure; with code `budget_exceeded` if the user may have no more tasks
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

  /** True if the shutdown or an exhausted budget interrupted the run, and another process can resume it. */
  get #isCutOff(): boolean {
    const { context, signal } = this.#run;
    if (this.#over && !signal.aborted) return true;
    return context.stopping.aborted && signal.reason === context.stopping.reason && this.#isRecoverable;
  }

  get #isRecoverable(): boolean {
    const { context, lease } = this.#run;
    return context.limits.attempts > 1 && lease.storedRequest?.['endsBecause'] === undefined;
  }

  #toError(): HandedOverError {
    const { lease, request } = this.#run;
    return new HandedOverError(lease, request.idempotency !== undefined);
  }
}
