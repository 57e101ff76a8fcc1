import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  foreignKey,
  index,
  integer,
  pgTable,
  pgView,
  primaryKey,
  text,
  uniqueIndex,
} from 'drizzle-orm/pg-core';
import { identifier, ofUser, time, timeOfChange } from './columns.ts';

export const cronjobs = pgTable(
  'cronjobs',
  (c) => ({
    ...ofUser(),
    id: identifier('id').notNull(),
    name: c.text('name').notNull(),
    prompt: c.text('prompt').notNull(),
    harness: c.jsonb('harness'),
    schedule: c.jsonb('schedule').notNull(),
    enabled: c.boolean('enabled').notNull(),
    disabledReason: c.text('disabled_reason'),
    sessionPolicy: c.text('session_policy', { enum: ['new', 'fixed'] }).notNull(),
    sessionId: identifier('session_id'),
    missedRuns: c.text('missed_runs', { enum: ['skip', 'once', 'all'] }).notNull(),
    overlap: c.text('overlap', { enum: ['queue', 'skip', 'replace'] }).notNull(),
    maxAttempts: c.integer('max_attempts').notNull(),
    retryPauseSeconds: c.integer('retry_pause_seconds').notNull(),
    maxRetryPauseSeconds: c.integer('max_retry_pause_seconds').notNull(),
    timeoutSeconds: c.integer('timeout_seconds'),
    until: time('until'),
    maxRuns: c.integer('max_runs'),
    maxFailures: c.integer('max_failures').notNull(),
    webhookUrl: c.text('webhook_url'),
    nextRunTime: time('next_run_time'),
    runCount: c.integer('run_count').notNull().default(0),
    failureCount: c.integer('failure_count').notNull().default(0),
    revision: c.integer('revision').notNull().default(1),
    createTime: timeOfChange('create_time'),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [
    primaryKey({ name: 'cronjobs_pkey', columns: [t.appName, t.userId, t.id] }),
    check('cronjobs_counts_check', sql`least(run_count, failure_count, revision) >= 0`),
    check('cronjobs_session_policy_check', sql`session_policy in ('new', 'fixed')`),
    check('cronjobs_session_id_check', sql`(session_policy = 'fixed') = (session_id is not null)`),
    check('cronjobs_missed_runs_check', sql`missed_runs in ('skip', 'once', 'all')`),
    check('cronjobs_overlap_check', sql`overlap in ('queue', 'skip', 'replace')`),
    check('cronjobs_next_run_time_check', sql`enabled = (next_run_time is not null)`),
    check('cronjobs_disabled_reason_check', sql`not enabled or disabled_reason is null`),
    index('cronjobs_due_idx').on(t.nextRunTime).where(sql`enabled`),
    // Operations look up by id alone, so ids are unique across users.
    uniqueIndex('cronjobs_id_idx').on(t.id),
    index('cronjobs_list_idx').on(t.userId, t.createTime.desc().nullsFirst(), t.id.desc().nullsFirst()),
  ],
);

/** Runs that were left out: their due time had no place, or their cronjob was changed before they began. */
export const skippedRuns = pgTable(
  'skipped_runs',
  (c) => ({
    ...ofUser(),
    cronjobId: identifier('cronjob_id').notNull(),
    id: identifier('id').notNull(),
    dueTime: time('due_time').notNull(),
    tries: c.smallint('tries').notNull().default(0),
    reason: c.text('reason').notNull(),
    createTime: timeOfChange('create_time'),
    endTime: timeOfChange('end_time'),
  }),
  (t) => [
    primaryKey({ name: 'skipped_runs_pkey', columns: [t.appName, t.userId, t.cronjobId, t.dueTime] }),
    check('skipped_runs_tries_check', sql`tries >= 0`),
    foreignKey({
      name: 'skipped_runs_cronjob_fkey',
      columns: [t.appName, t.userId, t.cronjobId],
      foreignColumns: [cronjobs.appName, cronjobs.userId, cronjobs.id],
    }).onDelete('cascade'),
  ],
);

/** Runs of cronjobs: their invocations, and those that were left out (`migrations/0003_views.sql`). */
export const cronjobRuns = pgView('cronjob_runs', {
  ...ofUser(),
  cronjobId: identifier('cronjob_id').notNull(),
  id: identifier('id').notNull(),
  dueTime: time('due_time').notNull(),
  isManual: boolean('is_manual').notNull(),
  status: text('status', {
    enum: ['queued', 'running', 'retrying', 'success', 'failed', 'cancelled', 'skipped'],
  }).notNull(),
  attempt: integer('attempt').notNull(),
  nextAttemptTime: time('next_attempt_time'),
  cancelRequestTime: time('cancel_request_time'),
  sessionId: identifier('session_id'),
  invocationId: identifier('invocation_id'),
  output: text('output'),
  errorCode: text('error_code'),
  errorMessage: text('error_message'),
  createTime: time('create_time').notNull(),
  startTime: time('start_time'),
  endTime: time('end_time'),
}).existing();
