import { Webhook } from 'standardwebhooks';
import { AgentError, causes } from '../../core/errors.ts';
import type { Egress } from '../../platform/net/egress.ts';
import { getBody } from './delivery.ts';
import type { ClaimedDelivery } from './delivery-store.ts';
import type { DeliveryAnswer } from './webhook.ts';

/** Maximum of characters that are kept of the body of an answer; at most four times as many bytes are read. */
const MAX_EXCERPT = 1_024;

/** Sends a delivery once and never throws: `error` says why there is no answer, without the resolved address. */
export async function sendOnce(
  egress: Egress,
  claimed: ClaimedDelivery,
  timeoutMs: number,
  stopping: AbortSignal,
): Promise<DeliveryAnswer> {
  const { delivery, webhook, now } = claimed;
  const startedAt = performance.now();
  const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), stopping]);
  const outcome = await attempt(egress, claimed, webhook.url, signal).catch((error: unknown) => ({
    error: signal.aborted && !stopping.aborted ? `No answer within ${timeoutMs} ms.` : toReason(error),
  }));
  const durationMs = Math.round(performance.now() - startedAt);
  return { at: now.toISOString(), attempt: delivery.attempt, ...outcome, durationMs };
}

async function attempt(egress: Egress, claimed: ClaimedDelivery, url: string, signal: AbortSignal) {
  const response = await egress.fetch(url, {
    method: 'POST',
    redirect: 'manual',
    headers: signedHeaders(claimed),
    body: getBody(claimed.delivery),
    signal,
  });
  // The status counts, also where the body breaks off.
  const body = await readBeginning(response).catch(() => '');
  return { status: response.status, ...(body === '' ? {} : { body }) };
}

/** Reads the first characters of a body and no more. */
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

/** Returns why a request got no answer: the policy's sentence, or the code of the failure. */
function toReason(error: unknown): string {
  const causeList = [...causes(error)];
  const denied = causeList.find((cause) => cause instanceof AgentError);
  if (denied instanceof AgentError) return denied.message;
  const code = causeList.map((cause) => cause.code).find((each) => typeof each === 'string');
  return `The request failed: ${typeof code === 'string' ? code : 'the connection broke'}.`;
}

/** Returns the headers of Standard Webhooks; a replaced secret signs too while it is valid. */
function signedHeaders({ delivery, webhook, now }: ClaimedDelivery): Record<string, string> {
  const { secret, oldSecret, oldSecretExpireTime } = webhook;
  const isOldValid = oldSecret !== null && oldSecretExpireTime !== null && oldSecretExpireTime > now;
  const secrets = isOldValid ? [secret, oldSecret] : [secret];
  const body = getBody(delivery);
  return {
    'content-type': 'application/json',
    'user-agent': 'agent-runtime',
    'webhook-id': delivery.id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': secrets.map((each) => new Webhook(each).sign(delivery.id, now, body)).join(' '),
  };
}
