import { sessionNotFound } from '../core/session.ts';
import { freeTopic, QUEUE_TOPIC, stopTopic } from '../core/names.ts';
import { currentContext } from '../platform/context.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeText } from '../platform/db/json-escape.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import {
  AgentError,
  BusyError,
  NotFoundError,
  RepeatedInvocationError,
  SessionExistsError,
  StoppedError,
  UnavailableError,
} from '../core/errors.ts';
import { type BusyPolicy, stoppedMessage } from './invocation.ts';
import { refuseForgottenKey } from '../conversation/idempotency/key-store.ts';
import { findByIdempotencyKey, requestStop } from './invocation-store.ts';
import type { NewEvent } from '../core/event.ts';
import { lockSession } from '../conversation/sessions/session-lease.ts';
import { claimQueued, claimSession, enqueueInvocation, type LockHolder, type Lease, renewLease } from './lock-store.ts';
import { dequeueInvocation, findWaiter } from './queue-store.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { takeOver, type TakeOverContext } from './take-over.ts';
import type { WaitQueue } from './wait-queue.ts';
import { refuseAnswered } from './waits/task-store.ts';

/** How long sessions are held and waited for, in milliseconds. */
export interface LeaseTimes {
  /** How long a lease lasts without a renewal: the longest time a killed process keeps its session. */
  durationMs: number;
  /** Time between renewals; at most a third of the duration, so that two may fail. */
  renewalMs: number;
  /** Longest wait for a busy session. */
  waitMs: number;
}

/** Longest pause between two polls of a busy session: notifications only save time, they may be lost. */
const POLL_MS = 1_000;

/** A request for a session. */
export interface ClaimRequest {
  lease: Lease;
  /** Events that open the invocation, stored with the claim. */
  events: NewEvent[];
  /** Create the session where it is absent; `new`: it has to be. */
  createSession: boolean | 'new';
  busyPolicy: BusyPolicy;
  /** True for an ended invocation that goes on: it never waits, since its row says how it ended. */
  resumes: boolean;
  times: LeaseTimes;
  /** Maximum of requests that wait for one session. */
  queueDepth: number;
  /** Aborted with an `AgentError` when the client has left (`cancelled`) or the process stops (`interrupted`). */
  signal: AbortSignal;
  /** Body of a start in the background: where the session is busy, it waits in the database and not in this process. */
  body?: unknown;
  /** Called when the request waits in the queue. */
  onQueued?: (() => void) | undefined;
}

/** The resources that acquiring sessions uses. */
export interface LockContext extends TakeOverContext {
  notifications: Notifications;
  waitQueue: WaitQueue;
}

/**
 * Acquires a session for one invocation. A dead holder is taken over. For a live one `busyPolicy` decides: the
 * request waits, first come, first served (`enqueue`), fails (`reject`), or stops the holder and waits (`interrupt`).
 * @returns false for a start in the background that waits now, or that another process has begun meanwhile.
 * @throws {NotFoundError} when the session is absent and not to be created. @throws {SessionExistsError} when it is not
 * new, and has to be. @throws {BusyError} when the wait was in vain, the queue is full or the policy rejects.
 * @throws {RepeatedInvocationError} when the request was made before. @throws {StoppedError} when it was stopped.
 * @throws {UnavailableError} when it could not go on waiting.
 */
export async function acquireSession(context: LockContext, request: ClaimRequest): Promise<boolean> {
  const { lease, events, createSession } = request;
  const claim = () => claimSession(context.database.db, lease, events, createSession);
  for (;;) {
    if (await claim()) return true;
    if (createSession === 'new') throw new SessionExistsError(lease.key.sessionId);
    if (await waitBehindOthers(context, request)) return true;
    const holder = await takeOver(context, lease.key);
    if (isMine(holder, lease)) return true;
    if (holder.kind === 'live') return waitForTurn(context, request, holder.invocationId);
    // Free: its dead holder was just ended, or it belongs to a request that waits already.
    if (holder.kind === 'free') return (await claim()) || waitForTurn(context, request, undefined);
    if (!createSession) throw new NotFoundError(sessionNotFound(lease.key.sessionId));
    await refuseForgotten(context.database.db, lease);
  }
}

/** A claim whose answer was lost did its work: the session is held with this very token. */
const isMine = (holder: LockHolder, { token }: Lease) => holder.kind === 'live' && holder.token === token;

async function waitForTurn(
  context: LockContext,
  request: ClaimRequest,
  runningId: string | undefined,
): Promise<boolean> {
  const { lease, busyPolicy, body } = request;
  const { db } = context.database;
  await refuseWait(db, request);
  const place = await enqueueInvocation(db, lease, request.queueDepth, body);
  if (place.kind === 'absent') throw new NotFoundError(sessionNotFound(lease.key.sessionId));
  if (place.kind === 'full') throw queueFull(request);
  if (place.kind === 'lost' && body === undefined) throw await placeLost(db, lease);
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
 * Waits without reading who holds the session where other requests of this process wait: that read locks the row which
 * the holder needs to finish, and the first of them does it now and then.
 * @returns false where the request has to read it: a lost answer to its claim may be why it gets no place.
 */
async function waitBehindOthers(context: LockContext, request: ClaimRequest): Promise<boolean> {
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

/** Waits for the turn of a request that has its place in the queue, and gives the place up where that is in vain. */
async function waitInQueue(context: LockContext, request: ClaimRequest, createTime: string): Promise<void> {
  const { lease } = request;
  const startedAt = performance.now();
  const waited = (outcome: 'claimed' | 'refused') =>
    context.metrics?.queued(outcome, (performance.now() - startedAt) / 1000);
  try {
    await takeTurn(context, request, createTime);
    waited('claimed');
  } catch (error) {
    waited('refused');
    // Where the database is away the place is given up all the same: its lease runs out.
    await dequeueInvocation(context.database.db, lease).catch(() => undefined);
    for (const topic of [freeTopic(lease.key), QUEUE_TOPIC]) context.notifications.publish(topic);
    throw error;
  }
}

/** Throws for a retry of what was done in a session that is deleted: it must not bring the session back. */
const refuseForgotten = async (db: Database, { key, request }: Lease) =>
  request && refuseForgottenKey(db, key, request.idempotencyKey);

/** Throws where a request for a busy session is a repeated one or does not wait. */
async function refuseWait(db: Database, { lease, busyPolicy, resumes }: ClaimRequest): Promise<void> {
  const known = lease.request && (await findByIdempotencyKey(db, lease.key, lease.request.idempotencyKey));
  // One that resumes has a row already, and would hold it were this its first try.
  if (known && (resumes || known.invocationId !== lease.invocationId)) {
    throw new RepeatedInvocationError('A request with this Idempotency-Key was made before.');
  }
  await refuseForgotten(db, lease);
  const answered = lease.answers?.flatMap(({ id }) => id ?? []) ?? [];
  if (answered.length > 0) await refuseAnswered(db, lease.key, answered.map(escapeText));
  if (busyPolicy === 'reject' || resumes) {
    throw new BusyError(`Session ${lease.key.sessionId} runs another invocation.`, 1, 'rejected');
  }
}

const queueFull = ({ lease, queueDepth }: ClaimRequest) =>
  new BusyError(`Session ${lease.key.sessionId} has ${queueDepth} requests waiting. Try again later.`, 1);

/** Returns the error of a request that lost its place: stopped, not renewed in time, or its row deleted. */
async function placeLost(db: Database, lease: Lease): Promise<Error> {
  const { sessionId } = lease.key;
  const waiter = await findWaiter(db, lease);
  if (!waiter && !(await lockSession(db, lease.key))) return new NotFoundError(sessionNotFound(sessionId));
  if (waiter?.stopAs) return new StoppedError(waiter.stopAs, stoppedMessage(waiter.stopAs));
  return new UnavailableError(`The request lost its place in the queue of session ${sessionId}. Try again.`);
}

/**
 * Waits until it is this request's turn; keeps its place in the queue alive meanwhile. Of this process only the first
 * request polls the session, and looks for a dead holder only as often as a lease can run out.
 */
async function takeTurn(context: LockContext, request: ClaimRequest, createTime: string): Promise<void> {
  const { lease, events, times, signal } = request;
  const { ended } = currentContext();
  const stops = AbortSignal.any([signal, ...(ended ? [ended] : [])]);
  const { database, notifications, waitQueue } = context;
  const startedAt = performance.now();
  const deadline = startedAt + times.waitMs;
  let [renewAt, takeOverAt] = [startedAt + times.renewalMs, startedAt + times.renewalMs];
  const topic = freeTopic(lease.key);
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const place = waitQueue.enqueue(topic, { position: [createTime, lease.invocationId], moveUp: wake });
  let holds = false;
  const subscriptions = [
    notifications.subscribe(topic, () => place.isFirst() && wake()),
    // A renewal finds out what this request was stopped as.
    notifications.subscribe(stopTopic(lease.invocationId), () => {
      renewAt = 0;
      wake();
    }),
  ];
  try {
    for (;;) {
      wakeup.reset();
      // Nothing begins in the name of a credential that is not valid any more.
      ended?.throwIfAborted();
      if (place.isFirst()) {
        holds = await claimQueued(database.db, lease, events);
        if (!holds && performance.now() >= takeOverAt) {
          takeOverAt = performance.now() + times.renewalMs;
          holds = await endDeadHolder(context, lease);
        }
        if (holds) return;
      }
      if (performance.now() >= renewAt) {
        if ((await renewLease(database.db, lease)) !== 'held') throw await placeLost(database.db, lease);
        renewAt = performance.now() + times.renewalMs;
      }
      if (signal.aborted) throw waitEnded(signal.reason);
      const now = performance.now();
      if (now >= deadline) throw waitedInVain(lease);
      const pauseMs = Math.max(0, Math.min(POLL_MS, deadline - now, renewAt - now));
      await wakeup.wait(pauseMs, stops);
    }
  } finally {
    place.leave(holds);
    for (const unsubscribe of subscriptions) unsubscribe();
  }
}

/** Ends the session's holder if it is dead, and wakes those that wait. @returns true where this request holds it. */
async function endDeadHolder(context: LockContext, lease: Lease): Promise<boolean> {
  const holder = await takeOver(context, lease.key);
  if (holder.kind === 'free') context.notifications.publish(freeTopic(lease.key));
  return isMine(holder, lease);
}

const waitedInVain = ({ key }: Lease) =>
  new BusyError(`Session ${key.sessionId} is busy with another invocation. Try again later.`, 1);

/** Claims the session for a queued invocation if it is its turn. */
export async function claimTurn(context: TakeOverContext, lease: Lease, events: NewEvent[]): Promise<boolean> {
  if (await claimQueued(context.database.db, lease, events)) return true;
  return isMine(await takeOver(context, lease.key), lease);
}

/** Nothing was stored for a request that still waits, so where its process stops another replica may take it. */
const waitEnded = (reason: unknown): Error =>
  reason instanceof AgentError && reason.code === 'cancelled'
    ? new StoppedError('cancelled', reason.message)
    : new UnavailableError('The service is stopping. Try again.');
