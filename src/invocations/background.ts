import { setTimeout as sleep } from 'node:timers/promises';
import { budgetText, type OverBudget, OverBudgetError } from '../conversation/budgets/budget.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { AgentError, AppError, isPassingFailure, RepeatedInvocationError, sizeRefusal } from '../core/errors.ts';
import { runWith } from '../platform/context.ts';
import type { Database } from '../platform/db/database.ts';
import type { TurnRefusal } from '../platform/metrics.ts';
import { runLeasedQueue } from '../platform/work/leased-queue.ts';
import { freeTopic, QUEUE_TOPIC, sessionTopic } from '../core/names.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationContext, InvocationRequest } from './context.ts';
import type { Lease } from './lock-store.ts';
import { CLAIM_PATIENCE_MS, findAgent, newLease, toClaim } from './claim-request.ts';
import { runClaimed } from './invoke.ts';
import { finishOnce, persist } from './persist.ts';
import {
  claimedUserEvents,
  endingEvents,
  type InvocationError,
  isStopped,
  stoppedMessage,
  toAgentError,
} from './invocation.ts';
import {
  findQueued,
  findWaiter,
  listLeftHeads,
  listUnserved,
  listWaitingHeads,
  pauseQueued,
  type Queued,
  type QueueHead,
} from './queue-store.ts';
import { acquireSession, type ClaimRequest, claimTurn } from './session-lock.ts';
import { abandonedError, findRepeated } from './retry.ts';
import { type Beginning, readStoredRequest, toQueuedRequest } from './stored-request.ts';
import type { TakeOverContext } from './take-over.ts';
import { listKeptResponses } from './tool-call-store.ts';
import { openBudgetTask } from './waits/task-store.ts';

/** Longest pause between two polls of the queues: notifications only save time, they may be lost. */
const MAX_PAUSE_MS = 5_000;
/** Shortest pause, however often the sessions change that are waited for. */
const MIN_PAUSE_MS = 20;
/** Longest rest after a look at many. */
const MAX_REST_MS = 1_000;
/** First pause of an invocation whose turn could not be used, and the longest one. */
const FIRST_PASS_MS = 250;
const MAX_PASS_MS = 300_000;
/** Maximum of those that a process remembers. */
const MAX_PASSED = 1_000;

/**
 * Starts an invocation in the background; settles when it has its row. Where its session is free it runs here;
 * where it is busy, its row waits with its request in the database for the process that takes it up
 * ({@link runBackgroundQueue}): from then on no process has to live for it.
 * @param bytes - of the body of the request, which outlasts that
 * @throws as `invoke` does before an invocation begins.
 */
async function startInBackground(context: InvocationContext, request: InvocationRequest, bytes: number): Promise<void> {
  const agent = findAgent(context, request);
  const { stopping, notifications } = context;
  const known = Promise.withResolvers<void>();
  const lease = newLease(context, request);
  const body = toQueuedRequest(request, context.secrets);
  const claim: ClaimRequest = { ...toClaim(context, request, lease, stopping), body };
  // With credentials that cannot be stored it cannot wait.
  if (!body) claim.busyPolicy = 'reject';
  const start = async () => {
    let isRetry = false;
    const isHeld = await persist(async () => {
      // The answer to the first try was lost: another process may have begun, or ended, what it queued.
      const waiter = isRetry ? await findWaiter(context.database.db, lease) : undefined;
      isRetry = true;
      return waiter && !waiter.isMine ? false : acquireSession(context, claim);
    }, CLAIM_PATIENCE_MS);
    // What is stored, and the body as it was sent, are not held beside the request while that runs.
    Object.assign(claim, { body: undefined, events: [] });
    known.resolve();
    if (isHeld) await runClaimed({ context, request, agent, lease, listener: () => undefined }, stopping);
    else notifications.publish(QUEUE_TOPIC);
  };
  const running = context.admission.admit(request.key.userId, start, bytes);
  running.catch((error: unknown) => logFailure(context, error, request.invocationId));
  await Promise.race([known.promise, running]);
}

/**
 * Starts an invocation in the background as {@link startInBackground} does, once for all requests with its key.
 * @returns its id: that of the first request
 */
export async function startOnce(context: InvocationContext, run: InvocationRequest, bytes: number): Promise<string> {
  try {
    await startInBackground(context, run, bytes);
    return run.invocationId;
  } catch (error) {
    if (!(error instanceof RepeatedInvocationError) || !run.idempotency) throw error;
    const found = await findRepeated(context, run.key, run.idempotency);
    if (!found) throw abandonedError();
    return found.invocationId;
  }
}

/**
 * Runs background invocations whose turn it is, from whatever process they came, and goes on with those that a
 * take-over put back, until this process drains. Their lease is that of their session, which `invoke` renews; the claim
 * is theirs too, since of several processes that find the head of a queue one gets the session. Who cannot begin holds
 * up nobody: a look finds those that can, without those of other applications, of busy sessions, and those whose turn
 * this process could not use a moment ago.
 * @returns a promise that settles when the last of them has ended.
 */
export function runBackgroundQueue(context: InvocationContext): Promise<void> {
  const { database, agents, limits } = context;
  const passed = new PassedTurns();
  const pace = new Pace();
  return runLeasedQueue<QueueHead>(context, {
    name: 'background invocations',
    topic: QUEUE_TOPIC,
    maxJobs: limits.takenUp,
    minPauseMs: MIN_PAUSE_MS,
    claim: async ({ held, slots }) => {
      if (slots === 0) return { jobs: [], pauseMs: MAX_PAUSE_MS };
      const without = [...passed.list(), ...held.map(({ invocationId }) => invocationId)];
      const choice = { appNames: [...agents.keys()], without, limit: slots };
      const jobs = await pace.run(async () => {
        const left = await listLeftHeads(database.db, choice, limits.attempts);
        const next = toTaken(left, held, limits.attempts);
        const rest = slots - next.length;
        return rest === 0 ? next : [...next, ...(await listWaitingHeads(database.db, { ...choice, limit: rest }))];
      });
      return { jobs, pauseMs: passed.pauseMs(MAX_PAUSE_MS) };
    },
    run: (head) => takeTurn(context, head, passed),
    toLogFields: ({ invocationId }) => ({ invocationId }),
  });
}

/** Leaves out all but one of those that may be what kills their processes: together they would come to their last. */
function toTaken(left: QueueHead[], held: readonly QueueHead[], maxAttempts: number): QueueHead[] {
  const isLast = ({ attempts }: QueueHead) => attempts > 0 && attempts + 1 >= maxAttempts;
  const next = held.some(isLast) ? undefined : left.find(isLast);
  return left.filter((head) => !isLast(head) || head === next);
}

/** A look may read much that cannot begin: it takes at most a fifth of the time. */
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

/** Invocations whose turn this process could not use: each pauses, twice as long every time. */
class PassedTurns {
  readonly #byId = new Map<string, { times: number; until: number }>();

  /** Notes one. */
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

  /** Lists those that pause. */
  list(): string[] {
    const now = performance.now();
    for (const [id, { until }] of this.#byId) if (until < now - MAX_PASS_MS) this.#byId.delete(id);
    return [...this.#byId].flatMap(([id, { until }]) => (until > now ? [id] : []));
  }

  /** Milliseconds until the first of them may be tried again, at most `maxMs`. */
  pauseMs(maxMs: number): number {
    const now = performance.now();
    const next = [...this.#byId.values()].map(({ until }) => until - now).filter((ms) => ms > 0);
    return Math.min(maxMs, ...next);
  }
}

/** Uses the turn of an invocation; where that is in vain, it pauses in this process. */
async function takeTurn(context: InvocationContext, head: QueueHead, passed: PassedTurns): Promise<void> {
  const { key, invocationId } = head;
  const turn = { isLetIn: false, isUsed: false };
  try {
    await context.admission.admit(
      key.userId,
      async () => {
        turn.isLetIn = true;
        const isUsed = await runQueued(context, head, () => (turn.isUsed = true));
        // Another process was faster: it is not found again before that one has its row.
        if (!isUsed) passed.add(invocationId, FIRST_PASS_MS);
        else passed.remove(invocationId);
      },
      head.bytes,
    );
  } catch (error) {
    if (!turn.isUsed) {
      const passes = isPassingFailure(error);
      passed.add(invocationId, passes ? MAX_PAUSE_MS : MAX_PASS_MS);
      if (!passes) tellRefusal(context, head, turn.isLetIn ? 'failure' : 'room', error);
    }
    throw error;
  }
}

/** A turn that is not used is seen in the log and in a metric. */
function tellRefusal(
  { log, metrics }: Pick<InvocationContext, 'log' | 'metrics'>,
  { key: { appName }, invocationId }: Pick<Lease, 'key' | 'invocationId'>,
  reason: TurnRefusal,
  error: unknown,
): void {
  metrics?.turnRefused(reason);
  const why = error instanceof AppError ? error.message : undefined;
  log.warn({ appName, invocationId, reason, why }, 'the turn of a waiting invocation was refused');
}

const REVOKED = 'the key that requested it is not valid any more';

/**
 * Runs an invocation that waits, or goes on with one, unless another process is faster.
 * @param onUsed - called when it holds its session
 * @returns whether its turn was used
 */
async function runQueued(
  context: InvocationContext,
  { key, invocationId, waited }: QueueHead,
  onUsed: () => void,
): Promise<boolean> {
  const queued = await findQueued(context.database.db, { key, invocationId });
  if (!queued) return false;
  const read = readStoredRequest(queued.request, context.secrets, { key, invocationId });
  const { requestContext, began } = read;
  const request = { ...read.request, key, invocationId, createSession: false, inBackground: true };
  const isRevoked = requestContext.keyId !== undefined && !(await context.isValidKey(requestContext.keyId));
  const refusal = isRevoked ? REVOKED : read.refusal;
  return runWith(requestContext, () =>
    queued.hasBegun
      ? goOn(context, request, queued, { began, refusal, onUsed })
      : begin(context, request, queued, { waited, refusal, onUsed }),
  );
}

/** Begins an invocation in the background whose turn it is. */
async function begin(
  context: InvocationContext,
  request: InvocationRequest,
  queued: Queued,
  { waited, refusal, onUsed }: { waited: number; refusal: string | undefined; onUsed: () => void },
): Promise<boolean> {
  const { token: readToken, stopAs } = queued;
  if (stopAs) return endQueued(context, request, queued, { code: stopAs, message: stoppedMessage(stopAs) });
  if (refusal !== undefined) {
    const error = new AgentError('internal', `It could not begin: ${refusal}.`);
    return refuse(context, request, queued, 'request', error);
  }
  const lease = { ...newLease(context, request), readToken };
  const prompt = claimedUserEvents(request, context.newId);
  try {
    if (!(await persist(() => claimTurn(context, lease, prompt), CLAIM_PATIENCE_MS))) return false;
  } catch (error) {
    if (error instanceof OverBudgetError) return refuseForBudget(context, request, queued, lease, error.over);
    const reason = toAgentError(error);
    if (!(reason instanceof AgentError)) throw error;
    return refuse(context, request, queued, 'request', reason);
  }
  onUsed();
  context.metrics?.queued('claimed', waited);
  await runHere(context, request, lease, context.stopping);
  return true;
}

/** Pauses what a budget refuses at its turn, as it would one that runs, or ends it where that is how it would end. */
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
    if (isPaused) tellRefusal(context, request, 'budget', error);
    // Who waits behind it has its turn.
    notifications.publish(QUEUE_TOPIC);
    notifications.publish(sessionTopic(request.key));
    return isPaused;
  } catch (failure) {
    if (!sizeRefusal(failure)) throw failure;
    return refuse(context, request, queued, 'budget', error);
  }
}

/** Ends what cannot begin: it would stay at the head of its queue. */
async function refuse(
  context: InvocationContext,
  request: InvocationRequest,
  queued: Queued,
  reason: TurnRefusal,
  error: AgentError,
): Promise<boolean> {
  const isEnded = await endQueued(context, request, queued, error);
  if (isEnded) tellRefusal(context, request, reason, error);
  return isEnded;
}

/** What ends an invocation that waits uses of a process: not its application, which may be gone. */
type EndingContext = Pick<InvocationContext, 'agents' | 'secrets' | 'log' | 'metrics'> & TakeOverContext;

/**
 * Ends an invocation that waits, whether a process has begun it or not: what it was to say is stored where it fits, its
 * open calls are answered, and its last event says why. @returns false where it waits no more
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
  const isClaimed = await claim(request.goesOn ? [] : claimedUserEvents(request, newId)).catch((error: unknown) => {
    if (!(toAgentError(error) instanceof AgentError)) throw error;
    lease.answers = undefined;
    return claim([]);
  });
  if (!isClaimed) return false;
  const { db } = database;
  const events = await listInvocationEvents(db, key, invocationId);
  const author = events.findLast((event) => event.author !== 'user')?.author ?? key.appName;
  const known = await listKeptResponses(db, key, invocationId);
  const ending = endingEvents(invocationId, author, events, { code, message }, newId, known);
  const status = isStopped(code) ? code : 'failed';
  await finishOnce(db, lease, ending, { status, error: { code, message }, hasDeltas: true });
  for (const topic of [sessionTopic(key), freeTopic(key), QUEUE_TOPIC]) notifications.publish(topic);
  return true;
}

/** How long an invocation waits for a process that serves its application: over a holiday, or the end of a pilot. */
const UNSERVED_DAYS = 7;
/** Invocations of one look. */
const MAX_UNSERVED = 100;

/** Ends what waits for an application that no process has served for long. */
export async function endUnserved(context: EndingContext): Promise<void> {
  const { db } = context.database;
  for (const found of await listUnserved(db, [...context.agents.keys()], UNSERVED_DAYS, MAX_UNSERVED)) {
    const queued = await findQueued(db, found);
    if (!queued) continue;
    const { request, began } = readStoredRequest(queued.request, context.secrets, found);
    const { sequence = 0 } = began ?? {};
    const goesOn = queued.hasBegun ? { sequence, spentMs: 0, llmCalls: 0, toolCalls: 0 } : undefined;
    const message = `No process has served the application ${found.key.appName} for ${UNSERVED_DAYS} days.`;
    const error = { code: 'interrupted', message } as const;
    if (await endQueued(context, { ...request, ...found, createSession: false, goesOn }, queued, error))
      tellRefusal(context, found, 'unserved', new AgentError('interrupted', message));
  }
}

/** Goes on with an invocation whose process died: what it has stored is taken, and it ends as if undisturbed. */
async function goOn(
  context: InvocationContext,
  request: InvocationRequest,
  { token: readToken, stopAs, ...counts }: Queued,
  { began, refusal, onUsed }: { began: Beginning | undefined; refusal: string | undefined; onUsed: () => void },
): Promise<boolean> {
  const { spentMs = 0, sequence = 0, llmCalls = 0, toolCalls = 0 } = began ?? {};
  const used = { llmCalls: counts.llmCalls - llmCalls, toolCalls: counts.toolCalls - toolCalls };
  const going = { ...request, goesOn: { sequence, spentMs, ...used } };
  const lease = { ...newLease(context, going), readToken };
  if (!(await persist(() => claimTurn(context, lease, []), CLAIM_PATIENCE_MS))) return false;
  onUsed();
  const died = `The invocation was interrupted: its process stopped, and ${refusal}.`;
  const end = stopAs ? new AgentError(stopAs, stoppedMessage(stopAs)) : refusal && new AgentError('interrupted', died);
  const outside = end ? AbortSignal.any([AbortSignal.abort(end), context.stopping]) : context.stopping;
  await runHere(context, going, lease, outside);
  return true;
}

const runHere = (context: InvocationContext, request: InvocationRequest, lease: Lease, outside: AbortSignal) =>
  runClaimed({ context, request, agent: findAgent(context, request), lease, listener: () => undefined }, outside);

/** Logs a failure, except errors of the runtime: they are stored in the invocation, or are a matter of load. */
function logFailure({ log }: Pick<InvocationContext, 'log'>, error: unknown, invocationId?: string): void {
  if (!(error instanceof AppError)) log.error({ err: error, invocationId }, 'a background invocation failed');
}
