import { sessionNotFound } from '../core/session.ts';
import { sessionTopic, stopTopic } from '../core/topics.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabasePool } from '../db/database.ts';
import type { Notifications } from '../db/notifications.ts';
import { AgentError, BusyError, NotFoundError, RepeatedInvocationError } from '../core/errors.ts';
import { type BusyPolicy, stoppedMessage } from './invocation.ts';
import { findByIdempotencyKey, requestStop } from './invocation-store.ts';
import type { NewEvent } from '../core/event.ts';
import {
  claimQueued,
  claimSession,
  enqueueInvocation,
  type LockHolder,
  type Lease,
  dequeueInvocation,
  renewLease,
} from './lock-store.ts';
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
  /** Aborted when nobody wants the wait to go on. */
  signal: AbortSignal;
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
 * @throws {NotFoundError} when the session is absent and not to be created. @throws {BusyError} when the wait was in
 * vain, the queue is full or the policy rejects. @throws {RepeatedInvocationError} when the request was made before.
 */
export async function acquireSession(context: LockContext, request: ClaimRequest): Promise<void> {
  const { lease, events, createSession } = request;
  const claim = () => claimSession(context.database.db, lease, events, createSession);
  for (;;) {
    if (await claim()) return;
    const holder = await takeOver(context.database, lease.key, context.newId);
    if (isMine(holder, lease)) return;
    if (holder.kind === 'live') return waitForTurn(context, request, holder.invocationId);
    // Free: its dead holder was just ended, or it belongs to a request that waits already.
    if (holder.kind === 'free') return (await claim()) ? undefined : waitForTurn(context, request, undefined);
    if (!createSession) throw new NotFoundError(sessionNotFound(lease.key.sessionId));
  }
}

/** A claim whose answer was lost did its work: the session is held with this very token. */
const isMine = (holder: LockHolder, { token }: Lease) => holder.kind === 'live' && holder.token === token;

async function waitForTurn(context: LockContext, request: ClaimRequest, runningId: string | undefined): Promise<void> {
  const { lease, busyPolicy, queueDepth } = request;
  const { db } = context.database;
  const known = lease.request && (await findByIdempotencyKey(db, lease.key, lease.request.idempotencyKey));
  if (known && known.invocationId !== lease.invocationId) {
    throw new RepeatedInvocationError('A request with this Idempotency-Key was made before.');
  }
  if (busyPolicy === 'reject' || request.resumes)
    throw new BusyError(`Session ${lease.key.sessionId} runs another invocation.`, 1, 'rejected');
  if (!(await enqueueInvocation(db, lease, queueDepth))) {
    throw new BusyError(`Session ${lease.key.sessionId} has ${queueDepth} requests waiting. Try again later.`, 1);
  }
  request.onQueued?.();
  if (busyPolicy === 'interrupt' && runningId !== undefined) {
    await requestStop(db, lease.key, runningId, 'interrupted');
    context.notifications.publish(stopTopic(runningId));
  }
  try {
    await takeTurn(context, request);
  } catch (error) {
    // Where the database is away the place is given up all the same: its lease runs out.
    await dequeueInvocation(db, lease).catch(() => undefined);
    throw error;
  }
}

/** Looks at the session until it is this request's turn; keeps its place in the queue alive meanwhile. */
async function takeTurn(context: LockContext, { lease, events, times, signal }: ClaimRequest): Promise<void> {
  const { database, notifications, newId } = context;
  const deadline = performance.now() + times.waitMs;
  let renewAt = performance.now() + times.renewalMs;
  let woken = Promise.withResolvers<void>();
  const unsubscribe = notifications.subscribe(sessionTopic(lease.key), () => woken.resolve());
  try {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
      woken = Promise.withResolvers<void>();
      if (await claimQueued(database.db, lease, events)) return;
      if (isMine(await takeOver(database, lease.key, newId), lease)) return;
      if (performance.now() >= renewAt) {
        if ((await renewLease(database.db, lease)) !== 'held') throw stopped('cancelled');
        renewAt = performance.now() + times.renewalMs;
      }
      signal.throwIfAborted();
      if (performance.now() + pauseMs > deadline) {
        throw new BusyError(`Session ${lease.key.sessionId} is busy with another invocation. Try again later.`, 1);
      }
      await Promise.race([woken.promise, sleep(pauseMs, undefined, { signal }).catch(() => undefined)]);
    }
  } finally {
    unsubscribe();
  }
}

const stopped = (status: 'cancelled' | 'interrupted') => new AgentError(status, stoppedMessage(status));
