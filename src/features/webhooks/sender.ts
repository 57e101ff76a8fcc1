import type { Metrics } from '../../platform/metrics.ts';
import { type JobContext, type JobEnd, runJobs } from '../../platform/jobs/run-jobs.ts';
import { createEgress, type Egress, type EgressPolicy } from '../../platform/net/egress.ts';
import { retryPauseMs, withAnswer } from './delivery.ts';
import {
  type ClaimedDelivery,
  type DeliveryAnswer,
  endDelivery,
  postponeDelivery,
  toClaimedDelivery,
  toJobLimits,
  WEBHOOKS_TOPIC,
} from '../../invocations/webhooks/delivery-store.ts';
import { DELIVERY_JOB, setSilent } from '../../invocations/webhooks/webhook-store.ts';
import { Webhook } from 'standardwebhooks';
import { AgentError, causes } from '../../core/errors.ts';

/** Maximum milliseconds between polls of deliveries: notifications may be lost, as behind a pooler without LISTEN. */
const MAX_PAUSE_MS = 60_000;
/** Milliseconds that the lease adds for the database work before and after an attempt. */
const LEASE_SLACK_MS = 10_000;
/** HTTP status with which a receiver refuses all further deliveries, by the specification Standard Webhooks. */
const GONE = 410;

interface SenderSettings {
  policy: EgressPolicy;
  maxSending: number;
  /** Maximum number of concurrent deliveries per host and per user, over all processes. */
  perHost: number;
  perUser: number;
  timeoutMs: number;
}

export interface SenderContext extends JobContext {
  /** Aborted when the process must end: deliveries in progress are left to other processes. */
  stopping: AbortSignal;
  metrics?: Metrics | undefined;
}

/** Sends deliveries until the process drains. @returns a promise that settles after the last attempt */
export async function sendDeliveries(context: SenderContext, settings: SenderSettings): Promise<void> {
  const { database } = context;
  const { timeoutMs } = settings;
  const egress = createEgress(settings.policy);
  await runJobs<ClaimedDelivery>(context, {
    kind: DELIVERY_JOB,
    name: 'webhook deliveries',
    topic: WEBHOOKS_TOPIC,
    maxJobs: settings.maxSending,
    leaseMs: timeoutMs + LEASE_SLACK_MS,
    limits: toJobLimits(settings),
    maxPauseMs: MAX_PAUSE_MS,
    work: 'delivery_work',
    toWork: toClaimedDelivery,
    run: (claimed) => deliver(context, egress, claimed, timeoutMs),
    giveUp: async (claimed, error) => {
      const { delivery, job, now } = claimed;
      const answers = withAnswer(delivery, { at: now.toISOString(), attempt: job.attempt, error, durationMs: 0 });
      await endDelivery(database.db, claimed, 'failed', answers);
      context.metrics?.count('agent_runtime_webhook_attempts_total', { outcome: 'failed' });
      return 'over';
    },
  });
  await egress.close();
}

async function deliver(
  { database, stopping, metrics }: SenderContext,
  egress: Egress,
  claimed: ClaimedDelivery,
  timeoutMs: number,
): Promise<JobEnd> {
  const { delivery, job, webhook } = claimed;
  const answer = await sendOnce(egress, claimed, timeoutMs, stopping);
  const answers = withAnswer(delivery, answer);
  const { status = 0 } = answer;
  const isSilent = status === 0;
  if (isSilent !== webhook.isSilent && !stopping.aborted)
    await database.transaction((tx) => setSilent(tx, webhook, isSilent));
  const isDelivered = status >= 200 && status < 300;
  if (isDelivered || status === GONE) {
    const outcome = isDelivered ? 'delivered' : 'failed';
    await endDelivery(database.db, claimed, outcome, answers);
    metrics?.count('agent_runtime_webhook_attempts_total', { outcome });
    return 'over';
  }
  const pauseMs = stopping.aborted ? 0 : retryPauseMs(job.attempt);
  const outcome = await postponeDelivery(database.db, claimed, pauseMs, answers);
  metrics?.count('agent_runtime_webhook_attempts_total', { outcome });
  return outcome === 'postponed' ? 'waits' : 'over';
}

/** Maximum characters of an HTTP response that are stored. At most four times as many bytes are read. */
const MAX_EXCERPT = 1_024;

/** Makes one attempt to deliver. Never throws: `error` tells why there was no HTTP response, without the IP address. */
async function sendOnce(
  egress: Egress,
  claimed: ClaimedDelivery,
  timeoutMs: number,
  stopping: AbortSignal,
): Promise<DeliveryAnswer> {
  const { job, webhook, now } = claimed;
  const startedAt = performance.now();
  const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), stopping]);
  const outcome = await post(egress, claimed, webhook.url, signal).catch((error: unknown) => ({
    error: signal.aborted && !stopping.aborted ? `No answer within ${timeoutMs} ms.` : toReason(error),
  }));
  const durationMs = Math.round(performance.now() - startedAt);
  return { at: now.toISOString(), attempt: job.attempt, ...outcome, durationMs };
}

async function post(egress: Egress, claimed: ClaimedDelivery, url: string, signal: AbortSignal) {
  const response = await egress.fetch(url, {
    method: 'POST',
    redirect: 'manual',
    headers: signedHeaders(claimed),
    body: claimed.delivery.payload,
    signal,
  });
  // The HTTP status counts even if the body breaks off.
  const body = await readBeginning(response).catch(() => '');
  return { status: response.status, ...(body === '' ? {} : { body }) };
}

async function readBeginning({ body }: Response): Promise<string> {
  if (!body) return '';
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of body) {
    text += decoder.decode(chunk as Uint8Array, { stream: true });
    if (text.length >= MAX_EXCERPT) break;
  }
  return text.slice(0, MAX_EXCERPT);
}

/** Returns the reason why there was no HTTP response: the message of the egress policy, or the error code. */
function toReason(error: unknown): string {
  const causeList = [...causes(error)];
  const denied = causeList.find((cause) => cause instanceof AgentError);
  if (denied instanceof AgentError) return denied.message;
  const code = causeList.map((cause) => cause.code).find((each) => typeof each === 'string');
  return `The request failed: ${typeof code === 'string' ? code : 'the connection broke'}.`;
}

/** Headers of Standard Webhooks and of the webhook's owner. A replaced secret also signs until it expires. */
function signedHeaders({ delivery, webhook, now }: ClaimedDelivery): Record<string, string> {
  const { secret, oldSecret, oldSecretExpireTime } = webhook;
  const isOldValid = oldSecret !== null && oldSecretExpireTime !== null && oldSecretExpireTime > now;
  const secrets = isOldValid ? [secret, oldSecret] : [secret];
  const body = delivery.payload;
  return {
    'content-type': 'application/json',
    'user-agent': 'agent-runtime',
    'webhook-id': delivery.id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': secrets.map((each) => new Webhook(each).sign(delivery.id, now, body)).join(' '),
    ...webhook.push?.headers,
  };
}
