import { ConflictError } from '../../core/errors.ts';
import { refuseChildSession } from '../../conversation/sessions/session-row.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { Database } from '../../platform/db/database.ts';
import { ValidationFailedError, valueError } from '../../platform/http/operation/request-errors.ts';
import { toInstant } from '../../core/time-zones.ts';
import { type CreateCronjob, cronjobSettingsSchema, type UpdateCronjob } from './cronjob.ts';
import { type CronjobChanges, type CronjobRow, findTime, type NewCronjob, updateCronjob } from './cronjob-store.ts';
import { toCronjobWire, toSchedule } from './cronjob-view.ts';
import { requeueRuns, skipRuns } from './run-store.ts';
import { withAnchor, getNextTimes, type Schedule, neverFiresReason } from './schedule.ts';
import type { CronjobSettings } from './settings.ts';

/** Number of future due times that are computed to find the shortest interval of a schedule, and to preview it. */
const SAMPLED_TIMES = 20;

type ScheduleLimits = Pick<CronjobSettings, 'CRONJOBS_MIN_INTERVAL_SECONDS'>;

/** Converts the date and time after which a cronjob no longer fires, in the time zone of the cronjob's schedule. */
export const toUntil = (until: string | null | undefined, schedule: Schedule): Date | null =>
  until == null ? null : toInstant(until, schedule.timezone ?? 'UTC');

/** Returns the next times. @throws {ValidationFailedError} if the schedule never fires, or more often than allowed */
export function requireTimes(schedule: Schedule, now: Date, until: Date | null, limits: ScheduleLimits): Date[] {
  const never = neverFiresReason(schedule, now, until ?? undefined);
  if (never !== undefined) throw new ValidationFailedError([valueError(['body', 'schedule'], never)]);
  const times = getNextTimes(schedule, now, SAMPLED_TIMES);
  const gaps = times.slice(1).map((time, position) => (time.getTime() - Number(times[position])) / 1000);
  const shortest = Math.min(...gaps);
  if (shortest >= limits.CRONJOBS_MIN_INTERVAL_SECONDS) return times;
  const allowed = `CRONJOBS_MIN_INTERVAL_SECONDS allows ${limits.CRONJOBS_MIN_INTERVAL_SECONDS} s and more`;
  const message = `The schedule fires ${shortest} s after a run; ${allowed}.`;
  throw new ValidationFailedError([valueError(['body', 'schedule'], message)]);
}

/**
 * Returns the id of the session in which a cronjob always runs; null if each run has a new session. @throws
 * {ValidationFailedError} if the request names a session without the session policy `fixed`
 */
function toSessionId(body: UpdateCronjob, policy: 'new' | 'fixed', fallback: string): string | null {
  if (policy === 'fixed') return body.sessionId ?? fallback;
  if (body.sessionId === undefined) return null;
  const message = 'only the sessionPolicy fixed has a session of its own';
  throw new ValidationFailedError([valueError(['body', 'sessionId'], message, body.sessionId)]);
}

/** A new cronjob's row, with its first due time. @throws {ValidationFailedError} as {@link requireTimes} */
export function toNewCronjob(
  body: CreateCronjob,
  creation: { id: string; userId: string; now: Date },
  limits: ScheduleLimits,
): NewCronjob {
  const { id, userId, now } = creation;
  const schedule = withAnchor(body.schedule, now);
  const until = toUntil(body.until, schedule);
  const [nextRunTime = null] = requireTimes(schedule, now, until, limits);
  const enabled = body.enabled ?? true;
  const sessionPolicy = body.sessionPolicy ?? 'new';
  return {
    appName: body.appName ?? HARNESS_APP,
    userId,
    id,
    name: body.name.trim(),
    prompt: body.prompt.trim(),
    harness: body.harness ?? null,
    schedule,
    enabled,
    sessionPolicy,
    sessionId: toSessionId(body, sessionPolicy, `cronjob-${id}`),
    missedRuns: body.missedRuns ?? 'once',
    overlap: body.overlap ?? 'skip',
    maxAttempts: body.maxAttempts ?? 3,
    retryPauseSeconds: body.retryPauseSeconds ?? 30,
    maxRetryPauseSeconds: body.maxRetryPauseSeconds ?? 600,
    timeoutSeconds: body.timeoutSeconds ?? null,
    until,
    maxRuns: body.maxRuns ?? null,
    maxFailures: body.maxFailures ?? 10,
    webhookUrl: body.webhookUrl ?? null,
    nextRunTime: enabled ? nextRunTime : null,
    createTime: now,
    updateTime: now,
  };
}

/**
 * Changes a cronjob whose row the caller has locked. If the schedule changes, waiting runs are skipped.
 * @throws {ConflictError} for an old revision
 * @throws {ForbiddenError} if its session is that of an agent that another one called
 */
export async function changeCronjob(
  tx: Database,
  cronjob: CronjobRow,
  body: UpdateCronjob,
  limits: ScheduleLimits,
): Promise<void> {
  const { expectedRevision, schedule: _schedule, until: _until, ...others } = body;
  if (expectedRevision !== undefined && expectedRevision !== cronjob.revision)
    throw new ConflictError(`The cronjob has revision ${cronjob.revision} by now, not ${expectedRevision}.`);
  const sessionPolicy = body.sessionPolicy ?? cronjob.sessionPolicy;
  const changes: CronjobChanges = {
    ...others,
    name: body.name?.trim(),
    prompt: body.prompt?.trim(),
    harness: body.harness,
    sessionPolicy,
    sessionId: toSessionId(body, sessionPolicy, cronjob.sessionId ?? `cronjob-${cronjob.id}`),
    ...(await newTimes(tx, cronjob, body, limits)),
    revision: cronjob.revision + 1,
  };
  const { appName, userId } = cronjob;
  const { sessionId } = changes;
  if (sessionId != null) await refuseChildSession(tx, { appName, userId, sessionId });
  if (body.schedule) await skipRuns(tx, cronjob, 'The schedule was changed.');
  await updateCronjob(tx, cronjob, changes);
  await requeueRuns(tx, cronjob);
}

async function newTimes(
  tx: Database,
  cronjob: CronjobRow,
  body: UpdateCronjob,
  limits: ScheduleLimits,
): Promise<CronjobChanges> {
  if (body.schedule === undefined && body.until === undefined) return {};
  const now = await findTime(tx);
  const schedule = body.schedule ? withAnchor(body.schedule, now) : requireSound(cronjob);
  const until = body.until === undefined ? cronjob.until : toUntil(body.until, schedule);
  const [nextRunTime = null] = requireTimes(schedule, now, until, limits);
  // Without another schedule the next time stays, because it may have come since the schedulers looked.
  if (!body.schedule) return { until };
  return { schedule, until, nextRunTime: cronjob.enabled ? nextRunTime : null };
}

/**
 * A stored cronjob is validated like a request, because an import may have stored invalid settings.
 * @throws {ConflictError} if a setting is invalid
 */
function requireSound(cronjob: CronjobRow): Schedule {
  const { error } = cronjobSettingsSchema.safeParse(toCronjobWire({ cronjob, latestRun: null }));
  const [issue] = error?.issues ?? [];
  if (issue)
    throw new ConflictError(`The cronjob was imported with a wrong \`${issue.path.join('.')}\`. Change that first.`);
  return toSchedule(cronjob);
}

/**
 * Enables a cronjob whose row the caller has locked. Does nothing if the cronjob is already enabled.
 * @throws {ConflictError} if the cronjob would never fire, or if an import has stored invalid settings
 * @throws {ValidationFailedError} if the cronjob would fire too often
 */
export async function enableCronjob(tx: Database, cronjob: CronjobRow, limits: ScheduleLimits): Promise<void> {
  if (cronjob.enabled) return;
  const now = await findTime(tx);
  const schedule = requireSound(cronjob);
  const never = neverFiresReason(schedule, now, cronjob.until ?? undefined);
  if (never !== undefined) throw new ConflictError(never);
  if (cronjob.maxRuns !== null && cronjob.runCount >= cronjob.maxRuns) {
    throw new ConflictError(
      `The cronjob ran ${cronjob.runCount} times, as often as its maxRuns allows. Raise that first.`,
    );
  }
  const [nextRunTime = null] = requireTimes(schedule, now, cronjob.until, limits);
  const revision = cronjob.revision + 1;
  await updateCronjob(tx, cronjob, { enabled: true, disabledReason: null, failureCount: 0, nextRunTime, revision });
}

/** Disables a cronjob whose row the caller has locked. Waiting runs are skipped; a running run continues. */
export async function disableCronjob(tx: Database, cronjob: CronjobRow): Promise<void> {
  if (!cronjob.enabled) return;
  await skipRuns(tx, cronjob, 'The cronjob was disabled.');
  await updateCronjob(tx, cronjob, { enabled: false, nextRunTime: null, revision: cronjob.revision + 1 });
}
