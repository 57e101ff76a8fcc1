import { deleteOldEntries } from '../platform/http/audit/audit-store.ts';
import { isPassingFailure } from '../core/errors.ts';
import type { Log } from '../platform/log.ts';
import { hourly, runPollLoop } from '../platform/work/poll-loop.ts';
import type { ContentStore } from '../conversation/artifacts/content-store.ts';
import { ifAlone } from '../platform/db/advisory-lock.ts';
import type { DatabaseAddress } from '../platform/db/connection.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import * as evaluations from '../features/evals/erase-store.ts';
import { forgetOldRuns, type RunRetention } from '../features/evals/runs/trend-store.ts';
import { deleteOldKeys } from '../conversation/idempotency/key-store.ts';
import { endDeadInvocations } from '../invocations/take-over.ts';
import { forgetInvocationKeys } from '../invocations/invocation-store.ts';
import { deleteOldPrompts } from '../invocations/tape-store.ts';
import { endDeadWaiters, endLostInvocations } from '../invocations/dead-store.ts';
import { deleteOldSpans } from '../observability/traces/span-store.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import { createForgetSession } from './forget-session.ts';
import { type Retention, applyRetention } from '../features/users/retention.ts';
import { goOnErasing } from '../features/users/erase-user.ts';

/** Dependencies of the sweeper. */
export interface SweepContext {
  database: DatabasePool;
  /** For the lock that one sweeper of all replicas holds. */
  address: DatabaseAddress;
  connectTimeoutMs: number;
  notifications: Notifications;
  /** Where the artifacts of users that are being erased are. */
  contentStore: ContentStore;
  tracing?: Tracing | undefined;
  log: Log;
  newId: () => string;
  /** Which evaluation runs are kept. */
  evalRuns: RunRetention;
  /** Retention of users' data. */
  retention: Retention;
}

/** Any number does, as long as every version uses the same. */
const SWEEP_LOCK = 7_240_003;
const IDEMPOTENCY_HOURS = 24;
/** Traces hold prompts and answers, for the person who develops an agent: a weekend has 72 hours. */
const TRACE_HOURS = 72;
/** The agent's instruction and tools after their last use: replays of older invocations name no change of them. */
const PROMPT_DAYS = 90;

/** Creates a sweep, which does every job unless another process sweeps. @returns whether it did. */
export function createSweep(context: SweepContext): () => Promise<boolean> {
  const { address, connectTimeoutMs, log } = context;
  const all = jobs(context);
  return () =>
    ifAlone({ address, connectTimeoutMs }, SWEEP_LOCK, async () => {
      for (const [job, run] of all) await run().catch((error: unknown) => report(log, job, error));
    });
}

/** Periodic jobs, by name. */
const jobs = (context: SweepContext): [name: string, run: () => Promise<unknown>][] => {
  const { db } = context.database;
  const forgetSession = createForgetSession(context.tracing);
  return [
    ['ending the waiters of dead processes', () => endDeadWaiters(db)],
    ['ending invocations that lost their session', () => endLostInvocations(db)],
    ['ending the invocations of dead processes', () => endDeadInvocations(context)],
    ['deleting old idempotency keys', () => deleteOldKeys(db, IDEMPOTENCY_HOURS)],
    ['forgetting the idempotency keys of invocations', () => forgetInvocationKeys(db, IDEMPOTENCY_HOURS)],
    ['deleting old evaluation runs', () => forgetOldRuns(db, context.evalRuns)],
    ['deleting old traces', () => deleteOldSpans(db, TRACE_HOURS)],
    // Both read everything, in pieces.
    [
      'deleting what is not kept of users',
      hourly(() => applyRetention({ ...context, forgetSession }, context.retention)),
    ],
    ['going on with erasures', () => goOnErasing({ ...context, evaluations })],
    ['deleting old entries of the audit', hourly(() => deleteOldEntries(db))],
    ['deleting old prompts', () => deleteOldPrompts(db, PROMPT_DAYS)],
  ];
};

/** Sweeps at an interval until `signal` aborts; a database that is away is tried again the next time. */
export function sweepRegularly(context: SweepContext, intervalMs: number, signal: AbortSignal): Promise<void> {
  const sweep = createSweep(context);
  const onError = (error: unknown) => report(context.log, 'locking', error);
  const poll = () =>
    sweep()
      .catch(onError)
      .then(() => intervalMs);
  return runPollLoop({ poll, signal, onError });
}

function report(log: Log, job: string, error: unknown): void {
  log[isPassingFailure(error) ? 'warn' : 'error']({ err: error, job }, 'a job of the sweep failed');
}
