import type { z } from 'zod';
import { AgentError, AppError } from '../core/errors.ts';
import { runLeasedQueue } from '../platform/work/leased-queue.ts';
import type { SessionKey } from '../core/session.ts';
import { freeTopic, QUEUE_TOPIC } from '../core/names.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationContext, InvocationRequest } from './context.ts';
import { CLAIM_PATIENCE_MS, findAgent, newLease, runClaimed, toAgentError, toClaim } from './invoke.ts';
import { finishOnce, persist } from './persist.ts';
import { claimedUserEvents } from './invocation.ts';
import { findQueuedBody, findWaiter, listQueueHeads, type QueueHead } from './queue-store.ts';
import { inBackground, startInvocationSchema, toRequest } from './request.ts';
import { acquireSession, claimTurn } from './session-lock.ts';

/** Longest pause between two polls of the queues: notifications only save time, they may be lost. */
const MAX_PAUSE_MS = 5_000;
/** Shortest pause, however often the sessions change that are waited for. */
const MIN_PAUSE_MS = 20;
/** Maximum of queues that one poll finds. */
const MAX_HEADS = 100;

/**
 * Starts an invocation in the background; settles when it has its row. Where its session is free it runs here;
 * where it is busy, its row with `body`, the request as it was sent, waits in the database for the process
 * that takes it up ({@link runBackgroundQueue}): from then on no process has to live for it.
 * @throws as `invoke` does before an invocation begins.
 */
export async function startInBackground(
  context: InvocationContext,
  request: InvocationRequest,
  body: unknown,
): Promise<void> {
  const agent = findAgent(context, request);
  const { stopping, notifications } = context;
  const known = Promise.withResolvers<void>();
  const running = context.admission.admit(request.key.userId, async () => {
    const lease = newLease(context, request);
    const claim = { ...toClaim(context, request, lease, stopping), body };
    let isRetry = false;
    const isHeld = await persist(async () => {
      // The answer to the first try was lost: another process may have begun, or ended, what it queued.
      const waiter = isRetry ? await findWaiter(context.database.db, lease) : undefined;
      isRetry = true;
      return waiter && !waiter.isMine ? false : acquireSession(context, claim);
    }, CLAIM_PATIENCE_MS);
    known.resolve();
    if (isHeld) await runClaimed({ context, request, agent, lease, listener: () => undefined }, stopping);
    else notifications.publish(QUEUE_TOPIC);
  });
  running.catch((error: unknown) => logFailure(context, error, request.invocationId));
  await Promise.race([known.promise, running]);
}

/**
 * Runs background invocations whose turn it is, from whatever process they came, until the process drains. Their lease
 * is that of their session, which `invoke` renews; the claim is theirs too, since of several processes that find the
 * head of a queue one gets the session. Heads that this process has no room for stay where they are.
 * @returns a promise that settles when the last of them has ended.
 */
export function runBackgroundQueue(context: InvocationContext): Promise<void> {
  const { database, draining, agents } = context;
  const watched = new WatchedTopics(context.notifications);
  draining.addEventListener('abort', () => watched.set([], () => undefined), { once: true });
  return runLeasedQueue<QueueHead>(context, {
    name: 'background invocations',
    topic: QUEUE_TOPIC,
    maxJobs: Infinity,
    minPauseMs: MIN_PAUSE_MS,
    claim: async ({ held, wake }) => {
      const heads = await listQueueHeads(database.db, MAX_HEADS);
      const heldIds = new Set(held.map(({ invocationId }) => invocationId));
      const jobs = heads.filter(
        ({ isFree, key, invocationId }) => isFree && agents.has(key.appName) && !heldIds.has(invocationId),
      );
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

/** Returns the request of a queued row. The start has checked the address of its webhook, which is in the row. */
const toQueuedRequest = (key: SessionKey, invocationId: string, body: z.infer<typeof startInvocationSchema>) =>
  inBackground(toRequest(key, invocationId, body), body.webhookUrl ?? undefined);

/** Runs an invocation that waits, unless another process is faster. */
async function runQueued(context: InvocationContext, { key, invocationId, waited }: QueueHead): Promise<void> {
  const lease = newLease(context, { key, invocationId });
  await context.admission.admit(key.userId, async () => {
    const body = await findQueuedBody(context.database.db, lease);
    if (body === undefined) return;
    const parsed = startInvocationSchema.safeParse(body);
    const request = parsed.success ? toQueuedRequest(key, invocationId, parsed.data) : undefined;
    const events = request ? claimedUserEvents(request, context.newId) : [];
    const claim = (prompt: NewEvent[]) => persist(() => claimTurn(context, lease, prompt), CLAIM_PATIENCE_MS);
    let refusal: AgentError | undefined;
    const isClaimed = await claim(events).catch((error: unknown) => {
      const reason = toAgentError(error);
      if (!(reason instanceof AgentError)) throw error;
      // It would stay at the head of its queue: it is claimed without the prompt that does not fit, and ends.
      refusal = reason;
      return claim([]);
    });
    if (!isClaimed) return;
    context.metrics?.queued('claimed', waited);
    if (request && !refusal) {
      const agent = findAgent(context, request);
      await runClaimed({ context, request, agent, lease, listener: () => undefined }, context.stopping);
      return;
    }
    const { code, message } =
      refusal ?? new AgentError('internal', 'Its request was stored by another version and cannot be read.');
    await finishOnce(context.database.db, lease, [], { status: 'failed', error: { code, message } });
    context.notifications.publish(freeTopic(key));
  });
}

/** Logs a failure, except errors of the runtime: they are stored in the invocation, or are a matter of load. */
function logFailure({ log }: Pick<InvocationContext, 'log'>, error: unknown, invocationId?: string): void {
  if (!(error instanceof AppError)) log.error({ err: error, invocationId }, 'a background invocation failed');
}
