import type { AgentOverrides } from '../agent/definition/agent.ts';
import type { AgentVersion } from '../conversation/apps/agent-version.ts';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import { listGivenCalls } from '../conversation/sessions/append-store.ts';
import { checkEventSize } from '../conversation/sessions/session-context.ts';
import { NotFoundError } from '../core/errors.ts';
import type { InvocationContext, InvocationRequest } from './context.ts';
import { claimedUserEvents, deferredUserEvents } from './invocation.ts';
import type { Lease } from './lock-store.ts';
import type { ClaimRequest, LeaseTimes } from './session-lock.ts';
import { toClaimedRequest } from './stored-request.ts';

/** How long the start of an invocation outlasts an absence of the database: the caller may still retry. */
export const CLAIM_PATIENCE_MS = 1_000;

/** Returns the agent that answers a request. @throws {NotFoundError} where this process lacks the application. */
export function findAgent(
  { agents }: Pick<InvocationContext, 'agents'>,
  { key }: Pick<InvocationRequest, 'key'>,
): HostedAgent {
  const agent = agents.get(key.appName);
  if (!agent) throw new NotFoundError(`App not found: ${key.appName}`);
  return agent;
}

/** Returns what an invocation names as its version: marked where its request changed the agent. */
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

/** Returns a lease with a fresh token, which is not granted yet. */
export const newLease = (
  {
    agents,
    newId,
    leaseTimes,
    secrets,
  }: Pick<InvocationContext, 'agents' | 'newId' | 'secrets'> & { leaseTimes: Pick<LeaseTimes, 'durationMs'> },
  request: InvocationRequest,
): Lease => ({
  key: request.key,
  invocationId: request.invocationId,
  token: newId(),
  durationMs: leaseTimes.durationMs,
  version: toVersionName(agents.get(request.key.appName)?.version, request.overrides),
  request: request.idempotency,
  webhookUrl: request.webhookUrl,
  // One that goes on keeps what its row has, and no budget counts it again, or refuses it in the middle.
  ...(request.goesOn
    ? { isFree: true }
    : {
        kept: toClaimedRequest(request, secrets),
        answers: listGivenCalls([request], request.resumes ? request.invocationId : undefined),
      }),
});

/**
 * Returns the claim of a request: the user event is stored with it, unless the request may still be refused.
 * @throws {TooLargeError} for a user event of more bytes than allowed
 */
export function toClaim(
  context: Pick<InvocationContext, 'busyPolicy' | 'leaseTimes' | 'limits' | 'newId'>,
  request: InvocationRequest,
  lease: Lease,
  signal: AbortSignal,
): ClaimRequest {
  const { leaseTimes: times, limits, newId } = context;
  const busyPolicy = request.busyPolicy ?? context.busyPolicy;
  lease.endsSleeps = busyPolicy === 'interrupt' && !request.resumes;
  const events = claimedUserEvents(request, newId);
  for (const event of [...events, ...deferredUserEvents(request, newId)]) checkEventSize(event, limits.eventBytes);
  return {
    lease,
    events,
    createSession: request.createSession,
    busyPolicy,
    resumes: request.resumes === true,
    times,
    queueDepth: limits.queueDepth,
    signal,
    onQueued: request.onKnown,
  };
}
