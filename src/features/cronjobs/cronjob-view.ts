import type { z } from 'zod';
import { escapeJson, escapeText, unescapeJson, unescapeText } from '../../platform/db/json-escape.ts';
import type { cronjobRunSchema, cronjobSchema } from './cronjob.ts';
import type { CronjobRow, CronjobWithRun } from './cronjob-store.ts';
import type { RunRow } from './run-store.ts';
import type { Schedule } from './schedule.ts';

/** A value as a jsonb column takes it, and back. */
export const toStored = (value: unknown): unknown => JSON.parse(escapeJson(value));
const fromStored = (stored: unknown): unknown => JSON.parse(unescapeJson(JSON.stringify(stored)));

/** The schedule of a cronjob's row. */
export const scheduleOf = ({ schedule }: Pick<CronjobRow, 'schedule'>): Schedule => fromStored(schedule) as Schedule;
/** The overrides of a cronjob's row. */
export const harnessOf = ({ harness }: Pick<CronjobRow, 'harness'>) =>
  fromStored(harness) as z.infer<typeof cronjobSchema>['harness'];

/** A text for a column: trimmed, and without the code units that PostgreSQL refuses. */
export const toText = (text: string): string => escapeText(text.trim());

const iso = (time: Date | null) => time?.toISOString();

/** A run as the wire has it. */
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
    output: run.output === null ? undefined : unescapeText(run.output),
    error: run.errorCode === null ? undefined : { code: run.errorCode, message: unescapeText(run.errorMessage ?? '') },
  });
}

/** A cronjob as the wire has it. */
export function toCronjobWire({ cronjob, latestRun }: CronjobWithRun): z.infer<typeof cronjobSchema> {
  return withoutAbsent({
    jobId: cronjob.id,
    ownerId: cronjob.userId,
    appName: cronjob.appName,
    name: unescapeText(cronjob.name),
    prompt: unescapeText(cronjob.prompt),
    schedule: scheduleOf(cronjob),
    harness: harnessOf(cronjob) ?? undefined,
    enabled: cronjob.enabled,
    disabledReason: cronjob.disabledReason === null ? undefined : unescapeText(cronjob.disabledReason),
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

/** The object without its undefined members. */
function withoutAbsent<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as T;
}
