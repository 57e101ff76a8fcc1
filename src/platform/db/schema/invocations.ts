import { sql } from 'drizzle-orm';
import { check, foreignKey, index, pgTable, primaryKey, uniqueIndex } from 'drizzle-orm/pg-core';
import { identifier, ofSession, time, timeOfChange } from './columns.ts';
import { sessionKey } from './conversation.ts';

/** One prompt up to its final answer. While running, `lease_token` equals the session's. */
export const invocations = pgTable(
  'invocations',
  (c) => ({
    ...ofSession(),
    id: identifier('id').notNull(),
    status: c
      .text('status', {
        enum: ['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'],
      })
      .notNull(),
    leaseToken: c.uuid('lease_token').notNull(),
    leaseExpireTime: time('lease_expire_time').notNull(),
    idempotencyKey: identifier('idempotency_key'),
    requestHash: c.text('request_hash'),
    request: c.jsonb('request'),
    job: c.jsonb('job'),
    agentVersion: c.text('agent_version'),
    attempt: c.smallint('attempt').notNull().default(1),
    webhookUrl: c.text('webhook_url'),
    responseBody: c.text('response_body'),
    errorCode: c.text('error_code'),
    errorMessage: c.text('error_message'),
    stopRequestedAs: c.text('stop_requested_as', { enum: ['cancelled', 'interrupted'] }),
    toolCalls: c.integer('tool_calls').notNull().default(0),
    llmCalls: c.integer('llm_calls').notNull().default(0),
    promptTokens: c.integer('prompt_tokens').notNull().default(0),
    outputTokens: c.integer('output_tokens').notNull().default(0),
    createTime: timeOfChange('create_time'),
    startTime: time('start_time'),
    endTime: time('end_time'),
    stopRequestTime: time('stop_request_time'),
    notBefore: time('not_before'),
    cronjobId: identifier('cronjob_id'),
    runId: identifier('run_id'),
    dueTime: time('due_time'),
    isManual: c.boolean('is_manual'),
    try: c.smallint('try'),
    firstEndTime: time('first_end_time'),
  }),
  (t) => [
    primaryKey({ name: 'invocations_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    check(
      'invocations_status_check',
      sql`status in ('queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled')`,
    ),
    check('invocations_counts_check', sql`least(tool_calls, llm_calls, prompt_tokens, output_tokens) >= 0`),
    check('invocations_stop_requested_as_check', sql`stop_requested_as in ('cancelled', 'interrupted')`),
    // The index is partial, because most invocations have no key: fewer index writes at claim and finish, and the
    // planner cannot misuse it to find one invocation of a user who has thousands.
    uniqueIndex('invocations_idempotency_key')
      .on(t.appName, t.userId, t.idempotencyKey)
      .where(sql`idempotency_key is not null`),
    index('invocations_lease_idx').on(t.leaseExpireTime).where(sql`status = 'running'`),
    index('invocations_waiters_idx').on(t.leaseExpireTime).where(sql`status = 'queued' and request is null`),
    // Index for usage reports by time. With the application first, a database without statistics would use it for key
    // look-ups and scan all of the application.
    index('invocations_time_idx').on(t.createTime, t.appName),
    // Index for the sweeper that deletes keys after a day.
    index('invocations_key_age_idx').on(t.createTime).where(sql`idempotency_key is not null`),
    index('invocations_background_idx').on(t.createTime).where(sql`status = 'queued' and request is not null`),
    // Index of invocations to resume, which are few and served before all waiting ones.
    index('invocations_left_idx')
      .on(t.leaseExpireTime)
      .where(sql`status = 'queued' and request is not null and start_time is not null`),
    index('invocations_queue_idx').on(t.appName, t.userId, t.sessionId, t.createTime).where(sql`status = 'queued'`),
    check(
      'invocations_run_check',
      sql`cronjob_id is null or num_nulls(run_id, due_time, is_manual, try) = 0 and try > 0`,
    ),
    uniqueIndex('invocations_run_key')
      .on(t.appName, t.userId, t.cronjobId, t.dueTime, t.try)
      .where(sql`cronjob_id is not null`),
    // Index of the runs of cronjobs that go on, which are few: those of a user, and those of one cronjob.
    index('invocations_open_runs_idx')
      .on(t.userId, t.appName, t.cronjobId)
      .where(sql`cronjob_id is not null and first_end_time is null and status in ('queued', 'running')`),
    sessionKey('invocations_session_fkey', t),
  ],
);

/** Ledger of tool calls: one row per call that has started, or may have. */
export const toolCalls = pgTable(
  'tool_calls',
  (c) => ({
    ...ofSession(),
    invocationId: identifier('invocation_id').notNull(),
    callId: identifier('call_id').notNull(),
    operationId: c.uuid('operation_id').notNull(),
    tool: c.text('tool').notNull(),
    effect: c.text('effect', { enum: ['none', 'idempotent', 'once', 'transactional'] }).notNull(),
    state: c.text('state', { enum: ['started', 'done', 'unknown', 'settled'] }).notNull(),
    attempt: c.smallint('attempt').notNull().default(1),
    response: c.jsonb('response'),
    createTime: timeOfChange('create_time'),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [
    primaryKey({ name: 'tool_calls_pkey', columns: [t.appName, t.userId, t.sessionId, t.invocationId, t.callId] }),
    check('tool_calls_effect_check', sql`effect in ('none', 'idempotent', 'once', 'transactional')`),
    check('tool_calls_state_check', sql`state in ('started', 'done', 'unknown', 'settled')`),
    index('tool_calls_unknown_idx').on(t.appName, t.userId, t.createTime, t.callId).where(sql`state = 'unknown'`),
    foreignKey({
      name: 'tool_calls_invocation_fkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId],
      foreignColumns: [invocations.appName, invocations.userId, invocations.sessionId, invocations.id],
    }).onDelete('cascade'),
  ],
);

/** Prompts of agents, each stored once per application. */
export const agentPrompts = pgTable(
  'agent_prompts',
  (c) => ({
    appName: identifier('app_name').notNull(),
    hash: c.text('hash').notNull(),
    payload: c.jsonb('payload').notNull(),
    useTime: timeOfChange('use_time'),
  }),
  (t) => [
    primaryKey({ name: 'agent_prompts_pkey', columns: [t.appName, t.hash] }),
    index('agent_prompts_age_idx').on(t.useTime),
  ],
);

/** Deployed versions of applications; immutable. */
export const agentVersions = pgTable(
  'agent_versions',
  (c) => ({
    appName: identifier('app_name').notNull(),
    digest: c.text('digest').notNull(),
    definition: c.jsonb('definition').notNull(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [primaryKey({ name: 'agent_versions_pkey', columns: [t.appName, t.digest] })],
);

/** Replay inputs that are not in events, one row per run of an invocation. */
export const invocationTapes = pgTable(
  'invocation_tapes',
  (c) => ({
    ...ofSession(),
    invocationId: identifier('invocation_id').notNull(),
    start: c.integer('start').notNull(),
    payload: c.jsonb('payload').notNull(),
  }),
  (t) => [
    primaryKey({
      name: 'invocation_tapes_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId, t.start],
    }),
    foreignKey({
      name: 'invocation_tapes_invocation_fkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId],
      foreignColumns: [invocations.appName, invocations.userId, invocations.sessionId, invocations.id],
    }).onDelete('cascade'),
  ],
);

/** Traces for the development UI. */
export const spans = pgTable(
  'spans',
  (c) => ({
    ...ofSession(),
    traceId: identifier('trace_id').notNull(),
    id: identifier('id').notNull(),
    parentId: identifier('parent_id'),
    eventId: identifier('event_id'),
    name: c.text('name').notNull(),
    startNs: c.bigint('start_ns', { mode: 'bigint' }).notNull(),
    endNs: c.bigint('end_ns', { mode: 'bigint' }).notNull(),
    attributes: c.jsonb('attributes').notNull(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'spans_pkey', columns: [t.appName, t.userId, t.sessionId, t.traceId, t.id] }),
    index('spans_session_idx').on(t.appName, t.sessionId, t.startNs),
    index('spans_event_idx').on(t.appName, t.eventId),
    index('spans_age_idx').on(t.createTime),
  ],
);
