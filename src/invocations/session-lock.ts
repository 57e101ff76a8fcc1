import { sessionNotFound } from '../core/session.ts';
import { freeTopic, QUEUE_TOPIC, stopTopic } from '../core/names.ts';
import { currentContext } from '../platform/context.ts';
import type { Database } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import {
  AgentError,
  BusyError,
  NotFoundError,
  SessionExistsError,
  StoppedError,
  UnavailableError,
} from '../core/errors.ts';
import { type BusyPolicy, isActive, stoppedMessage } from './invocation.ts';
import { refuseForgottenKey } from '../conversation/idempotency/idempotency.ts';
import { findByIdempotencyKey, findPausedTrace, requestStop } from './invocation-store.ts';
import type { NewEvent } from '../core/event.ts';
import { lockSession } from '../conversation/sessions/session-row.ts';
import {
  claimQueued,
  claimSession,
  enqueueInvocation,
  type Lease,
  type LeaseTimes,
  type LockHolder,
  repeated,
} from './lock-store.ts';
import { dequeueInvocation, findLeasedRow } from './queue-store.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { persist } from './persist.ts';
import { takeOver, type TakeOverContext } from './take-over.ts';
import type { WaitQueue } from './wait-queue.ts';
import { refuseAnswered } from './waits/task-store.ts';
import type { AgentOverrides } from '../agent/definition/agent.ts';
import type { AgentVersion, HostedAgent } from '../conversation/apps/hosted-agent.ts';
import { listCallAnswers } from '../conversation/sessions/append-store.ts';
import { checkEventSize } from '../conversation/sessions/session-context.ts';
import type { JsonObject } from '../core/content.ts';
import type { InvocationContext } from './context.ts';
import { type InvocationRequest, isUncertain, maySteer, toUserEvents, toClaimedRequest } from './request.ts';

/** Maximum milliseconds between polls of a busy session: the database's notifications may be lost. */
const POLL_MS = 1_000;

export interface SessionClaim {
  lease: Lease;
  /** The first events of the invocation, which are stored together with the claim. */
  events: NewEvent[];
  /** True: create the session if it is absent. `new`: create the session, and fail if it exists. */
  createSession: boolean | 'new';
  busyPolicy: BusyPolicy;
  /** A request to resume an ended invocation never queues, because the invocation's row already records an end. */
  resumes: boolean;
  times: LeaseTimes;
  /** Maximum number of requests that wait for one session. */
  queueDepth: number;
  /** Aborted with an `AgentError`: `cancelled` when the client disconnects, `interrupted` when the process stops. */
  signal: AbortSignal;
  /** Of a background invocation, or a message that steers: with a busy session it waits in the database, not here. */
  body?: unknown;
  onQueued?: (() => void) | undefined;
}

export interface LockContext extends TakeOverContext {
  notifications: Notifications;
  waitQueue: WaitQueue;
}

/**
 * Takes a session over if its holder's process is dead. If the holder is alive, `busyPolicy` decides: wait, first come,
 * first served (`enqueue`); fail (`reject`); stop the holder and wait (`interrupt`); or leave the message for the holder
 * in the queue (`steer`).
 * @returns false for a background invocation or a message that is queued now, or that another process has begun
 * @throws {NotFoundError} if the session is absent and may not be created
 * @throws {SessionExistsError} if the session must be new but exists
 * @throws {BusyError} if the wait timed out, the queue is full or the policy is `reject`
 * @throws {RepeatedInvocationError} if the idempotency key was used before
 * @throws {StoppedError} if the request was stopped while it waited
 * @throws {UnavailableError} if the wait could not continue
 */
export async function acquireSession(context: LockContext, request: SessionClaim): Promise<boolean> {
  const { lease, events, createSession } = request;
  const claim = () => claimSession(context.database.db, lease, events, createSession);
  for (;;) {
    if (await claim()) return true;
    if (createSession === 'new') throw new SessionExistsError(lease.key.sessionId);
    if (await waitBehindOthers(context, request)) return true;
    const holder = await takeOver(context, lease.key);
    if (isMine(holder, lease)) return true;
    if (holder.kind === 'live') return waitForTurn(context, request, holder.invocationId);
    // The session is free: a dead holder has just ended, or it is reserved for the first queued invocation.
    if (holder.kind === 'free') return (await claim()) || waitForTurn(context, request, undefined);
    if (!createSession) throw new NotFoundError(sessionNotFound(lease.key.sessionId));
    await refuseForgotten(context.database.db, lease);
  }
}

/** True if an earlier claim of this lease succeeded although its result was lost: the session has the lease's token. */
const isMine = (holder: LockHolder, { token }: Lease) => holder.kind === 'live' && holder.token === token;

async function waitForTurn(
  context: LockContext,
  request: SessionClaim,
  runningId: string | undefined,
): Promise<boolean> {
  const { lease, busyPolicy, body } = request;
  const { db } = context.database;
  await refuseWait(db, request);
  const place = await enqueueInvocation(db, lease, request.queueDepth, body);
  if (place.kind === 'absent') throw new NotFoundError(sessionNotFound(lease.key.sessionId));
  if (place.kind === 'full') throw queueFull(request);
  if (place.kind === 'lost' && body === undefined) {
    await endWait(db, lease, placeLost(lease));
    return true;
  }
  request.onQueued?.();
  if (busyPolicy === 'interrupt' && runningId !== undefined) {
    await requestStop(db, lease.key, runningId, 'interrupted');
    context.notifications.publish(stopTopic(runningId));
  }
  if (place.kind !== 'queued' || body !== undefined) return false;
  await waitInQueue(context, request, place.createTime);
  return true;
}

/**
 * Queues behind this process's requests without reading the session's holder: that locks the session row, which the
 * holder needs to finish, so only the first in the queue does it from time to time.
 * @returns false if the caller must read the holder, for instance because an earlier claim may have succeeded without
 *   confirmation
 */
async function waitBehindOthers(context: LockContext, request: SessionClaim): Promise<boolean> {
  const { lease, busyPolicy, resumes, body, queueDepth } = request;
  const isPlain = busyPolicy === 'enqueue' && !resumes && body === undefined;
  if (!isPlain || !context.waitQueue.has(freeTopic(lease.key))) return false;
  await refuseWait(context.database.db, request);
  const place = await enqueueInvocation(context.database.db, lease, queueDepth);
  if (place.kind !== 'queued') return false;
  request.onQueued?.();
  await waitInQueue(context, request, place.createTime);
  return true;
}

/** Waits until a request is first in the queue and holds the session. If that fails, ends the wait. */
async function waitInQueue(context: LockContext, request: SessionClaim, createTime: string): Promise<void> {
  const { lease } = request;
  const startedAt = performance.now();
  const recordWait = (outcome: 'claimed' | 'refused') =>
    context.metrics?.record('agent_runtime_queue_wait_seconds', (performance.now() - startedAt) / 1000, { outcome });
  try {
    await takeTurn(context, request, createTime);
    recordWait('claimed');
  } catch (error) {
    recordWait('refused');
    await endWait(context.database.db, lease, error).finally(() => {
      for (const topic of [freeTopic(lease.key), QUEUE_TOPIC]) context.notifications.publish(topic);
    });
  }
}

/**
 * Ends a wait in vain. One statement deletes the request's row only if it still waits, which settles the races with the
 * claim, with a stop and with the sweep. Returns if the request has the session after all, because an earlier claim
 * succeeded although its result was lost.
 * @throws `reason`, unless the row or its session tells more
 */
async function endWait(db: Database, lease: Lease, reason: unknown): Promise<void> {
  // If the database is not available, the request still leaves the queue, because its lease expires.
  if (await dequeueInvocation(db, lease).catch(() => true)) throw reason;
  const row = await findLeasedRow(db, lease);
  if (row?.isMine && row.status === 'running') return;
  if (row?.stopAs) throw new StoppedError(row.stopAs, stoppedMessage(row.stopAs));
  if (!row && !(await lockSession(db, lease.key))) throw new NotFoundError(sessionNotFound(lease.key.sessionId));
  throw reason;
}

/** Refuses the retry of a request whose session was deleted, because the retry would create the session again. */
const refuseForgotten = async (db: Database, { key, request }: Lease) =>
  request && refuseForgottenKey(db, key, request.idempotencyKey);

/** Throws an error if the request is a retry, responds to no open call, or may not wait for a busy session. */
async function refuseWait(db: Database, { lease, busyPolicy, resumes }: SessionClaim): Promise<void> {
  const earlier = lease.request && (await findByIdempotencyKey(db, lease.key, lease.request.idempotencyKey));
  // A resumed invocation already has a row. That row has this idempotency key only if the request is a retry.
  if (earlier && (resumes || earlier.invocationId !== lease.invocationId)) {
    throw repeated();
  }
  await refuseForgotten(db, lease);
  const answeredIds = lease.answers?.flatMap(({ id }) => id ?? []) ?? [];
  if (answeredIds.length > 0) await refuseAnswered(db, lease.key, answeredIds);
  if (busyPolicy === 'reject' || resumes) {
    throw new BusyError(`Session ${lease.key.sessionId} runs another invocation.`, 1, 'rejected');
  }
}

const queueFull = ({ lease, queueDepth }: SessionClaim) =>
  new BusyError(`Session ${lease.key.sessionId} has ${queueDepth} requests waiting. Try again later.`, 1);

const placeLost = ({ key }: Lease) =>
  new UnavailableError(`The request lost its place in the queue of session ${key.sessionId}. Try again.`);

/**
 * Waits until the request is the first in the queue and has claimed the session. Only the first waiting request of this
 * process polls the session. That request checks once per lease renewal whether the holder's process is dead.
 */
async function takeTurn(context: LockContext, request: SessionClaim, createTime: string): Promise<void> {
  const { lease, events, times, signal } = request;
  const { ended } = currentContext();
  const lost = new AbortController();
  const lose = () => lost.abort();
  const stops = AbortSignal.any([signal, lost.signal, ...(ended ? [ended] : [])]);
  const { database, notifications, waitQueue } = context;
  const startedAt = performance.now();
  const deadline = startedAt + times.waitMs;
  let takeOverAt = startedAt + times.renewalMs;
  const topic = freeTopic(lease.key);
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const place = waitQueue.enqueue(topic, { lease, createTime, moveUp: wake, lose });
  let holds = false;
  let mayBeStopped = false;
  const subscriptions = [
    notifications.subscribe(topic, () => place.isFirst() && wake()),
    // A stop ends a row that waits at once. The topic wakes too if notifications may have been lost, without a stop.
    notifications.subscribe(stopTopic(lease.invocationId), () => {
      mayBeStopped = true;
      wake();
    }),
  ];
  try {
    for (;;) {
      wakeup.reset();
      // No invocation may begin on behalf of an expired credential.
      ended?.throwIfAborted();
      if (mayBeStopped) {
        mayBeStopped = false;
        if (!(await stillWaits(database.db, lease))) throw placeLost(lease);
      }
      if (place.isFirst()) {
        holds = await claimQueued(database.db, lease, events);
        if (!holds && performance.now() >= takeOverAt) {
          takeOverAt = performance.now() + times.renewalMs;
          holds = await endDeadHolder(context, lease);
        }
        if (holds) return;
      }
      if (lost.signal.aborted) throw placeLost(lease);
      if (signal.aborted) throw waitEnded(signal.reason);
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) throw waitedInVain(lease);
      await wakeup.wait(Math.min(POLL_MS, leftMs), stops);
    }
  } finally {
    place.leave(holds);
    for (const unsubscribe of subscriptions) unsubscribe();
  }
}

async function stillWaits(db: Database, lease: Lease): Promise<boolean> {
  const row = await findLeasedRow(db, lease);
  return row?.isMine === true && row.status === 'queued' && row.stopAs === null;
}

/**
 * Ends a holder whose process is dead, and wakes the waiting requests. @returns true if this request has the session
 */
async function endDeadHolder(context: LockContext, lease: Lease): Promise<boolean> {
  const holder = await takeOver(context, lease.key);
  if (holder.kind === 'free') context.notifications.publish(freeTopic(lease.key));
  return isMine(holder, lease);
}

const waitedInVain = ({ key }: Lease) =>
  new BusyError(`Session ${key.sessionId} is busy with another invocation. Try again later.`, 1);

/** {@link acquireSession}, also while the database is away for a short time. */
export function acquireOnce(context: LockContext, claim: SessionClaim): Promise<boolean> {
  let isRetry = false;
  return persist(async () => {
    // A try whose result was lost may have queued the row of a request with a body. Any process may begin that, and a
    // row that has ended since, as a message that was taken, must not begin again.
    const row = isRetry && claim.body !== undefined ? await findLeasedRow(context.database.db, claim.lease) : undefined;
    isRetry = true;
    return row && !(row.isMine && isActive(row)) ? false : acquireSession(context, claim);
  }, CLAIM_PATIENCE_MS);
}

/** True if the request leaves its message to the invocation that runs in its session, if one does. */
export const steers = (context: Pick<InvocationContext, 'busyPolicy'>, request: InvocationRequest): boolean =>
  (request.busyPolicy ?? context.busyPolicy) === 'steer' && maySteer(request);

export async function claimTurn(context: TakeOverContext, lease: Lease, events: NewEvent[]): Promise<boolean> {
  if (await claimQueued(context.database.db, lease, events)) return true;
  return isMine(await takeOver(context, lease.key), lease);
}

/** Nothing was stored in an aborted wait, so a client may retry at another replica during shutdown. */
const waitEnded = (reason: unknown): Error =>
  reason instanceof AgentError && reason.code === 'cancelled'
    ? new StoppedError('cancelled', reason.message)
    : new UnavailableError('The service is stopping. Try again.');

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
    tracing,
  }: Pick<InvocationContext, 'agents' | 'newId' | 'secrets' | 'tracing'> & {
    leaseTimes: Pick<LeaseTimes, 'durationMs'>;
  },
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
  trace: tracing?.plan(),
  // A resumed invocation keeps its stored request and is not charged again.
  ...(request.recovery
    ? { isFree: true }
    : {
        storedRequest: toClaimedRequest(request, secrets, queued),
        answers: listCallAnswers([request], request.resumes ? request.invocationId : undefined),
      }),
});

/** Links the run of a request that answers a paused invocation to the run before, if traces are kept. */
export async function withEarlier(
  { database, tracing }: Pick<InvocationContext, 'database' | 'tracing'>,
  request: InvocationRequest,
): Promise<InvocationRequest> {
  if (!tracing || request.resumes !== true) return request;
  const trace = await findPausedTrace(database.reads, request.key, request.invocationId);
  return trace === undefined ? request : { ...request, earlier: { trace, reason: 'answer' } };
}

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
  const policy = request.busyPolicy ?? context.busyPolicy;
  const busyPolicy = policy === 'steer' && !maySteer(request) ? 'enqueue' : policy;
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
