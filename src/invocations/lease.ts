import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabasePool } from '../db/database.ts';
import { BusyError, LeaseLostError, NotFoundError } from '../errors.ts';
import type { NewEvent } from '../sessions/event.ts';
import { sessionNotFound } from '../sessions/store.ts';
import { claimSession, type Lease, renewLease } from './store.ts';
import { takeOver } from './take-over.ts';

/** How sessions are held, in milliseconds. */
export interface LeaseTimes {
  /** How long a lease lasts without a renewal: the longest time a killed process keeps its session. */
  durationMs: number;
  /** Time between renewals; at most a third of the duration, so that two may fail. */
  renewalMs: number;
  /** Longest wait for a busy session. */
  waitMs: number;
}

/** First and longest pause between two looks at a busy session. */
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 250;

/** What a claim needs beside the lease. */
export interface ClaimRequest {
  lease: Lease;
  /** Events that open the invocation, stored with the claim. */
  events: NewEvent[];
  /** Create the session where it is absent. */
  createSession: boolean;
  waitMs: number;
  newId: () => string;
}

/**
 * Takes a session for one invocation. A busy one is waited for; one whose holder died is taken over.
 * @throws {NotFoundError} when the session is absent and not to be created. @throws {BusyError} when the wait was in vain.
 */
export async function takeSession(database: DatabasePool, request: ClaimRequest): Promise<void> {
  const { lease, events, createSession, waitMs, newId } = request;
  const deadline = performance.now() + waitMs;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    if (await claimSession(database.db, lease, events, createSession)) return;
    const holder = await takeOver(database, lease.key, newId);
    if (holder === 'absent' && !createSession) throw new NotFoundError(sessionNotFound(lease.key.sessionId));
    if (holder !== 'live') continue;
    if (performance.now() + pauseMs > deadline) {
      throw new BusyError(`Session ${lease.key.sessionId} is busy with another invocation. Try again later.`, 1);
    }
    await sleep(pauseMs);
  }
}

/**
 * Renews a lease until it is stopped. A renewal that is refused, or not known to have worked when the lease runs out, ends the
 * authority to write: the signal aborts.
 */
export function keepLease(
  database: DatabasePool,
  lease: Lease,
  times: LeaseTimes,
): { signal: AbortSignal; stop(): void } {
  const lost = new AbortController();
  let heldUntil = performance.now() + lease.durationMs;
  const timer = setInterval(() => void renew(), times.renewalMs);
  const renew = async () => {
    const askedAt = performance.now();
    const renewed = await renewLease(database.db, lease).catch(() => undefined);
    if (renewed === true) heldUntil = askedAt + lease.durationMs;
    if (renewed === false || performance.now() >= heldUntil) {
      clearInterval(timer);
      lost.abort(new LeaseLostError(`The invocation no longer holds session ${lease.key.sessionId}.`));
    }
  };
  return { signal: lost.signal, stop: () => clearInterval(timer) };
}
