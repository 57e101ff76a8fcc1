import { AgentError, AppError, RepeatedInvocationError } from '../core/errors.ts';
import { runWith } from '../platform/context.ts';
import { runLeasedQueue } from '../platform/work/leased-queue.ts';
import { freeTopic, QUEUE_TOPIC } from '../core/names.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationContext, InvocationRequest } from './context.ts';
import type { Lease } from './lock-store.ts';
import { CLAIM_PATIENCE_MS, findAgent, newLease, toClaim } from './claim-request.ts';
import { runClaimed } from './invoke.ts';
import { finishOnce, persist } from './persist.ts';
import { claimedUserEvents, stoppedMessage, toAgentError } from './invocation.ts';
import { findQueued, findWaiter, listQueueHeads, type Queued, type QueueHead } from './queue-store.ts';
import { acquireSession, type ClaimRequest, claimTurn } from './session-lock.ts';
import { abandonedError, findRepeated } from './retry.ts';
import { type Beginning, readStoredRequest, toQueuedRequest } from './stored-request.ts';

/** Longest pause between two polls of the queues: notifications only save time, they may be lost. */
const MAX_PAUSE_MS = 5_000;
/** Shortest pause, however often the sessions change that are waited for. */
const MIN_PAUSE_MS = 20;
/** Maximum of queues that one poll finds. */
const MAX_HEADS = 100;

/**
 * Starts an invocation in the background; settles when it has its row. Where its session is free it runs here;
 * where it is busy, its row waits with its request in the database for the process that takes it up
 * ({@link runBackgroundQueue}): from then on no process has to live for it.
 * @param bytes - of the body of the request, which outlasts that
 * @throws as `invoke` does before an invocation begins.
 */
export async function startInBackground(
  context: InvocationContext,
  request: InvocationRequest,
  bytes: number,
): Promise<void> {
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
 * is theirs too, since of several processes that find the head of a queue one gets the session. Heads that this process
 * has no room for stay where they are.
 * @returns a promise that settles when the last of them has ended.
 */
export function runBackgroundQueue(context: InvocationContext): Promise<void> {
  const { database, draining, agents, limits } = context;
  const watched = new WatchedTopics(context.notifications);
  draining.addEventListener('abort', () => watched.set([], () => undefined), { once: true });
  return runLeasedQueue<QueueHead>(context, {
    name: 'background invocations',
    topic: QUEUE_TOPIC,
    maxJobs: limits.takenUp,
    minPauseMs: MIN_PAUSE_MS,
    claim: async ({ held, slots, wake }) => {
      const heads = await listQueueHeads(database.db, MAX_HEADS);
      const heldIds = new Set(held.map(({ invocationId }) => invocationId));
      const free = heads.filter(
        ({ isFree, key, invocationId }) => isFree && agents.has(key.appName) && !heldIds.has(invocationId),
      );
      // One of them may be what kills its processes: beside each other they would all come to their last.
      const isLast = ({ attempts }: QueueHead) => attempts > 0 && attempts + 1 >= limits.attempts;
      const next = held.some(isLast) ? undefined : free.find(isLast);
      const jobs = free.filter((head) => !isLast(head) || head === next).slice(0, slots);
      const topics = heads.filter(({ isFree }) => !isFree).map(({ key }) => freeTopic(key));
      // A session that was not watched yet may have become free before it was.
      const isNew = !draining.aborted && watched.set(topics, wake);
      return { jobs, pauseMs: isNew ? 0 : MAX_PAUSE_MS };
    },
    run: (head) => runQueued(context, head),
    toLogFields: ({ invocationId }) => ({ invocationId }),
  });
}

/** Subscriptions to the sessions that queues wait for. */
class WatchedTopics {
  readonly #notifications: InvocationContext['notifications'];
  readonly #byTopic = new Map<string, () => void>();

  constructor(notifications: InvocationContext['notifications']) {
    this.#notifications = notifications;
  }

  /** Subscribes to these topics and to no others. @returns true where one is new. */
  set(topics: string[], wake: () => void): boolean {
    const wanted = new Set(topics);
    for (const [topic, unsubscribe] of this.#byTopic) {
      if (wanted.has(topic)) continue;
      unsubscribe();
      this.#byTopic.delete(topic);
    }
    const added = [...wanted].filter((topic) => !this.#byTopic.has(topic));
    for (const topic of added) this.#byTopic.set(topic, this.#notifications.subscribe(topic, wake));
    return added.length > 0;
  }
}

const REVOKED = 'the key that requested it is not valid any more';

/** Runs an invocation that waits, or goes on with one, unless another process is faster. */
async function runQueued(context: InvocationContext, { key, invocationId, waited, bytes }: QueueHead): Promise<void> {
  const start = async () => {
    const queued = await findQueued(context.database.db, { key, invocationId });
    if (!queued) return;
    const read = readStoredRequest(queued.request, context.secrets, { key, invocationId });
    const { asker, began } = read;
    const request = { ...read.request, key, invocationId, createSession: false, inBackground: true };
    const isRevoked = asker.keyId !== undefined && !(await context.isValidKey(asker.keyId));
    const refusal = isRevoked ? REVOKED : read.refusal;
    await runWith(asker, () =>
      queued.hasBegun
        ? goOn(context, request, queued, { began, refusal })
        : begin(context, request, queued, { waited, refusal }),
    );
  };
  await context.admission.admit(key.userId, start, bytes);
}

/** Begins an invocation in the background whose turn it is. */
async function begin(
  context: InvocationContext,
  request: InvocationRequest,
  { token: readToken }: Queued,
  { waited, refusal: why }: { waited: number; refusal: string | undefined },
): Promise<void> {
  const lease = { ...newLease(context, request), readToken };
  let refusal = why === undefined ? undefined : new AgentError('internal', `It could not begin: ${why}.`);
  const claim = (prompt: NewEvent[]) => persist(() => claimTurn(context, lease, prompt), CLAIM_PATIENCE_MS);
  const isClaimed = await claim(claimedUserEvents(request, context.newId)).catch((error: unknown) => {
    const reason = toAgentError(error);
    if (!(reason instanceof AgentError)) throw error;
    // It would stay at the head of its queue: it is claimed without the prompt that does not fit, and ends.
    refusal = reason;
    lease.answers = undefined;
    return claim([]);
  });
  if (!isClaimed) return;
  context.metrics?.queued('claimed', waited);
  if (!refusal) return void (await runHere(context, request, lease, context.stopping));
  const { code, message } = refusal;
  await finishOnce(context.database.db, lease, [], { status: 'failed', error: { code, message } });
  context.notifications.publish(freeTopic(request.key));
}

/** Goes on with an invocation whose process died: what it has stored is taken, and it ends as if undisturbed. */
async function goOn(
  context: InvocationContext,
  request: InvocationRequest,
  { token: readToken, stopAs, ...counts }: Queued,
  { began, refusal }: { began: Beginning | undefined; refusal: string | undefined },
): Promise<void> {
  const { spentMs = 0, sequence = 0, llmCalls = 0, toolCalls = 0 } = began ?? {};
  const used = { llmCalls: counts.llmCalls - llmCalls, toolCalls: counts.toolCalls - toolCalls };
  const going = { ...request, goesOn: { sequence, spentMs, ...used } };
  const lease = { ...newLease(context, going), readToken };
  if (!(await persist(() => claimTurn(context, lease, []), CLAIM_PATIENCE_MS))) return;
  const died = `The invocation was interrupted: its process stopped, and ${refusal}.`;
  const end = stopAs ? new AgentError(stopAs, stoppedMessage(stopAs)) : refusal && new AgentError('interrupted', died);
  const outside = end ? AbortSignal.any([AbortSignal.abort(end), context.stopping]) : context.stopping;
  await runHere(context, going, lease, outside);
}

const runHere = (context: InvocationContext, request: InvocationRequest, lease: Lease, outside: AbortSignal) =>
  runClaimed({ context, request, agent: findAgent(context, request), lease, listener: () => undefined }, outside);

/** Logs a failure, except errors of the runtime: they are stored in the invocation, or are a matter of load. */
function logFailure({ log }: Pick<InvocationContext, 'log'>, error: unknown, invocationId?: string): void {
  if (!(error instanceof AppError)) log.error({ err: error, invocationId }, 'a background invocation failed');
}
