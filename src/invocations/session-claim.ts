import type { AgentOverrides } from '../agent/definition/agent.ts';
import type { AgentVersion } from '../conversation/apps/agent-version.ts';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import { listCallAnswers } from '../conversation/sessions/append-store.ts';
import { checkEventSize } from '../conversation/sessions/session-context.ts';
import type { JsonObject } from '../core/content.ts';
import { NotFoundError } from '../core/errors.ts';
import type { InvocationContext } from './context.ts';
import { type InvocationRequest, isUncertain, toUserEvents, toClaimedRequest } from './request.ts';
import type { Lease, LeaseTimes } from './lock-store.ts';
import type { SessionClaim } from './session-lock.ts';

/** Milliseconds of retrying a start while the database is not available: short, as the client can retry the request. */
export const CLAIM_PATIENCE_MS = 1_000;

/** Returns the agent of an application. @throws {NotFoundError} if this process does not serve it */
export function findAgent(
  { agents }: Pick<InvocationContext, 'agents'>,
  { key }: Pick<InvocationRequest, 'key'>,
): HostedAgent {
  const agent = agents.get(key.appName);
  if (!agent) throw new NotFoundError(`App not found: ${key.appName}`);
  return agent;
}

/** Returns the version of the agent for the invocation's row, with a suffix if the request overrode the agent. */
function toVersionName(
  version: AgentVersion | undefined,
  {
    llmCallsAtMost: _calls,
    tokensAtMost: _tokens,
    timeAtMostMs: _time,
    unsupported: _refused,
    ...changes
  }: AgentOverrides,
): string | undefined {
  if (!version) return undefined;
  const { digest } = version;
  return Object.values(changes).some((change) => change !== undefined) ? `${digest}+overrides` : digest;
}

/** Returns a lease with a new token. The session is not claimed yet. @param queued - the request as it is queued */
export const newLease = (
  {
    agents,
    newId,
    leaseTimes,
    secrets,
  }: Pick<InvocationContext, 'agents' | 'newId' | 'secrets'> & { leaseTimes: Pick<LeaseTimes, 'durationMs'> },
  request: InvocationRequest,
  queued?: JsonObject,
): Lease => ({
  key: request.key,
  invocationId: request.invocationId,
  token: newId(),
  durationMs: leaseTimes.durationMs,
  version: toVersionName(agents.get(request.key.appName)?.version, request.overrides),
  request: request.idempotency,
  webhookUrl: request.webhookUrl,
  job: request.job,
  // A resumed invocation keeps its stored request and is not charged again.
  ...(request.recovery
    ? { isFree: true }
    : {
        storedRequest: toClaimedRequest(request, secrets, queued),
        answers: listCallAnswers([request], request.resumes ? request.invocationId : undefined),
      }),
});

/**
 * A request's claim has the user event, unless the request may still turn out invalid.
 * @throws {TooLargeError} if the user event exceeds the size limit
 */
export function toClaim(
  context: Pick<InvocationContext, 'busyPolicy' | 'leaseTimes' | 'limits' | 'newId'>,
  request: InvocationRequest,
  lease: Lease,
  signal: AbortSignal,
): SessionClaim {
  const { leaseTimes: times, limits, newId } = context;
  const busyPolicy = request.busyPolicy ?? context.busyPolicy;
  lease.endsSleeps = busyPolicy === 'interrupt' && !request.resumes;
  const prompt = toUserEvents(request, newId);
  for (const event of prompt) checkEventSize(event, limits.eventBytes);
  return {
    lease,
    events: isUncertain(request) ? [] : prompt,
    createSession: request.createSession,
    busyPolicy,
    resumes: request.resumes === true,
    times,
    queueDepth: limits.queueDepth,
    signal,
    onQueued: request.onAccepted,
  };
}
