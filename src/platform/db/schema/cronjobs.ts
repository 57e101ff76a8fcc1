import { sql } from 'drizzle-orm';
import { boolean, check, foreignKey, index, integer, pgView, primaryKey, text, uniqueIndex } from 'drizzle-orm/pg-core';
import { anyText, identifier, json, ofUser, ofUserPolicy, time, timeOfChange } from './columns.ts';
import { table } from './table.ts';

export const cronjobs = table(
  'cronjobs',
  'Prompts that run on a schedule.',
  (c) => ({
    ...ofUser('Owner.'),
    id: identifier('id').notNull().comment('Cronjob identifier.'),
    name: anyText('name').notNull().comment('Name for people.'),
    prompt: anyText('prompt').notNull().comment('Prompt of each run.'),
    harness: json('harness').comment('Agent overrides for each run, as sent; null if none.'),
    schedule: json('schedule')
      .notNull()
      .comment("Schedule with time zone, in the API's format: once, interval, daily, weekly, monthly or cron."),
    enabled: c.boolean('enabled').notNull().comment('False if the owner or the runtime disabled it.'),
    disabledReason: anyText('disabled_reason').comment('Why the runtime disabled it; null if the owner did.'),
    sessionPolicy: c
      .text('session_policy', { enum: ['new', 'fixed'] })
      .notNull()
      .comment('new (a session per run) or fixed (one session for all runs).'),
    sessionId: identifier('session_id').comment('The session if the policy is fixed.'),
    missedRuns: c
      .text('missed_runs', { enum: ['skip', 'once', 'all'] })
      .notNull()
      .comment('Handling of due times missed by more than a minute: skip, once or all.'),
    overlap: c
      .text('overlap', { enum: ['queue', 'skip', 'replace'] })
      .notNull()
      .comment('Handling of a run while an earlier one is running: queue, skip or replace.'),
    maxAttempts: c.integer('max_attempts').notNull().comment('Maximum number of attempts of a run.'),
    retryPauseSeconds: c
      .integer('retry_pause_seconds')
      .notNull()
      .comment('Back-off before the second attempt; doubles with each attempt.'),
    maxRetryPauseSeconds: c.integer('max_retry_pause_seconds').notNull().comment('Maximum back-off.'),
    timeoutSeconds: c.integer('timeout_seconds').comment('Time limit of a run; null: no limit of its own.'),
    until: time('until').comment('Fires only before this time; null: no end.'),
    maxRuns: c.integer('max_runs').comment('Disabled after this many scheduled runs; null: no limit.'),
    maxFailures: c
      .integer('max_failures')
      .notNull()
      .comment('Disabled after this many consecutive failed runs; 0: never.'),
    webhookUrl: c.text('webhook_url').comment('Address of the webhook for results of runs; null for none.'),
    nextRunTime: time('next_run_time').comment('Next due time; null if disabled.'),
    runCount: c.integer('run_count').notNull().default(0).comment('Scheduled runs so far.'),
    failureCount: c.integer('failure_count').notNull().default(0).comment('Consecutive failed runs.'),
    revision: c.integer('revision').notNull().default(1).comment('Increases with each change.'),
    createTime: timeOfChange('create_time').comment('When it was created.'),
    updateTime: timeOfChange('update_time').comment('When it was changed last.'),
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
    ofUserPolicy(),
  ],
);

/** Their due time had no place, or their cronjob was changed before they began. */
export const skippedRuns = table(
  'skipped_runs',
  'Runs of cronjobs that were left out before they began. All other runs are invocations.',
  (c) => ({
    ...ofUser('Owner of the cronjob.'),
    cronjobId: identifier('cronjob_id').notNull().comment('Cronjob of the run.'),
    id: identifier('id').notNull().comment('Run identifier.'),
    dueTime: time('due_time').notNull().comment('When it was due.'),
    tries: c.smallint('tries').notNull().default(0).comment('How often it had been tried.'),
    reason: c.text('reason').notNull().comment('Why it was left out, a sentence.'),
    createTime: timeOfChange('create_time').comment('When it was queued.'),
    endTime: timeOfChange('end_time').comment('When it was left out.'),
  }),
  (t) => [
    primaryKey({ name: 'skipped_runs_pkey', columns: [t.appName, t.userId, t.cronjobId, t.dueTime] }),
    check('skipped_runs_tries_check', sql`tries >= 0`),
    foreignKey({
      name: 'skipped_runs_cronjob_fkey',
      columns: [t.appName, t.userId, t.cronjobId],
      foreignColumns: [cronjobs.appName, cronjobs.userId, cronjobs.id],
    }).onDelete('cascade'),
    ofUserPolicy(),
  ],
);

/** Runs of cronjobs: their invocations, and those that were left out (`migrations/repeatable/views.sql`). */
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
  output: anyText('output'),
  errorCode: text('error_code'),
  errorMessage: anyText('error_message'),
  createTime: time('create_time').notNull(),
  startTime: time('start_time'),
  endTime: time('end_time'),
}).existing();
