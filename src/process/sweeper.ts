import { deleteOldEntries } from '../platform/http/audit/audit-store.ts';
import { isPassingFailure } from '../core/errors.ts';
import type { Log } from '../platform/log.ts';
import { HOUR_MS, runPollLoop } from '../platform/work/poll-loop.ts';
import type { ContentStore } from '../conversation/artifacts/content-store.ts';
import { ifAlone } from '../platform/db/advisory-lock.ts';
import type { DatabaseAddress } from '../platform/db/connection.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import { deleteOldVersions } from '../conversation/apps/version-store.ts';
import { deleteLostDeltas } from '../conversation/sessions/delta-store.ts';
import * as evaluations from '../features/evals/erase-store.ts';
import { forgetOldRuns, type RunRetention } from '../features/evals/runs/trend-store.ts';
import type { CredentialContext } from '../conversation/credentials/credentials.ts';
import { deleteOldKeys } from '../conversation/idempotency/key-store.ts';
import { takeOverAll } from '../invocations/take-over.ts';
import { forgetInvocationKeys } from '../invocations/invocation-store.ts';
import { deleteOldPrompts } from '../invocations/tape-store.ts';
import { endUnserved } from '../invocations/background.ts';
import type { InvocationContext, InvocationLimits } from '../invocations/context.ts';
import type { LeaseTimes } from '../invocations/session-lock.ts';
import { endDeadWaiters, endLostInvocations, findDead } from '../invocations/dead-store.ts';
import { TASKS_TOPIC, wakeForgotten } from '../invocations/waits/task-store.ts';
import type { Metrics } from '../platform/metrics.ts';
import { deleteOldSpans } from '../observability/traces/span-store.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import { createForgetSessions } from './forget-session.ts';
import { type Retention, applyRetention } from '../features/users/retention.ts';
import { continueErasures } from '../features/users/erase-user.ts';

export interface SweepContext {
  database: DatabasePool;
  /** The address of the connection that holds the advisory locks. */
  address: DatabaseAddress;
  connectTimeoutMs: number;
  notifications: Notifications;
  /** Stores the bytes of artifacts; needed to continue the erasure of users. */
  contentStore: ContentStore;
  tracing?: Tracing | undefined;
  log: Log;
  metrics?: Metrics | undefined;
  newId: () => string;
  secrets: CredentialContext['secrets'];
  agents: InvocationContext['agents'];
  grants: CredentialContext['grants'];
  limits: Pick<InvocationLimits, 'attempts'>;
  leaseTimes: Pick<LeaseTimes, 'durationMs'>;
  evalRuns: RunRetention;
  retention: Retention;
  /** When each job last succeeded, by the monotonic clock, in milliseconds. */
  sweeps?: Map<string, number> | undefined;
  /** When aborted, each sweep ends after its current batch. */
  signal?: AbortSignal | undefined;
}

const IDEMPOTENCY_HOURS = 24;
/**
 * Hours for which traces are stored: a developer may return after a weekend, but traces contain prompts and answers.
 */
const TRACE_HOURS = 72;
/** Days for which an agent's unused instruction and tools are stored; later replays cannot tell if they changed. */
const PROMPT_DAYS = 90;

/** A group of clean-up jobs that run in sequence, in one process at a time. */
interface Sweep {
  /** The number of the advisory lock, the same in all versions of the runtime. */
  lock: number;
  /** Milliseconds between two sweeps. */
  pauseMs: number;
  /** Checks without the lock whether the jobs have work. `nextMs` is the maximum time until the next check. */
  look?: () => Promise<{ isDue: boolean; nextMs: number }>;
  jobs: [name: string, run: () => Promise<unknown>][];
}

const MINUTE_MS = 60_000;

/**
 * Lists the sweeps. Each runs under an advisory lock, in one of all processes, mostly until nothing old is left. Within
 * a process the sweeps run one after the other, on one connection outside of the pool. The sweep with `look` does not
 * wait for its turn, because its work is urgent; it connects only if `look` has found work, which is rare.
 */
function listSweeps(context: SweepContext, intervalMs: number): Sweep[] {
  const { signal } = context;
  const { db } = context.database;
  const forgetSessions = createForgetSessions(context.tracing);
  return [
    {
      lock: 7_240_003,
      pauseMs: intervalMs,
      look: () => findDead(db),
      jobs: [
        ['ending the waiters of dead processes', () => endDeadWaiters(db)],
        ['ending invocations that lost their session', () => endLostInvocations(db)],
        ['taking over the invocations of dead processes', () => takeOverAll(context)],
      ],
    },
    {
      lock: 7_240_004,
      pauseMs: Math.max(intervalMs, MINUTE_MS),
      jobs: [
        ['waking invocations that were forgotten', () => bringForgotten(context)],
        ['ending what no process serves', () => endUnserved(context)],
        ['deleting old idempotency keys', () => deleteOldKeys(db, IDEMPOTENCY_HOURS, signal)],
        ['forgetting the idempotency keys of invocations', () => forgetInvocationKeys(db, IDEMPOTENCY_HOURS, signal)],
        ['deleting old evaluation runs', () => forgetOldRuns(db, context.evalRuns)],
        ['deleting old traces', () => deleteOldSpans(db, TRACE_HOURS, signal)],
        ['deleting text of invocations that died', () => deleteLostDeltas(db, signal)],
        ['deleting old prompts', () => deleteOldPrompts(db, PROMPT_DAYS, signal)],
        ['deleting old versions of applications', () => deleteOldVersions(db)],
      ],
    },
    {
      lock: 7_240_005,
      pauseMs: Math.max(intervalMs, MINUTE_MS),
      jobs: [['going on with erasures', () => continueErasures({ ...context, evaluations })]],
    },
    // This sweep and the next one in the list read whole tables, in batches.
    {
      lock: 7_240_006,
      pauseMs: HOUR_MS,
      jobs: [
        [
          'deleting what is not kept of users',
          () => applyRetention({ ...context, forgetSessions }, context.retention, signal),
        ],
      ],
    },
    {
      lock: 7_240_007,
      pauseMs: HOUR_MS,
      jobs: [['deleting old entries of the audit', () => deleteOldEntries(db, signal)]],
    },
  ];
}

/**
 * Resumes paused invocations whose calls were answered but that nothing resumed. None should exist, so each is logged.
 */
async function bringForgotten({ database, notifications, log, metrics }: SweepContext): Promise<void> {
  const answers = await wakeForgotten(database.db);
  if (answers === 0) return;
  log.warn({ answers }, 'answers were found that nothing would have brought to their paused invocation');
  metrics?.count('agent_runtime_tasks_forgotten_total', {}, answers);
  notifications.publish(TASKS_TOPIC);
}

/** Runs one sweep if it is due. @returns the time until its next run, in milliseconds */
async function sweepOnce(context: SweepContext, { lock, pauseMs, look, jobs }: Sweep): Promise<number> {
  const { log, signal, sweeps } = context;
  const { isDue, nextMs } = (await look?.()) ?? { isDue: true, nextMs: pauseMs };
  if (isDue) {
    await ifAlone(context, lock, async () => {
      for (const [job, run] of jobs) {
        const keep = () => sweeps?.set(job, performance.now());
        if (!signal?.aborted) await run().then(keep, (error) => report(log, job, error));
      }
    });
  }
  return Math.min(pauseMs, nextMs);
}

/** Runs all sweeps once. Skips sweeps that another process is running. */
export async function sweepAll(context: SweepContext): Promise<void> {
  for (const sweep of listSweeps(context, 0)) await sweepOnce(context, sweep);
}

/** Runs all sweeps until `signal` is aborted. After a database failure a sweep is tried again at its next interval. */
export async function sweepRegularly(context: SweepContext, intervalMs: number, signal: AbortSignal): Promise<void> {
  const all = { ...context, signal };
  const onError = (error: unknown) => report(context.log, 'locking', error);
  let turn: Promise<unknown> = Promise.resolve();
  const loops = listSweeps(all, intervalMs).map((sweep) => {
    const sweepOrReport = () =>
      sweepOnce(all, sweep).catch((error: unknown) => {
        onError(error);
        return Math.min(sweep.pauseMs, intervalMs);
      });
    const takeTurn = () => {
      const swept = turn.then(sweepOrReport);
      turn = swept;
      return swept;
    };
    const poll = sweep.look ? sweepOrReport : takeTurn;
    return runPollLoop({ poll, signal, onError });
  });
  await Promise.all(loops);
}

function report(log: Log, job: string, error: unknown): void {
  log[isPassingFailure(error) ? 'warn' : 'error']({ err: error, job }, 'a job of the sweep failed');
}
