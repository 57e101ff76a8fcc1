import { sessionNotFound } from '../core/session.ts';
import { sessionTopic, stopTopic } from '../core/topics.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, DatabasePool } from '../db/database.ts';
import type { Notifications } from '../db/notifications.ts';
import {
  AgentError,
  BusyError,
  NotFoundError,
  RepeatedInvocationError,
  StoppedError,
  UnavailableError,
} from '../core/errors.ts';
import { type BusyPolicy, stoppedMessage } from './invocation.ts';
import { findByIdempotencyKey, requestStop } from './invocation-store.ts';
import type { NewEvent } from '../core/event.ts';
import { claimQueued, claimSession, enqueueInvocation, type LockHolder, type Lease, renewLease } from './lock-store.ts';
import { dequeueInvocation, findWaiter } from './queue-store.ts';
import { takeOver } from './take-over.ts';

/** How long sessions are held and waited for, in milliseconds. */
export interface LeaseTimes {
  /** How long a lease lasts without a renewal: the longest time a killed process keeps its session. */
  durationMs: number;
  /** Time between renewals; at most a third of the duration, so that two may fail. */
  renewalMs: number;
  /** Longest wait for a busy session. */
  waitMs: number;
}

/** First and maximum pause between two looks at a busy session; a notification cuts it short. */
const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 250;

/** A request for a session. */
export interface ClaimRequest {
  lease: Lease;
  /** Events that open the invocation, stored with the claim. */
  events: NewEvent[];
  /** Create the session where it is absent. */
  createSession: boolean;
  busyPolicy: BusyPolicy;
  /** True for an ended invocation that goes on: it never waits, since its row says how it ended. */
  resumes: boolean;
  times: LeaseTimes;
  /** Maximum of requests that wait for one session. */
  queueDepth: number;
  /** Aborted with an `AgentError` when the client has left (`cancelled`) or the process stops (`interrupted`). */
  signal: AbortSignal;
  /** Body of a start in the background: where the session is busy, it waits in the database and nobody here waits. */
  body?: unknown;
  /** Called when the request waits in the queue. */
  onQueued?: (() => void) | undefined;
}

/** What acquiring sessions needs of the process. */
export interface LockContext {
  database: DatabasePool;
  notifications: Notifications;
  newId: () => string;
}

/**
 * Acquires a session for one invocation. A dead holder is taken over. For a live one `busyPolicy` decides: the
 * request waits, first come, first served (`enqueue`), fails (`reject`), or stops the holder and waits (`interrupt`).
 * @returns false for a start in the background that waits now, or that another process has begun meanwhile.
 * @throws {NotFoundError} when the session is absent and not to be created. @throws {BusyError} when the wait was in
 * vain, the queue is full or the policy rejects. @throws {RepeatedInvocationError} when the request was made before.
 * @throws {StoppedError} when somebody stopped it. @throws {UnavailableError} when it could not go on waiting.
 */
export async function acquireSession(context: LockContext, request: ClaimRequest): Promise<boolean> {
  const { lease, events, createSession } = request;
  const claim = () => claimSession(context.database.db, lease, events, createSession);
  for (;;) {
    if (await claim()) return true;
    const holder = await takeOver(context.database, lease.key, context.newId);
    if (isMine(holder, lease)) return true;
    if (holder.kind === 'live') return waitForTurn(context, request, holder.invocationId);
    // Free: its dead holder was just ended, or it belongs to a request that waits already.
    if (holder.kind === 'free') return (await claim()) || waitForTurn(context, request, undefined);
    if (!createSession) throw new NotFoundError(sessionNotFound(lease.key.sessionId));
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
  if (place === 'absent') throw new NotFoundError(sessionNotFound(lease.key.sessionId));
  if (place === 'full') throw queueFull(request);
  if (place === 'lost' && body === undefined) throw await placeLost(db, lease);
  request.onQueued?.();
  if (busyPolicy === 'interrupt' && runningId !== undefined) {
    await requestStop(db, lease.key, runningId, 'interrupted');
    context.notifications.publish(stopTopic(runningId));
  }
  if (body !== undefined) return false;
  try {
    await takeTurn(context, request);
    return true;
  } catch (error) {
    // Where the database is away the place is given up all the same: its lease runs out.
    await dequeueInvocation(db, lease).catch(() => undefined);
    throw error;
  }
}

/** Throws where a request for a busy session is a repeated one or does not wait. */
async function refuseWait(db: Database, { lease, busyPolicy, resumes }: ClaimRequest): Promise<void> {
  const known = lease.request && (await findByIdempotencyKey(db, lease.key, lease.request.idempotencyKey));
  if (known && known.invocationId !== lease.invocationId) {
    throw new RepeatedInvocationError('A request with this Idempotency-Key was made before.');
  }
  if (busyPolicy === 'reject' || resumes) {
    throw new BusyError(`Session ${lease.key.sessionId} runs another invocation.`, 1, 'rejected');
  }
}

const queueFull = ({ lease, queueDepth }: ClaimRequest) =>
  new BusyError(`Session ${lease.key.sessionId} has ${queueDepth} requests waiting. Try again later.`, 1);

/** The error of a request whose place in the queue is gone: somebody stopped it, or it was not renewed in time. */
async function placeLost(db: Database, lease: Lease): Promise<Error> {
  const { sessionId } = lease.key;
  const waiter = await findWaiter(db, lease);
  if (!waiter) return new NotFoundError(sessionNotFound(sessionId));
  if (waiter.stopAs !== null) return new StoppedError(waiter.stopAs, stoppedMessage(waiter.stopAs));
  return new UnavailableError(`The request lost its place in the queue of session ${sessionId}. Try again.`);
}

/** Looks at the session until it is this request's turn; keeps its place in the queue alive meanwhile. */
async function takeTurn(context: LockContext, { lease, events, times, signal }: ClaimRequest): Promise<void> {
  const { database, notifications } = context;
  const deadline = performance.now() + times.waitMs;
  let renewAt = performance.now() + times.renewalMs;
  let woken = Promise.withResolvers<void>();
  const subscriptions = [
    notifications.subscribe(sessionTopic(lease.key), () => woken.resolve()),
    // A renewal finds out what somebody stopped this request as.
    notifications.subscribe(stopTopic(lease.invocationId), () => {
      renewAt = 0;
      woken.resolve();
    }),
  ];
  try {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      woken = Promise.withResolvers<void>();
      if (await claimTurn(context, lease, events)) return;
      if (performance.now() >= renewAt) {
        if ((await renewLease(database.db, lease)) !== 'held') throw await placeLost(database.db, lease);
        renewAt = performance.now() + times.renewalMs;
      }
      if (signal.aborted) throw waitEnded(signal.reason);
      if (performance.now() + pauseMs > deadline) {
        throw new BusyError(`Session ${lease.key.sessionId} is busy with another invocation. Try again later.`, 1);
      }
      await Promise.race([woken.promise, sleep(pauseMs, undefined, { signal }).catch(() => undefined)]);
    }
  } finally {
    for (const unsubscribe of subscriptions) unsubscribe();
  }
}

/** Claims the session for a queued invocation if it is its turn. */
export async function claimTurn(context: LockContext, lease: Lease, events: NewEvent[]): Promise<boolean> {
  if (await claimQueued(context.database.db, lease, events)) return true;
  return isMine(await takeOver(context.database, lease.key, context.newId), lease);
}

/** Nothing was stored for a request that still waits, so where its process stops another replica may take it. */
const waitEnded = (reason: unknown): Error =>
  reason instanceof AgentError && reason.code === 'cancelled'
    ? new StoppedError('cancelled', reason.message)
    : new UnavailableError('The service is stopping. Try again.');
