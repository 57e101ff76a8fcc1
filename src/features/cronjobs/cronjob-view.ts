import type { WebhookSettings } from '../../invocations/webhooks/address.ts';
import type { CronjobSettings } from './settings.ts';
import { NotFoundError } from '../../core/errors.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { type Principal, visibleTo } from '../../platform/http/operation/principal.ts';
import type { z } from 'zod';
import type { cronjobRunSchema, cronjobSchema } from './cronjob.ts';
import { type CronjobRow, type CronjobWithRun, findCronjob, lockCronjob } from './cronjob-store.ts';
import type { RunRow } from './run-store.ts';
import type { Schedule } from './schedule.ts';

export const toSchedule = ({ schedule }: Pick<CronjobRow, 'schedule'>): Schedule => schedule as Schedule;
export const toHarness = ({ harness }: Pick<CronjobRow, 'harness'>) =>
  harness as z.infer<typeof cronjobSchema>['harness'];

const iso = (time: Date | null) => time?.toISOString();

export function toRunWire(run: RunRow): z.infer<typeof cronjobRunSchema> {
  return withoutAbsent({
    runId: run.id,
    jobId: run.cronjobId,
    ownerId: run.userId,
    status: run.status,
    scheduledAt: run.dueTime.toISOString(),
    manual: run.isManual,
    attempt: run.attempt,
    createdAt: run.createTime.toISOString(),
    startedAt: iso(run.startTime),
    finishedAt: iso(run.endTime),
    nextAttemptAt: iso(run.nextAttemptTime),
    cancellationRequestedAt: iso(run.cancelRequestTime),
    sessionId: run.sessionId ?? undefined,
    invocationId: run.invocationId ?? undefined,
    output: run.output ?? undefined,
    error: run.errorCode === null ? undefined : { code: run.errorCode, message: run.errorMessage ?? '' },
  });
}

export function toCronjobWire({ cronjob, latestRun }: CronjobWithRun): z.infer<typeof cronjobSchema> {
  return withoutAbsent({
    jobId: cronjob.id,
    ownerId: cronjob.userId,
    appName: cronjob.appName,
    name: cronjob.name,
    prompt: cronjob.prompt,
    schedule: toSchedule(cronjob),
    harness: toHarness(cronjob) ?? undefined,
    enabled: cronjob.enabled,
    disabledReason: cronjob.disabledReason ?? undefined,
    sessionPolicy: cronjob.sessionPolicy,
    sessionId: cronjob.sessionId ?? undefined,
    missedRuns: cronjob.missedRuns,
    overlap: cronjob.overlap,
    maxAttempts: cronjob.maxAttempts,
    retryPauseSeconds: cronjob.retryPauseSeconds,
    maxRetryPauseSeconds: cronjob.maxRetryPauseSeconds,
    timeoutSeconds: cronjob.timeoutSeconds ?? undefined,
    until: iso(cronjob.until),
    maxRuns: cronjob.maxRuns ?? undefined,
    maxFailures: cronjob.maxFailures,
    webhookUrl: cronjob.webhookUrl ?? undefined,
    nextRunAt: iso(cronjob.nextRunTime),
    runCount: cronjob.runCount,
    failureCount: cronjob.failureCount,
    revision: cronjob.revision,
    createdAt: cronjob.createTime.toISOString(),
    updatedAt: cronjob.updateTime.toISOString(),
    latestRun: latestRun === null ? undefined : toRunWire(latestRun),
  });
}

function withoutAbsent<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as T;
}

export interface CronjobContext {
  database: DatabasePool;
  notifications: Pick<Notifications, 'publish'>;
  newId: () => string;
  config: CronjobSettings & WebhookSettings;
}

/** The 404 is also thrown for a cronjob of another user, to hide that it exists. */
export const cronjobNotFound = (jobId: string): NotFoundError => new NotFoundError(`Cronjob not found: ${jobId}`);

/** Finds a cronjob that the caller may see. @throws {NotFoundError} */
export async function getCronjob(db: Database, principal: Principal, jobId: string): Promise<CronjobWithRun> {
  const cronjob = await findCronjob(db, jobId, visibleTo(principal));
  if (!cronjob) throw cronjobNotFound(jobId);
  return cronjob;
}

/** Locks a cronjob that the caller may see. @throws {NotFoundError} */
export async function getLockedCronjob(tx: Database, principal: Principal, jobId: string): Promise<CronjobRow> {
  const cronjob = await lockCronjob(tx, jobId, visibleTo(principal));
  if (!cronjob) throw cronjobNotFound(jobId);
  return cronjob;
}
