import { sql } from 'drizzle-orm';
import { check, foreignKey, index, pgTable, primaryKey, unique, uniqueIndex } from 'drizzle-orm/pg-core';
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

/** Runs of cronjobs. Inserting the row for a due time claims that run. */
export const cronjobRuns = pgTable(
  'cronjob_runs',
  (c) => ({
    ...ofUser(),
    cronjobId: identifier('cronjob_id').notNull(),
    id: identifier('id').notNull(),
    dueTime: time('due_time').notNull(),
    isManual: c.boolean('is_manual').notNull(),
    status: c
      .text('status', {
        enum: ['queued', 'running', 'retrying', 'success', 'failed', 'cancelled', 'skipped'],
      })
      .notNull(),
    attempt: c.integer('attempt').notNull().default(0),
    nextAttemptTime: time('next_attempt_time'),
    leaseToken: c.uuid('lease_token'),
    leaseExpireTime: time('lease_expire_time'),
    losses: c.smallint('losses').notNull().default(0),
    cancelRequestTime: time('cancel_request_time'),
    sessionId: identifier('session_id'),
    invocationId: identifier('invocation_id'),
    output: c.text('output'),
    errorCode: c.text('error_code'),
    errorMessage: c.text('error_message'),
    createTime: timeOfChange('create_time'),
    startTime: time('start_time'),
    endTime: time('end_time'),
  }),
  (t) => [
    primaryKey({ name: 'cronjob_runs_pkey', columns: [t.appName, t.userId, t.cronjobId, t.id] }),
    check('cronjob_runs_attempt_check', sql`attempt >= 0`),
    unique('cronjob_runs_due_key').on(t.appName, t.userId, t.cronjobId, t.dueTime),
    check(
      'cronjob_runs_status_check',
      sql`status in ('queued', 'running', 'retrying', 'success', 'failed', 'cancelled', 'skipped')`,
    ),
    check('cronjob_runs_wait_check', sql`(status in ('queued', 'retrying')) = (next_attempt_time is not null)`),
    check(
      'cronjob_runs_lease_check',
      sql`(status = 'running') = (lease_token is not null) and (status = 'running') = (lease_expire_time is not null)`,
    ),
    check('cronjob_runs_end_check', sql`(status in ('queued', 'retrying', 'running')) = (end_time is null)`),
    index('cronjob_runs_waiting_idx').on(t.nextAttemptTime).where(sql`status in ('queued', 'retrying')`),
    index('cronjob_runs_running_idx').on(t.leaseExpireTime).where(sql`status = 'running'`),
    foreignKey({
      name: 'cronjob_runs_cronjob_fkey',
      columns: [t.appName, t.userId, t.cronjobId],
      foreignColumns: [cronjobs.appName, cronjobs.userId, cronjobs.id],
    }).onDelete('cascade'),
  ],
);
