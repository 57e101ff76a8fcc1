import type { Log } from '../../platform/log.ts';
import type { Metrics } from '../../platform/metrics.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { type Claim, type ClaimRequest, pauseUntil, runLeasedQueue } from '../../platform/work/leased-queue.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { createEgress, type Egress, type EgressPolicy } from '../../platform/net/egress.ts';
import { retryPauseMs, withAnswer } from './delivery.ts';
import {
  type ClaimedDelivery,
  claimDeliveries,
  deleteOldDeliveries,
  endDelivery,
  findNextDueMs,
  postponeDelivery,
  takeBackDeliveryLoss,
  WEBHOOKS_TOPIC,
} from './delivery-store.ts';
import { sendOnce } from './send.ts';
import { setSilent } from './webhook-store.ts';

/** Longest pause: finds what no notification told (a pooler that does not pass LISTEN). */
const MAX_PAUSE_MS = 60_000;
/** Time of the database at both ends of an attempt, before the attempt is taken for dead. */
const LEASE_SLACK_MS = 10_000;
const CLEANING_BATCH = 10_000;
/** Status of a receiver that wants no further attempt (Standard Webhooks). */
const GONE = 410;

/** Settings of all webhooks together. */
export interface SenderSettings {
  policy: EgressPolicy;
  /** Maximum of deliveries of this process at once. */
  maxSending: number;
  /** Maximum to one host, and of one user, at once, over all processes. */
  perHost: number;
  perUser: number;
  /** Time limit of one attempt. */
  timeoutMs: number;
  /** How long ended deliveries are kept, and how many of each webhook. */
  retentionDays: number;
  retentionCount: number;
}

/** The resources that sending uses. */
export interface SenderContext {
  database: DatabasePool;
  notifications: Notifications;
  log: Log;
  /** Aborted when the process begins to stop: nothing new is sent. */
  draining: AbortSignal;
  /** Aborted when the process has to end: what is being sent is left to others. */
  stopping: AbortSignal;
  metrics?: Metrics | undefined;
}

/** Sends deliveries until the process drains; rows decide which replica does. Settles after the last attempt. */
export async function sendDeliveries(context: SenderContext, settings: SenderSettings): Promise<void> {
  const { database, draining } = context;
  const { perHost, perUser, timeoutMs } = settings;
  const egress = createEgress(settings.policy);
  const claim = async ({ slots }: ClaimRequest<ClaimedDelivery>): Promise<Claim<ClaimedDelivery>> => {
    const dueMs = await findNextDueMs(database.db);
    // Without a slot only an attempt that ends makes one, and wakes.
    if (dueMs === undefined || slots === 0) return { jobs: [], pauseMs: MAX_PAUSE_MS };
    if (dueMs > 0) return { jobs: [], pauseMs: pauseUntil(MAX_PAUSE_MS, dueMs) };
    const jobs = await database.transaction(async (tx) => {
      const found = await claimDeliveries(tx, { slots, perHost, perUser, leaseMs: timeoutMs + LEASE_SLACK_MS });
      // A process that has begun to stop meanwhile rolls back: another one claims them.
      draining.throwIfAborted();
      return found;
    });
    return { jobs, pauseMs: jobs.length > 0 ? 0 : pauseUntil(MAX_PAUSE_MS, dueMs) };
  };
  await runLeasedQueue<ClaimedDelivery>(context, {
    name: 'webhook deliveries',
    topic: WEBHOOKS_TOPIC,
    maxJobs: settings.maxSending,
    claim,
    run: (claimed) => deliver(context, egress, claimed, timeoutMs),
    losses: {
      count: ({ delivery }) => delivery.losses,
      giveUp: async ({ delivery, now }, error) => {
        const { attempt } = delivery;
        const answers = withAnswer(delivery, { at: now.toISOString(), attempt, error, durationMs: 0 });
        await endDelivery(database.db, delivery, 'failed', answers);
        context.metrics?.delivered('failed');
      },
      takeBack: ({ delivery }) => takeBackDeliveryLoss(database.db, delivery),
    },
    toLogFields: ({ delivery }) => ({ deliveryId: delivery.id }),
    deleteOld: () => deleteOldDeliveries(database.db, settings.retentionDays, settings.retentionCount, CLEANING_BATCH),
  });
  await egress.close();
}

/** Makes one attempt and stores its outcome. */
async function deliver(
  { database, stopping, metrics }: SenderContext,
  egress: Egress,
  claimed: ClaimedDelivery,
  timeoutMs: number,
): Promise<void> {
  const { delivery, webhook } = claimed;
  const answer = await sendOnce(egress, claimed, timeoutMs, stopping);
  const answers = withAnswer(delivery, answer);
  const { status = 0 } = answer;
  const isSilent = status === 0;
  if (isSilent !== webhook.isSilent && !stopping.aborted) await setSilent(database.db, webhook, isSilent);
  const isDelivered = status >= 200 && status < 300;
  if (isDelivered || status === GONE) {
    const outcome = isDelivered ? 'delivered' : 'failed';
    await endDelivery(database.db, delivery, outcome, answers);
    metrics?.delivered(outcome);
  } else {
    const pauseMs = stopping.aborted ? 0 : retryPauseMs(delivery.attempt);
    const outcome = await postponeDelivery(database.db, delivery, pauseMs, answers);
    metrics?.delivered(outcome);
  }
}
