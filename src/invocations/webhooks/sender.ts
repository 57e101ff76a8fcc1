import { isPassingFailure } from '../../core/errors.ts';
import type { Log } from '../../platform/log.ts';
import type { Metrics } from '../../platform/metrics.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { hourly, lookWhenWoken } from '../../platform/work/look-when-woken.ts';
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
} from './delivery-store.ts';
import { sendOnce } from './send.ts';
import { WEBHOOKS_TOPIC } from './topics.ts';

/** Longest sleep: what notifications did not bring (a pooler that does not pass LISTEN) is found then. */
const LONGEST_SLEEP_MS = 60_000;
/** Pause while what is due waits for a place at its host or its user, which another process may make. */
const BLOCKED_PAUSE_MS = 1_000;
/** What the database may take at both ends of an attempt before it is taken for dead. */
const LEASE_SLACK_MS = 10_000;
const CLEANING_BATCH = 10_000;
/** A receiver that says so wants no further attempt (Standard Webhooks). */
const GONE = 410;

/** What operators say about all webhooks together. */
export interface SenderSettings {
  policy: EgressPolicy;
  /** Deliveries of this process at once. */
  maxSending: number;
  /** To one host, and of one user, at once, over all processes. */
  perHost: number;
  perUser: number;
  /** Of one attempt. */
  timeoutMs: number;
  /** How long ended deliveries are kept, and how many of each webhook. */
  retentionDays: number;
  retentionCount: number;
}

/** What sending needs of the process. */
export interface SenderContext {
  database: DatabasePool;
  notifications: Notifications;
  log: Log;
  /** Aborted when the process begins to stop: nothing new is sent. */
  draining: AbortSignal;
  /** Aborted when it has to end: what is being sent is left to others. */
  stopping: AbortSignal;
  metrics?: Metrics | undefined;
}

/** The part of a process that sends deliveries. */
export interface Sender {
  /** Settles when it has stopped: it sends nothing new once the process drains, and its attempts have ended. */
  stopped: Promise<void>;
}

/**
 * Starts a sender. It sleeps until the next delivery is due, by the clock of the database, and is woken by the outbox;
 * every replica has one, and which of them makes an attempt is decided by the row of the delivery.
 */
export function startSender(context: SenderContext, settings: SenderSettings): Sender {
  const egress = createEgress(settings.policy);
  const active = new Set<Promise<void>>();
  const work = createWork(context, settings, egress, active);
  const send = async (): Promise<void> => {
    await lookWhenWoken(context, WEBHOOKS_TOPIC, 'the sender of webhooks failed', work);
    await Promise.all(active);
    await egress.close();
  };
  return { stopped: send() };
}

/** One look at what is due, and the beginning of it; says how many milliseconds the next look may wait. */
function createWork(
  context: SenderContext,
  settings: SenderSettings,
  egress: Egress,
  active: Set<Promise<void>>,
): (wake: () => void) => Promise<number> {
  const { database, draining } = context;
  const { perHost, perUser, timeoutMs } = settings;
  const clean = hourly(() =>
    deleteOldDeliveries(database.db, settings.retentionDays, settings.retentionCount, CLEANING_BATCH),
  );
  return async (wake) => {
    const dueMs = await findNextDueMs(database.db);
    const slots = settings.maxSending - active.size;
    if (dueMs !== undefined && dueMs <= 0 && slots > 0) {
      const limits = { slots, perHost, perUser, leaseMs: timeoutMs + LEASE_SLACK_MS };
      const claimed = await database.transaction(async (tx) => {
        const found = await claimDeliveries(tx, limits);
        // A process that has begun to stop meanwhile rolls back: another one takes them up.
        draining.throwIfAborted();
        return found;
      });
      for (const each of claimed) {
        const sending = deliver(context, egress, each, timeoutMs).finally(() => {
          active.delete(sending);
          wake();
        });
        active.add(sending);
      }
      if (claimed.length > 0) return 0;
    }
    await clean();
    // Without a place only an attempt that ends makes one, and wakes.
    if (dueMs === undefined || slots <= 0) return LONGEST_SLEEP_MS;
    return dueMs > 0 ? Math.min(dueMs, LONGEST_SLEEP_MS) : BLOCKED_PAUSE_MS;
  };
}

/** Makes one attempt and stores what came of it. Never throws: a lease that runs out leaves it to others. */
async function deliver(
  { database, stopping, log, metrics }: SenderContext,
  egress: Egress,
  claimed: ClaimedDelivery,
  timeoutMs: number,
): Promise<void> {
  const { delivery } = claimed;
  try {
    const answer = await sendOnce(egress, claimed, timeoutMs, stopping);
    const answers = withAnswer(delivery, answer);
    const { status = 0 } = answer;
    if (status >= 200 && status < 300) {
      await endDelivery(database.db, delivery, 'delivered', answers);
      metrics?.delivered('delivered');
    } else if (status === GONE) {
      await endDelivery(database.db, delivery, 'failed', answers);
      metrics?.delivered('failed');
    } else {
      const pauseMs = stopping.aborted ? 0 : retryPauseMs(delivery.attempt);
      const outcome = await postponeDelivery(database.db, delivery, pauseMs, answers);
      metrics?.delivered(outcome);
    }
  } catch (error) {
    if (!isPassingFailure(error)) log.error({ err: error, deliveryId: delivery.id }, 'a delivery failed');
  }
}
