import { sql } from 'drizzle-orm';
import {
  bigint,
  check,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';
import { identifier, ofSession, time } from './columns.ts';
import { sessions } from './conversation.ts';

/** One prompt up to its final answer; `lease_token` is that of its session while it runs. */
export const invocations = pgTable(
  'invocations',
  {
    ...ofSession(),
    id: identifier('id').notNull(),
    status: text('status', {
      enum: ['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'],
    }).notNull(),
    leaseToken: uuid('lease_token').notNull(),
    leaseExpireTime: time('lease_expire_time').notNull(),
    idempotencyKey: identifier('idempotency_key'),
    requestHash: text('request_hash'),
    request: jsonb('request'),
    webhookUrl: text('webhook_url'),
    responseBody: text('response_body'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    stopRequestedAs: text('stop_requested_as', { enum: ['cancelled', 'interrupted'] }),
    toolCalls: integer('tool_calls').notNull().default(0),
    llmCalls: integer('llm_calls').notNull().default(0),
    promptTokens: integer('prompt_tokens').notNull().default(0),
    outputTokens: integer('output_tokens').notNull().default(0),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
    startTime: time('start_time'),
    endTime: time('end_time'),
  },
  (t) => [
    primaryKey({ name: 'invocations_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    check(
      'invocations_status_check',
      sql`status in ('queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled')`,
    ),
    check('invocations_stop_requested_as_check', sql`stop_requested_as in ('cancelled', 'interrupted')`),
    // Without those that have no key, which are most: an index entry less at the claim and another at the finish, and
    // no plan can take it for the way to one invocation of a user who has thousands.
    uniqueIndex('invocations_idempotency_key')
      .on(t.appName, t.userId, t.idempotencyKey)
      .where(sql`idempotency_key is not null`),
    index('invocations_lease_idx').on(t.leaseExpireTime).where(sql`status = 'running'`),
    // For the sweeper, which forgets keys after a day: most invocations have none, or none any more.
    index('invocations_key_age_idx').on(t.createTime).where(sql`idempotency_key is not null`),
    index('invocations_background_idx').on(t.createTime).where(sql`status = 'queued' and request is not null`),
    index('invocations_queue_idx').on(t.appName, t.userId, t.sessionId, t.createTime).where(sql`status = 'queued'`),
    foreignKey({
      name: 'invocations_session_fkey',
      columns: [t.appName, t.userId, t.sessionId],
      foreignColumns: [sessions.appName, sessions.userId, sessions.id],
    }).onDelete('cascade'),
  ],
);

/** Prompts of agents, each stored once per application. */
export const agentPrompts = pgTable(
  'agent_prompts',
  {
    appName: identifier('app_name').notNull(),
    hash: text('hash').notNull(),
    payload: jsonb('payload').notNull(),
    useTime: time('use_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'agent_prompts_pkey', columns: [t.appName, t.hash] }),
    index('agent_prompts_age_idx').on(t.useTime),
  ],
);

/** Inputs for replays that are not in the events, one row for each run of an invocation. */
export const invocationTapes = pgTable(
  'invocation_tapes',
  {
    ...ofSession(),
    invocationId: identifier('invocation_id').notNull(),
    start: integer('start').notNull(),
    payload: jsonb('payload').notNull(),
  },
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
  {
    ...ofSession(),
    traceId: identifier('trace_id').notNull(),
    id: identifier('id').notNull(),
    parentId: identifier('parent_id'),
    eventId: identifier('event_id'),
    name: text('name').notNull(),
    startNs: bigint('start_ns', { mode: 'bigint' }).notNull(),
    endNs: bigint('end_ns', { mode: 'bigint' }).notNull(),
    attributes: jsonb('attributes').notNull(),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'spans_pkey', columns: [t.appName, t.userId, t.sessionId, t.traceId, t.id] }),
    index('spans_session_idx').on(t.appName, t.sessionId, t.startNs),
    index('spans_event_idx').on(t.appName, t.eventId),
    index('spans_age_idx').on(t.createTime),
  ],
);
