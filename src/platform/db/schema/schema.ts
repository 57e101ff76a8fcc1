import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  unique,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';
import { bytes, emptyObject, identifier, ofSession, ofUser, searchVector, time } from './columns.ts';

/**
 * All tables, those of the cronjobs, evaluation, replays and webhooks from files of their own. Every table of user
 * data begins its keys with (app_name, user_id): erasure of a user, row-level security and a distribution column need
 * that, and none can be added cheaply later. What a table and a column mean is said in SQL comments, where an operator
 * looks; `migrations/schema.sql` shows them all.
 */
export { cronjobRuns, cronjobs } from './cronjobs.ts';
export { auditLog } from './audit.ts';
export { budgets, budgetUses, modelPrices } from './budgets.ts';
export { rateLimits } from './limits.ts';
export { evalSessionScores, evalVerdicts } from './eval-scores.ts';
export { agentPrompts, invocationTapes } from './replays.ts';
export { evalCases, evalCaseVersions, evalRunCases, evalRuns, evalSets } from './evals.ts';
export { legalHolds, userErasures } from './user-data.ts';
export { webhookDeliveries, webhooks } from './webhooks.ts';

/** Conversations; `lease_token` says who may write into one. */
export const sessions = pgTable(
  'sessions',
  {
    ...ofUser(),
    id: identifier('id').notNull(),
    state: jsonb('state').notNull().default(emptyObject),
    initialState: jsonb('initial_state'),
    lastSequence: integer('last_sequence').notNull().default(0),
    eventBytes: bigint('event_bytes', { mode: 'number' }),
    eventsVersion: integer('events_version').notNull().default(0),
    isEval: boolean('is_eval').notNull().default(false),
    labels: jsonb('labels').notNull().default(emptyObject),
    firstText: text('first_text'),
    forkedFromId: identifier('forked_from_id'),
    forkedFromSequence: integer('forked_from_sequence'),
    leaseToken: uuid('lease_token'),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
    updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'sessions_pkey', columns: [t.appName, t.userId, t.id] }),
    index('sessions_list_idx')
      .on(t.appName, t.userId, t.updateTime.desc().nullsFirst(), t.id.desc().nullsFirst())
      .where(sql`not is_eval`),
    index('sessions_created_idx')
      .on(t.appName, t.userId, t.createTime.desc().nullsFirst(), t.id.desc().nullsFirst())
      .where(sql`not is_eval`),
    check('sessions_last_sequence_check', sql`last_sequence >= 0`),
  ],
);

/** The conversation itself, ordered by `sequence`. */
export const events = pgTable(
  'events',
  {
    ...ofSession(),
    sequence: integer('sequence').notNull(),
    id: identifier('id').notNull(),
    invocationId: identifier('invocation_id').notNull(),
    author: text('author').notNull(),
    eventTime: time('event_time').notNull(),
    isFromRuntime: boolean('is_from_runtime').notNull().default(false),
    payload: jsonb('payload').notNull(),
    bytes: integer('bytes'),
  },
  (t) => [
    primaryKey({ name: 'events_pkey', columns: [t.appName, t.userId, t.sessionId, t.sequence] }),
    unique('events_id_key').on(t.appName, t.userId, t.sessionId, t.id),
    foreignKey({
      name: 'events_session_fkey',
      columns: [t.appName, t.userId, t.sessionId],
      foreignColumns: [sessions.appName, sessions.userId, sessions.id],
    }).onDelete('cascade'),
  ],
);

/** State that all users of an application share. */
export const appStates = pgTable('app_states', {
  appName: identifier('app_name').primaryKey(),
  state: jsonb('state').notNull(),
  writers: jsonb('writers').notNull().default(emptyObject),
  updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
});

/** State that all sessions of a user share. */
export const userStates = pgTable(
  'user_states',
  {
    ...ofUser(),
    state: jsonb('state').notNull(),
    updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [primaryKey({ name: 'user_states_pkey', columns: [t.appName, t.userId] })],
);

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
    index('invocations_lease_idx').on(t.leaseExpireTime).where(sql`status in ('queued', 'running')`),
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

/** Names of artifacts; the row hands out version numbers. */
export const artifacts = pgTable(
  'artifacts',
  {
    ...ofSession(),
    name: identifier('name').notNull(),
    nextVersion: integer('next_version').notNull(),
  },
  (t) => [primaryKey({ name: 'artifacts_pkey', columns: [t.appName, t.userId, t.sessionId, t.name] })],
);

/** Versions of artifacts with their content, or where that is. */
export const artifactVersions = pgTable(
  'artifact_versions',
  {
    ...ofSession(),
    artifactName: identifier('artifact_name').notNull(),
    version: integer('version').notNull(),
    canonicalUri: text('canonical_uri').notNull(),
    mimeType: text('mime_type'),
    customMetadata: jsonb('custom_metadata').notNull().default(emptyObject),
    part: jsonb('part').notNull(),
    content: bytes('content'),
    objectKey: text('object_key'),
    sizeBytes: integer('size_bytes').notNull(),
    sha256: bytes('sha256').notNull(),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({
      name: 'artifact_versions_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.artifactName, t.version],
    }),
    check('artifact_versions_content_check', sql`content is null or object_key is null`),
    foreignKey({
      name: 'artifact_versions_artifact_fkey',
      columns: [t.appName, t.userId, t.sessionId, t.artifactName],
      foreignColumns: [artifacts.appName, artifacts.userId, artifacts.sessionId, artifacts.name],
    }).onDelete('cascade'),
  ],
);

/** What was said in sessions that were added to the memory of a user. */
export const memories = pgTable(
  'memories',
  {
    ...ofSession(),
    eventId: identifier('event_id').notNull(),
    author: text('author').notNull(),
    content: jsonb('content').notNull(),
    eventTime: time('event_time').notNull(),
    searchVector: searchVector('search_vector').notNull(),
  },
  (t) => [
    primaryKey({ name: 'memories_pkey', columns: [t.appName, t.userId, t.sessionId, t.eventId] }),
    index('memories_search_idx').using('gin', t.searchVector),
  ],
);

/** Responses kept for retries, but those of invocations. */
export const idempotencyKeys = pgTable(
  'idempotency_keys',
  {
    ...ofUser(),
    scope: identifier('scope').notNull(),
    key: identifier('key').notNull(),
    requestHash: text('request_hash').notNull(),
    responseBody: text('response_body').notNull(),
    sessionId: identifier('session_id'),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'idempotency_keys_pkey', columns: [t.appName, t.userId, t.scope, t.key] }),
    index('idempotency_keys_age_idx').on(t.createTime),
    index('idempotency_keys_session_idx').on(t.appName, t.userId, t.sessionId).where(sql`session_id is not null`),
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
