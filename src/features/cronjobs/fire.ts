import { publishStops } from '../../invocations/cancel.ts';
import { requestStopOfRuns, type StoppingInvocation } from '../../invocations/invocation-store.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import type { Metrics } from '../../platform/metrics.ts';
import {
  type CronjobRow,
  type Firing,
  fireCronjobs,
  listNextCronjobs,
  type NextCronjob,
  type PlannedRun,
  CRONJOBS_TOPIC,
} from './cronjob-store.ts';
import { toSchedule } from './cronjob-view.ts';
import { getNextTime, getTimesBetween, scheduleSchema } from './schedule.ts';
import type { Log } from '../../platform/log.ts';
import { runPollLoop } from '../../platform/work/poll-loop.ts';

/** Maximum cronjobs per statement. Computing a next due time takes about half a millisecond. */
const BATCH = 100;
/** Pause in milliseconds while another transaction has locked a due cronjob, or a run that it replaces. */
const LOCKED_PAUSE_MS = 100;

export interface FireContext {
  database: DatabasePool;
  notifications: Pick<Notifications, 'publish'>;
  newId: () => string;
  metrics?: Metrics | undefined;
}

/**
 * Queues the runs of due cronjobs, stops those that they replace and stores the next due times in one transaction, so
 * that the cronjobs stay due if the process dies.
 * @returns the number of fired cronjobs, and the milliseconds until a cronjob may be due
 */
export async function fireDueCronjobs(context: FireContext): Promise<{ fired: number; nextMs: number }> {
  const { database, newId, metrics, notifications } = context;
  const listed = await listNextCronjobs(database.db, BATCH);
  const due = listed.filter(({ dueMs }) => dueMs <= 0).map((one) => ({ ...one, firing: planFiring(one, newId) }));
  const { fired, stopped } =
    due.length === 0
      ? { fired: new Set<string>(), stopped: [] }
      : await database.transaction((tx) => fireAndReplace(tx, due));
  publishStops(notifications, stopped);
  for (const { dueMs } of due.filter(({ cronjob }) => fired.has(cronjob.id)))
    metrics?.record('agent_runtime_cronjob_lateness_seconds', -dueMs / 1000, {});
  const waits = due.map(({ cronjob, firing: { next }, now }) =>
    fired.has(cronjob.id) ? (next ? next.getTime() - now.getTime() : Infinity) : LOCKED_PAUSE_MS,
  );
  const others = listed.filter(({ dueMs }) => dueMs > 0).map(({ dueMs }) => dueMs);
  const mayMore = due.length === BATCH && fired.size > 0;
  return { fired: fired.size, nextMs: mayMore ? 0 : Math.min(...waits, ...others) };
}

async function fireAndReplace(tx: Database, due: (NextCronjob & { firing: Firing })[]) {
  const fired = await fireCronjobs(tx, due);
  const stopped: StoppingInvocation[] = [];
  for (const { cronjob, firing } of due) {
    const queues = firing.runs.some(({ skipped }) => skipped === undefined);
    if (cronjob.overlap === 'replace' && queues && fired.has(cronjob.id))
      stopped.push(...(await requestStopOfRuns(tx, cronjob, { except: firing.runs.map(({ id }) => id) })));
  }
  return { fired, stopped };
}

/** Delay after which a due time counts as missed, and the cronjob's policy for missed runs applies. */
const MISSED_AFTER_MS = 60_000;
/** Maximum number of missed due times for which runs are queued afterwards. */
const MAX_MADE_UP = 100;

function planFiring({ cronjob, now }: NextCronjob, newId: () => string): Firing {
  const { data: schedule, error } = scheduleSchema.safeParse(toSchedule(cronjob));
  // Disabled, because otherwise it would stop the cronjobs that are due with it. SQL may have stored anything.
  if (!schedule) return { runs: [], next: undefined, reason: `Its schedule is wrong: ${error.issues[0]?.message}.` };
  const last = cronjob.until && cronjob.until <= now ? new Date(cronjob.until.getTime() - 1) : now;
  const times = getTimesBetween(schedule, cronjob.nextRunTime ?? now, last, MAX_MADE_UP);
  const remaining = cronjob.maxRuns === null ? Infinity : Math.max(0, cronjob.maxRuns - cronjob.runCount);
  const planned = planMissedRuns(times, now, cronjob.missedRuns).map((run) => ({ ...run, id: newId() }));
  const fired = planned.filter(({ skipped }) => skipped === undefined).slice(0, remaining);
  const runs = [...planned.filter(({ skipped }) => skipped !== undefined), ...fired];
  const isLast = fired.length >= remaining;
  const next = isLast ? undefined : getNextTime(schedule, now);
  if (next && !(cronjob.until && next >= cronjob.until)) return { runs, next };
  const reason = isLast
    ? `It ran ${cronjob.maxRuns} times, as often as it should.`
    : 'Its schedule has come to its end.';
  return { runs, next: undefined, reason };
}

/** If missed due times are skipped, records a skipped run with the reason for the newest of them. */
function planMissedRuns(times: Date[], now: Date, policy: CronjobRow['missedRuns']): Omit<PlannedRun, 'id'>[] {
  const late = times.filter((time) => now.getTime() - time.getTime() > MISSED_AFTER_MS);
  const onTime = times.slice(late.length).map((due) => ({ due }));
  const newest = late.at(-1);
  if (!newest) return onTime;
  if (policy === 'all') return times.map((due) => ({ due }));
  if (policy === 'once') return [{ due: newest }, ...onTime];
  const count = late.length >= MAX_MADE_UP ? `${MAX_MADE_UP} or more` : String(late.length);
  return [{ due: newest, skipped: `No scheduler ran when it was due (${count} missed).` }, ...onTime];
}

/** Maximum pause between polls: notifications may be lost, as through a connection pooler without LISTEN. */
const MAX_PAUSE_MS = 30_000;

export interface SchedulerContext extends FireContext {
  notifications: Notifications;
  log: Log;
  draining: AbortSignal;
}

/**
 * Queues the runs of due cronjobs until the process drains; the background queue runs them. Every replica does so, and a
 * compare-and-set decides which one fires a cronjob.
 */
export async function runCronjobs(context: SchedulerContext): Promise<void> {
  const { notifications, log, draining: signal } = context;
  const poll = async () => {
    const { nextMs } = await fireDueCronjobs(context);
    return Math.max(0, Math.min(nextMs, MAX_PAUSE_MS));
  };
  const notify = (wake: () => void) => notifications.subscribe(CRONJOBS_TOPIC, wake);
  const onError = (error: unknown) => log.error({ err: error }, 'the cronjobs could not be polled');
  await runPollLoop({ poll, notify, signal, onError });
}
