import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import { AppError } from '../core/errors.ts';
import type { SessionKey } from '../core/session.ts';
import { freeTopic, QUEUE_TOPIC } from '../core/names.ts';
import type { InvocationContext, InvocationRequest } from './context.ts';
import { CLAIM_PATIENCE_MS, findAgent, newLease, runClaimed, toClaim } from './invoke.ts';
import { finishOnce, persist } from './persist.ts';
import { claimEvents } from './question.ts';
import { findWaiter, listQueueHeads, type QueueHead } from './queue-store.ts';
import { inBackground, startInvocationSchema, toRequest } from './request.ts';
import { acquireSession, claimTurn } from './session-lock.ts';

/** Maximum time between two looks at the queues: notifications only save time, they may be lost. */
const LOOK_MS = 5_000;
/** Minimum time between two looks, however often the sessions change that are waited for. */
const PAUSE_MS = 20;
/** Maximum of queues that one look finds. */
const MAX_HEADS = 100;

/**
 * Starts an invocation that nobody waits for; settles when it has its row. Where its session is free it runs here;
 * where it is busy, its row with `body`, the request as it was sent, waits in the database for whatever process
 * takes it up ({@link takeUpQueued}): from then on no process has to live for it.
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
 * Takes up background invocations whose turn it is, from whatever process they came, until `signal` aborts. Of several
 * processes one gets each; those that this one has no room for stay where they are.
 */
export async function takeUpQueued(context: InvocationContext, signal: AbortSignal): Promise<void> {
  const { notifications, database } = context;
  let woken = Promise.withResolvers<void>();
  const wake = () => woken.resolve();
  const watched = new Map([[QUEUE_TOPIC, notifications.subscribe(QUEUE_TOPIC, wake)]]);
  while (!signal.aborted) {
    woken = Promise.withResolvers<void>();
    const heads = await listQueueHeads(database.db, MAX_HEADS).catch((error: unknown) => {
      logFailure(context, error);
      return [];
    });
    for (const head of heads) {
      if (!head.isFree || !context.agents.has(head.key.appName) || signal.aborted) continue;
      runQueued(context, head).catch((error: unknown) => logFailure(context, error, head.invocationId));
    }
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined);
    // A session that was not watched yet may have become free before it was: then the next look comes at once.
    if (watchSessions(watched, heads, (topic) => notifications.subscribe(topic, wake))) continue;
    await Promise.race([woken.promise, sleep(LOOK_MS, undefined, { signal }).catch(() => undefined)]);
  }
  for (const unsubscribe of watched.values()) unsubscribe();
}

/** Subscribes to the sessions that queues wait for and to no others. @returns true where one is new. */
function watchSessions(
  watched: Map<string, () => void>,
  heads: QueueHead[],
  subscribe: (topic: string) => () => void,
): boolean {
  const topics = new Set([QUEUE_TOPIC, ...heads.filter(({ isFree }) => !isFree).map(({ key }) => freeTopic(key))]);
  for (const [topic, unsubscribe] of watched) {
    if (topics.has(topic)) continue;
    unsubscribe();
    watched.delete(topic);
  }
  const added = [...topics].filter((topic) => !watched.has(topic));
  for (const topic of added) watched.set(topic, subscribe(topic));
  return added.length > 0;
}

/** The address of a webhook was looked up at the start and stands in the row; here it says to keep the answer. */
const toQueuedRequest = (key: SessionKey, invocationId: string, body: z.infer<typeof startInvocationSchema>) =>
  inBackground(toRequest(key, invocationId, body), body.webhookUrl ?? undefined);

/** Runs an invocation that waits, unless another process is faster. */
async function runQueued(context: InvocationContext, { key, invocationId, body, waited }: QueueHead): Promise<void> {
  const lease = newLease(context, { key, invocationId });
  const parsed = startInvocationSchema.safeParse(body);
  const request = parsed.success ? toQueuedRequest(key, invocationId, parsed.data) : undefined;
  await context.admission.admit(key.userId, async () => {
    const events = request ? claimEvents(request, context.newId) : [];
    if (!(await persist(() => claimTurn(context, lease, events), CLAIM_PATIENCE_MS))) return;
    context.metrics?.queued('claimed', waited);
    if (request) {
      const agent = findAgent(context, request);
      await runClaimed({ context, request, agent, lease, listener: () => undefined }, context.stopping);
      return;
    }
    const error = {
      code: 'internal',
      message: 'Its request was stored by another version and cannot be read.',
    } as const;
    await finishOnce(context.database.db, lease, [], { status: 'failed', error });
    context.notifications.publish(freeTopic(key));
  });
}

/** What the runtime's own errors say stands in the invocation or is a matter of load; anything else is for the log. */
function logFailure({ log }: Pick<InvocationContext, 'log'>, error: unknown, invocationId?: string): void {
  if (!(error instanceof AppError)) log.error({ err: error, invocationId }, 'a background invocation failed');
}
