import { setTimeout as sleep } from 'node:timers/promises';
import { budgetText, type OverBudget, OverBudgetError } from '../conversation/budgets/budget.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import {
  AgentError,
  AppError,
  isPassingFailure,
  RepeatedInvocationError,
  sizeRefusal,
  userDataRefusal,
} from '../core/errors.ts';
import { runWith } from '../platform/context.ts';
import type { Database } from '../platform/db/database.ts';
import type { Labels } from '../platform/metrics.ts';
import { type RunEnd, runLeasedQueue } from '../platform/work/leased-queue.ts';
import { freeTopic, QUEUE_TOPIC, sessionTopic } from '../core/names.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationContext } from './context.ts';
import {
  type InvocationRequest,
  claimedUserEvents,
  type Beginning,
  readStoredRequest,
  toQueuedRequest,
  toRecovery,
} from './request.ts';
import type { Lease } from './lock-store.ts';
import type { LocalRun } from './local-run.ts';
import {
  CLAIM_PATIENCE_MS,
  findAgent,
  newLease,
  toClaim,
  acquireOnce,
  type SessionClaim,
  claimTurn,
  steers,
  withEarlier,
} from './session-lock.ts';
import { runClaimed } from './invoke.ts';
import { finishOnce, persist } from './persist.ts';
import { endingEvents, type InvocationError, isStopped, stoppedMessage, toAgentError } from './invocation.ts';
import { findQueued, listHeads, listUnserved, pauseQueued, type Queued, type QueueHead } from './queue-store.ts';
import { abandonedError, findRepeated } from './retry.ts';
import type { TakeOverContext } from './take-over.ts';
import { listKeptResponses } from './invocation-ledger.ts';
import { openBudgetTask } from './waits/task-store.ts';

type Refusal = Required<Labels<'agent_runtime_queue_refusals_total'>>['reason'];

/** Maximum pause between polls of the queues: the database's notifications may be lost. */
const MAX_PAUSE_MS = 5_000;
/** Minimum pause between two polls, even if sessions become free more often. */
const MIN_PAUSE_MS = 20;
/** Maximum additional pause after a slow poll ({@link Pace}). */
const MAX_REST_MS = 1_000;
/** Back-off of an invocation that could not begin: the first pause, which doubles up to the maximum. */
const FIRST_PASS_MS = 250;
const MAX_PASS_MS = 300_000;
/** Maximum number of invocations whose back-off a process remembers. */
const MAX_PASSED = 1_000;

/**
 * Settles when the background invocation has its row. If its session is busy, it is queued with its request
 * in the database, and {@link runBackgroundQueue} of any process may run it.
 * @param bytes - size of the request body, which stays in memory after the response
 * @param localRun - takes the steps of the invocation, if it runs in this process at once
 * @throws the errors that `invoke` throws before an invocation begins
 */
async function startInBackground(
  context: InvocationContext,
  asked: InvocationRequest,
  bytes: number,
  localRun: LocalRun | undefined,
): Promise<void> {
  const agent = findAgent(context, asked);
  const request = await withEarlier(context, asked);
  const { stopping, notifications } = context;
  const accepted = Promise.withResolvers<void>();
  const body = toQueuedRequest(request, context.secrets, steers(context, request));
  const lease: Lease = { ...newLease(context, request, body), ...(localRun && { isFollowed: true }) };
  const claim: SessionClaim = { ...toClaim(context, request, lease, stopping), body };
  // The queue stores requests in the database. A request whose credentials cannot be encrypted must not be stored.
  if (!body) claim.busyPolicy = 'reject';
  const start = async () => {
    const isHeld = await acquireOnce(context, claim);
    const { beginning } = lease;
    if (beginning) localRun?.begin(beginning.before, beginning.stored, claim.events);
    // Free the memory of the request body and events while the invocation runs.
    Object.assign(claim, { body: undefined, events: [] });
    Object.assign(lease, { beginning: undefined });
    accepted.resolve();
    if (isHeld) await runFollowed({ context, request, agent, lease }, localRun, stopping);
    else notifications.publish(QUEUE_TOPIC);
  };
  const running = context.admission.admit(request.key.userId, start, bytes);
  running.catch((error: unknown) => logFailure(context, error, request.invocationId));
  await Promise.race([accepted.promise, running]);
}

/** Runs a claimed invocation, whose steps `localRun` takes. */
async function runFollowed(
  claimed: Parameters<typeof runClaimed>[0],
  localRun: LocalRun | undefined,
  outside: AbortSignal,
): Promise<void> {
  if (!localRun) return void (await runClaimed(claimed, outside));
  const { addFrame: listener, addDelta: onDelta } = localRun;
  const request = { ...claimed.request, onDelta, onPrompt: listener };
  try {
    const { invocation } = await runClaimed({ ...claimed, request, listener }, outside);
    localRun.end(invocation);
  } catch (error) {
    localRun.leave();
    throw error;
  }
}

/**
 * Starts an invocation once per idempotency key.
 * @param localRun - takes the steps of the invocation, if this request starts it and it runs in this process at once
 * @returns the id that the first request with the key started
 */
export async function startOnce(
  context: InvocationContext,
  run: InvocationRequest,
  bytes: number,
  localRun?: LocalRun,
): Promise<string> {
  try {
    await startInBackground(context, run, bytes, localRun);
    return run.invocationId;
  } catch (error) {
    if (!(error instanceof RepeatedInvocationError) || !run.idempotency) throw error;
    const invocation = await findRepeated(context, run.key, run.idempotency);
    if (!invocation) throw abandonedError();
    return invocation.invocationId;
  }
}

/**
 * Runs the queued background invocations, whichever process accepted them, and resumes invocations whose process died.
 * Continues until this process begins to shut down. Several processes may poll the same queue: the claim of a session
 * is a compare-and-set, so only one process wins. The session's lease is also the lease of the queue's job; `invoke`
 * renews it. An invocation that cannot run does not block the queue, because the poll skips busy sessions, applications
 * that this process does not serve, and invocations that back off after a failure here.
 * @returns a promise that settles when the last invocation has ended
 */
export function runBackgroundQueue(context: InvocationContext): Promise<void> {
  const { database, agents, limits } = context;
  const passed = new PassedTurns();
  const pace = new Pace();
  return runLeasedQueue<QueueHead>(context, {
    name: 'background invocations',
    topic: QUEUE_TOPIC,
    maxJobs: limits.backgroundRuns,
    minPauseMs: MIN_PAUSE_MS,
    claim: async ({ held, slots }) => {
      if (slots === 0) return { jobs: [], pauseMs: MAX_PAUSE_MS, mayMore: true };
      const without = [...passed.list(), ...held.map(({ invocationId }) => invocationId)];
      const runs = limits.runs - held.filter(({ isRun }) => isRun).length;
      const { runsPerUser } = limits;
      const choice = { appNames: [...agents.keys()], without, limit: slots, runs, runsPerUser, aheadMs: MAX_PAUSE_MS };
      return pace.run(async () => {
        const { begun, waiting, nextMs } = await listHeads(database.db, choice, limits.attempts);
        const next = limitLastAttempts(begun, held, limits.attempts);
        const jobs = [...next, ...waiting.slice(0, slots - next.length)];
        const isFull = jobs.length >= slots || jobs.filter(({ isRun }) => isRun).length >= runs;
        const mayMore = isFull || next.length < begun.length;
        return { jobs, pauseMs: passed.pauseMs(Math.min(MAX_PAUSE_MS, nextMs)), mayMore };
      });
    },
    run: (head) => takeTurn(context, head, passed),
    toLogFields: ({ invocationId }) => ({ invocationId }),
  });
}

/**
 * Lets this process run at most one invocation in its last attempt at a time. Such an invocation may crash the process,
 * and the crash would use up the last attempts of all others that run here.
 */
function limitLastAttempts(begun: QueueHead[], held: readonly QueueHead[], maxAttempts: number): QueueHead[] {
  const isLast = ({ attempts }: QueueHead) => attempts > 0 && attempts + 1 >= maxAttempts;
  const next = held.some(isLast) ? undefined : begun.find(isLast);
  return begun.filter((head) => !isLast(head) || head === next);
}

/** Polls of the queue take at most a fifth of the time, because one may read many rows that cannot run yet. */
class Pace {
  #nextTime = 0;

  async run<T>(look: () => Promise<T>): Promise<T> {
    const restMs = this.#nextTime - performance.now();
    if (restMs > 0) await sleep(restMs);
    const startedAt = performance.now();
    try {
      return await look();
    } finally {
      const now = performance.now();
      this.#nextTime = now + Math.min(4 * (now - startedAt), MAX_REST_MS);
    }
  }
}

/** Invocations that this process could not begin. Each of them backs off exponentially. */
class PassedTurns {
  readonly #byId = new Map<string, { times: number; until: number }>();

  add(id: string, maxMs: number): void {
    const times = (this.#byId.get(id)?.times ?? 0) + 1;
    const until = performance.now() + Math.min(FIRST_PASS_MS * 2 ** (times - 1), maxMs);
    this.#byId.delete(id);
    this.#byId.set(id, { times, until });
    const [oldest] = this.#byId.keys();
    if (this.#byId.size > MAX_PASSED && oldest !== undefined) this.#byId.delete(oldest);
  }

  remove(id: string): void {
    this.#byId.delete(id);
  }

  list(): string[] {
    const now = performance.now();
    for (const [id, { until }] of this.#byId) if (until < now - MAX_PASS_MS) this.#byId.delete(id);
    return [...this.#byId].flatMap(([id, { until }]) => (until > now ? [id] : []));
  }

  /** Milliseconds until the first back-off ends, at most `maxMs`. */
  pauseMs(maxMs: number): number {
    const now = performance.now();
    const next = [...this.#byId.values()].map(({ until }) => until - now).filter((ms) => ms > 0);
    return Math.min(maxMs, ...next);
  }
}

/** Runs the first invocation of a session's queue. If the invocation cannot begin, this process backs off from it. */
async function takeTurn(context: InvocationContext, head: QueueHead, passed: PassedTurns): Promise<RunEnd> {
  const { key, invocationId } = head;
  const turn = { isLetIn: false, isUsed: false };
  try {
    await context.admission.admit(
      key.userId,
      async () => {
        turn.isLetIn = true;
        const isUsed = await runQueued(context, head, () => (turn.isUsed = true));
        // Another process has claimed the invocation. Skip it until that process has updated the row.
        if (!isUsed) passed.add(invocationId, FIRST_PASS_MS);
        else passed.remove(invocationId);
      },
      head.bytes,
    );
    // The end of a cronjob's run lets the next one begin.
    return turn.isUsed && !head.isRun ? 'over' : 'waits';
  } catch (error) {
    if (!turn.isUsed) {
      const passes = isPassingFailure(error);
      passed.add(invocationId, passes ? MAX_PAUSE_MS : MAX_PASS_MS);
      if (!passes) reportRefusal(context, head, turn.isLetIn ? 'failure' : 'room', error);
    }
    throw error;
  }
}

function reportRefusal(
  { log, metrics }: Pick<InvocationContext, 'log' | 'metrics'>,
  { key: { appName }, invocationId }: Pick<Lease, 'key' | 'invocationId'>,
  reason: Refusal,
  error: unknown,
): void {
  metrics?.count('agent_runtime_queue_refusals_total', { reason });
  const why = error instanceof AppError ? error.message : undefined;
  log.warn({ appName, invocationId, reason, why }, 'the turn of a waiting invocation was refused');
}

const REVOKED = 'the key that requested it is not valid any more';

/**
 * @param onUsed - called when this process has claimed the session
 * @returns false if another process claimed the invocation
 */
async function runQueued(
  context: InvocationContext,
  { key, invocationId, waitSeconds, isRun, queued: listed }: QueueHead,
  onUsed: () => void,
): Promise<boolean> {
  const queued = listed ?? (await findQueued(context.database.db, { key, invocationId }));
  if (!queued) return false;
  const read = readStoredRequest(queued.request, context.secrets, { key, invocationId });
  const { requestContext, began } = read;
  const request = { ...read.request, key, invocationId, createSession: false, inBackground: true };
  const { keyId } = requestContext;
  const keys = await context.listInvokers(key).catch((error: unknown): string[] => {
    if (keyId !== undefined) throw error;
    return [];
  });
  const refusal = keyId === undefined || keys.includes(keyId) ? read.refusal : REVOKED;
  return runWith(requestContext, () =>
    queued.hasBegun
      ? recover(context, request, queued, { began, refusal, onUsed })
      : begin(context, request, queued, { waitSeconds, isRun, steers: read.steers, keys, refusal, onUsed }),
  );
}

async function begin(
  context: InvocationContext,
  request: InvocationRequest,
  queued: Queued,
  {
    waitSeconds,
    isRun,
    steers: steered,
    keys,
    refusal,
    onUsed,
  }: {
    waitSeconds: number;
    isRun: boolean;
    steers: boolean;
    keys: readonly string[];
    refusal: string | undefined;
    onUsed: () => void;
  },
): Promise<boolean> {
  const { token: readToken, stopAs } = queued;
  if (stopAs) return endQueued(context, request, queued, { code: stopAs, message: stoppedMessage(stopAs) });
  if (refusal !== undefined) {
    const error = new AgentError('internal', `It could not begin: ${refusal}.`);
    return refuse(context, request, queued, 'request', error);
  }
  // This process began to stop while it read the queue: another one begins the invocation.
  if (context.draining.aborted) return false;
  const lease = {
    ...newLease(context, request),
    readToken,
    keys,
    ...(isRun && { places: context.limits.runsPerUser }),
    // An agent is no invocation of a budget. Its calls of models are.
    ...(request.child && { isFree: true as const }),
  };
  const prompt = claimedUserEvents(request, context.newId);
  try {
    if (!(await persist(() => claimTurn(context, lease, prompt), CLAIM_PATIENCE_MS))) return false;
  } catch (error) {
    if (error instanceof OverBudgetError) return refuseForBudget(context, request, queued, lease, error.over);
    // The user is being erased, and with it what is queued.
    if (userDataRefusal(error) !== undefined) return false;
    const reason = toAgentError(error);
    if (!(reason instanceof AgentError)) throw error;
    return refuse(context, request, queued, 'request', reason);
  }
  onUsed();
  context.metrics?.record('agent_runtime_queue_wait_seconds', waitSeconds, { outcome: 'claimed' });
  if (steered) context.metrics?.count('agent_runtime_steers_total', { outcome: 'next_turn' });
  await runHere(context, request, lease, context.stopping);
  return true;
}

/** Pauses an invocation whose budget is exhausted, or ends it if its request may not wait for a budget. */
async function refuseForBudget(
  context: InvocationContext,
  request: InvocationRequest,
  queued: Queued,
  lease: Lease,
  over: OverBudget,
): Promise<boolean> {
  const error = new AgentError('budget_exceeded', budgetText(over));
  if (request.waitsForBudget !== true) return refuse(context, request, queued, 'budget', error);
  const { database, notifications } = context;
  const pause = async (tx: Database) => {
    if (!(await pauseQueued(tx, lease))) return false;
    await openBudgetTask(tx, lease, over);
    return true;
  };
  try {
    const isPaused = await persist(() => database.transaction(pause), CLAIM_PATIENCE_MS);
    if (isPaused) reportRefusal(context, request, 'budget', error);
    // The next invocation in the session's queue may run now.
    notifications.publish(QUEUE_TOPIC);
    notifications.publish(sessionTopic(request.key));
    return isPaused;
  } catch (failure) {
    if (!sizeRefusal(failure)) throw failure;
    return refuse(context, request, queued, 'budget', error);
  }
}

/** Ends an invocation that cannot begin, because it would block the queue of its session. */
async function refuse(
  context: InvocationContext,
  request: InvocationRequest,
  queued: Queued,
  reason: Refusal,
  error: AgentError,
): Promise<boolean> {
  const isEnded = await endQueued(context, request, queued, error);
  if (isEnded) reportRefusal(context, request, reason, error);
  return isEnded;
}

/** Ends a queued invocation without its agent, because no process may serve its application any more. */
type EndingContext = Pick<InvocationContext, 'agents' | 'secrets' | 'log' | 'metrics'> & TakeOverContext;

/**
 * Ends a queued invocation, whether or not a process has begun it. Stores the prompt if the session accepts it, adds a
 * response to each open function call, and adds a last event with the error.
 * @returns false if the invocation is no longer queued
 */
async function endQueued(
  context: EndingContext,
  request: InvocationRequest,
  { token: readToken }: Pick<Queued, 'token'>,
  { code, message }: InvocationError,
): Promise<boolean> {
  const { database, notifications, newId } = context;
  const { key, invocationId } = request;
  const lease: Lease = { ...newLease(context, request), readToken, isFree: true };
  const claim = (prompt: NewEvent[]) => persist(() => claimTurn(context, lease, prompt), CLAIM_PATIENCE_MS);
  const isClaimed = await claim(request.recovery ? [] : claimedUserEvents(request, newId)).catch((error: unknown) => {
    if (!(toAgentError(error) instanceof AgentError)) throw error;
    lease.answers = undefined;
    return claim([]);
  });
  if (!isClaimed) return false;
  const { db } = database;
  const events = await listInvocationEvents(db, key, invocationId);
  const author = events.findLast((event) => event.author !== 'user')?.author ?? key.appName;
  const responses = await listKeptResponses(db, key, invocationId);
  const ending = endingEvents(invocationId, author, events, { code, message }, newId, responses);
  const status = isStopped(code) ? code : 'failed';
  await finishOnce(db, lease, ending, { status, error: { code, message }, hasDeltas: true });
  for (const topic of [sessionTopic(key), freeTopic(key), QUEUE_TOPIC]) notifications.publish(topic);
  return true;
}

/** Number of days that an invocation waits for a process that serves its application; long enough for holidays. */
const UNSERVED_DAYS = 7;
const MAX_UNSERVED = 100;

/** Ends invocations of applications that no process has served for a long time. */
export async function endUnserved(context: EndingContext): Promise<void> {
  const { db } = context.database;
  for (const unserved of await listUnserved(db, [...context.agents.keys()], UNSERVED_DAYS, MAX_UNSERVED)) {
    const queued = await findQueued(db, unserved);
    if (!queued) continue;
    const { request, began } = readStoredRequest(queued.request, context.secrets, unserved);
    const recovery = queued.hasBegun ? toRecovery(began, queued) : undefined;
    const message = `No process has served the application ${unserved.key.appName} for ${UNSERVED_DAYS} days.`;
    const error = { code: 'interrupted', message } as const;
    if (await endQueued(context, { ...request, ...unserved, createSession: false, recovery }, queued, error))
      reportRefusal(context, unserved, 'unserved', new AgentError('interrupted', message));
  }
}

/** Resumes an invocation whose process died or handed it over at the interrupted step, from the stored events. */
async function recover(
  context: InvocationContext,
  request: InvocationRequest,
  { token: readToken, stopAs, ...counts }: Queued,
  { began, refusal, onUsed }: { began: Beginning | undefined; refusal: string | undefined; onUsed: () => void },
): Promise<boolean> {
  const recoveryRequest = { ...request, recovery: toRecovery(began, counts) };
  const lease = { ...newLease(context, recoveryRequest), readToken };
  if (!(await persist(() => claimTurn(context, lease, []), CLAIM_PATIENCE_MS))) return false;
  onUsed();
  const died = `The invocation was interrupted: its process stopped, and ${refusal}.`;
  const end = stopAs ? new AgentError(stopAs, stoppedMessage(stopAs)) : refusal && new AgentError('interrupted', died);
  const outside = end ? AbortSignal.any([AbortSignal.abort(end), context.stopping]) : context.stopping;
  await runHere(context, recoveryRequest, lease, outside);
  return true;
}

const runHere = (context: InvocationContext, request: InvocationRequest, lease: Lease, outside: AbortSignal) =>
  runClaimed({ context, request, agent: findAgent(context, request), lease }, outside);

/** Logs a failure unless it is an `AppError`, which is stored with the invocation or only reports a full process. */
function logFailure({ log }: Pick<InvocationContext, 'log'>, error: unknown, invocationId?: string): void {
  if (!(error instanceof AppError)) log.error({ err: error, invocationId }, 'a background invocation failed');
}
