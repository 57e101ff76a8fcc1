import { setTimeout as sleep } from 'node:timers/promises';
import { backOffMs } from '../../platform/work/leased-queue.ts';
import type { ErrorCode } from '../../core/error-codes.ts';
import {
  AgentError,
  AppError,
  HandedOverError,
  isPassingFailure,
  LeaseLostError,
  RepeatedInvocationError,
  UnavailableError,
} from '../../core/errors.ts';
import { unescapeText } from '../../platform/db/json-escape.ts';
import { toAgentOverrides } from '../../agent/definition/overrides.ts';
import type { IdempotentRequest } from '../../conversation/idempotency/operations.ts';
import { type InvocationContext, type InvocationEnd, newInvocationId } from '../../invocations/context.ts';
import { requestCancel } from '../../invocations/cancel.ts';
import { invoke } from '../../invocations/invoke.ts';
import { persist } from '../../invocations/persist.ts';
import { findRepeated, isActive } from '../../invocations/retry.ts';
import type { ClaimedRun } from './claim-store.ts';
import { type CronjobRow, CRONJOBS_TOPIC } from './cronjob-store.ts';
import { toHarness } from './cronjob-view.ts';
import {
  endRun,
  releaseRun,
  retryRun,
  type RunOutcome,
  type RunRow,
  setInvocation,
  skipWaitingRuns,
} from './run-store.ts';

/** Model errors after which a retry may succeed. A run that may have had effects is never retried. */
const PASSING: ReadonlySet<string> = new Set<ErrorCode>([
  'model_rate_limited',
  'model_unavailable',
  'model_timeout',
  'model_stream_cut',
]);
/** Poll interval while another process runs the invocation or the database is unavailable. */
const POLL_MS = 500;
const HANDED_OVER: Attempt = { kind: 'handed-over', invocationId: undefined };
const LOST = 'The run is, or will be, taken over by another process.';
const WAITS_FOR_A_PERSON = { code: 'paused', message: 'The invocation waits for a person, in its session.' };

interface Attempt extends Omit<RunOutcome, 'status'> {
  /**
   * `passing`: failed, but a retry may succeed. `again`: the invocation was not started, so the attempt is repeated.
   * `handed-over`: this process stops, and another process continues the run.
   */
  kind: 'success' | 'failed' | 'passing' | 'cancelled' | 'again' | 'handed-over';
}

/**
 * The invocation's idempotency key contains run and attempt: if two processes try to start it, the second waits for the
 * result of the first.
 * @param signal - aborted with an {@link AgentError} if the run must end, with another reason after a take-over
 */
export async function executeRun(context: InvocationContext, claimed: ClaimedRun, signal: AbortSignal): Promise<void> {
  const { run, cronjob } = claimed;
  const limit = startTimeLimit(cronjob.timeoutSeconds);
  try {
    const attempt = await attemptRun(context, claimed, AbortSignal.any([signal, limit.signal]));
    if (!attempt) throw new LeaseLostError(LOST);
    await persist(() => settle(context, run, cronjob, attempt), context.leaseTimes.durationMs);
  } finally {
    limit.stop();
  }
}

/**
 * Ends a run whose process has died too often. If the invocation has started, the run instead waits for the invocation
 * and stores its result, because invocations have their own limit of attempts.
 */
export async function giveUpRun(
  context: InvocationContext,
  claimed: ClaimedRun,
  message: string,
  signal: AbortSignal,
): Promise<void> {
  const { run, cronjob } = claimed;
  const find = () => findRepeated(context, toSessionKey(run), toIdempotentRequest(run));
  if (await persist(find, context.leaseTimes.durationMs)) return executeRun(context, claimed, signal);
  const error = { code: 'interrupted', message };
  return settle(context, run, cronjob, { kind: 'failed', invocationId: run.invocationId ?? undefined, error });
}

/** Starts a run's invocation, or finds it already started; `undefined` if another process took the run over. */
async function attemptRun(
  context: InvocationContext,
  claimed: ClaimedRun,
  signal: AbortSignal,
): Promise<Attempt | undefined> {
  // Only the first try uses the claim's invocation id; the next ones use new ids, because the first may have stored it.
  let firstId = claimed.isTakenOver ? null : claimed.run.invocationId;
  for (;;) {
    if (signal.aborted && !(signal.reason instanceof AgentError)) return undefined;
    const invocationId = firstId ?? newInvocationId(context);
    firstId = null;
    try {
      return { invocationId, ...toAttempt(await begin(context, claimed, invocationId, signal)) };
    } catch (error) {
      const isRepeated = error instanceof RepeatedInvocationError;
      // The run ends here, because another process continues it. A retry would send the prompt twice.
      if (error instanceof UnavailableError && context.draining.aborted) return HANDED_OVER;
      const attempt = isRepeated ? await findEarlier(context, claimed, signal) : toFailure(error);
      if (attempt) return attempt;
    }
    // Polls while another process runs the invocation or the database is unavailable, until the run's lease is lost.
    const woken = AbortSignal.any([context.draining, ...(signal.aborted ? [] : [signal])]);
    await sleep(POLL_MS, undefined, { signal: woken }).catch(() => undefined);
    if (context.draining.aborted) return HANDED_OVER;
  }
}

function begin(
  context: InvocationContext,
  { run, cronjob }: ClaimedRun,
  invocationId: string,
  signal: AbortSignal,
): Promise<InvocationEnd> {
  return invoke(context, {
    key: toSessionKey(run),
    invocationId,
    content: { role: 'user', parts: [{ text: unescapeText(cronjob.prompt) }] },
    overrides: toAgentOverrides(toHarness(cronjob)),
    createSession: true,
    streaming: false,
    busyPolicy: 'enqueue',
    inBackground: true,
    idempotency: toIdempotentRequest(run),
    answer: { kind: 'output' },
    signal,
    onAccepted: () => {
      if (invocationId === run.invocationId) return;
      setInvocation(context.database.db, run, invocationId).catch(() => undefined);
    },
  });
}

const toSessionKey = ({ appName, userId, sessionId }: RunRow) => ({ appName, userId, sessionId: sessionId ?? '' });

/** The leading space keeps clients from sending a run's key: header values are trimmed (RFC 9110, 5.5). */
const toIdempotentRequest = ({ id, attempt }: RunRow): IdempotentRequest => ({
  idempotencyKey: ` cronjob run ${id}, attempt ${attempt}`,
  hash: id,
});

/**
 * Result of the invocation that another process started for the run; `undefined` while it runs. Cancels it if the run
 * must end.
 */
async function findEarlier(
  context: InvocationContext,
  { run }: ClaimedRun,
  signal: AbortSignal,
): Promise<Attempt | undefined> {
  const invocation = await findRepeated(context, toSessionKey(run), toIdempotentRequest(run));
  const reason: unknown = signal.reason;
  const isToEnd = reason instanceof AgentError;
  if (invocation && isActive(invocation) && isToEnd)
    await requestCancel(context, invocation.key, invocation.invocationId);
  if (!invocation || isActive(invocation)) return undefined;
  const { invocationId, answer = '', status } = invocation;
  const error = isToEnd && status === 'cancelled' ? reason : invocation.error;
  return { invocationId, ...toAttempt({ output: answer, error, paused: status === 'paused' }) };
}

function toAttempt({ output, error, paused }: InvocationEnd): Omit<Attempt, 'invocationId'> {
  if (error?.code === 'cancelled') return { kind: 'cancelled', error };
  if (error) return { kind: PASSING.has(error.code) ? 'passing' : 'failed', error };
  return paused === true ? { kind: 'failed', output, error: WAITS_FOR_A_PERSON } : { kind: 'success', output };
}

/** `undefined` if the error does not tell whether the invocation continues; then its status must be read. */
function toFailure(error: unknown): Attempt | undefined {
  // After a lost lease another process continues the invocation, and this process waits for its result.
  if (isPassingFailure(error) || error instanceof LeaseLostError || error instanceof HandedOverError) return undefined;
  const isKnown = error instanceof AppError;
  const { code, message } = isKnown
    ? error
    : { code: 'internal', message: 'The runtime failed while it ran the agent.' };
  const failure = { invocationId: undefined, error: { code, message } };
  if (code === 'cancelled') return { kind: 'cancelled', ...failure };
  if (code === 'interrupted') return { kind: 'again', ...failure };
  return { kind: code === 'busy' || code === 'unavailable' ? 'passing' : 'failed', ...failure };
}

async function settle(
  { database, log, notifications }: InvocationContext,
  run: RunRow,
  cronjob: CronjobRow,
  { kind, ...outcome }: Attempt,
): Promise<void> {
  if (kind === 'handed-over') {
    await releaseRun(database.db, run);
    return notifications.publish(CRONJOBS_TOPIC);
  }
  if (kind === 'again') return retryRun(database.db, run, 0, outcome);
  if (kind === 'passing' && run.attempt < cronjob.maxAttempts && run.cancelRequestTime === null)
    return retryRun(database.db, run, retryPauseMs(cronjob, run.attempt), outcome);
  const ended = await endRun(database.db, run, { ...outcome, status: kind === 'passing' ? 'failed' : kind });
  if (!ended) throw new LeaseLostError(LOST);
  if (!ended.disabled) return;
  log.warn({ cronjobId: cronjob.id }, 'a cronjob was disabled: it failed too often in a row');
  await skipWaitingRuns(database.db, { ...run, id: run.cronjobId }, 'The cronjob was disabled.');
}

const retryPauseMs = ({ retryPauseSeconds, maxRetryPauseSeconds }: CronjobRow, attempt: number): number =>
  backOffMs(attempt, { firstMs: retryPauseSeconds * 1000, maxMs: maxRetryPauseSeconds * 1000 });

function startTimeLimit(seconds: number | null): { signal: AbortSignal; stop(): void } {
  const limit = new AbortController();
  if (seconds === null) return { signal: limit.signal, stop: () => undefined };
  const message = `The run took longer than its limit of ${seconds} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), seconds * 1000);
  return { signal: limit.signal, stop: () => clearTimeout(timer) };
}
