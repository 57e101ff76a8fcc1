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
  uuid,
} from 'drizzle-orm/pg-core';
import { bytes, emptyObject, identifier, ofSession, ofUser, searchVector, time } from './columns.ts';

/** Conversations; `lease_token` says who may write into one. */
export const sessions = pgTable(
  'sessions',
  {
    ...ofUser(),
    id: identifier('id').notNull(),
    state: jsonb('state').notNull().default(emptyObject),
    initialState: jsonb('initial_state').notNull().default(emptyObject),
    lastSequence: integer('last_sequence').notNull().default(0),
    eventBytes: bigint('event_bytes', { mode: 'number' }).notNull().default(0),
    eventsVersion: integer('events_version').notNull().default(0),
    isEval: boolean('is_eval').notNull().default(false),
    labels: jsonb('labels').notNull().default(emptyObject),
    firstText: text('first_text').notNull().default(''),
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
    bytes: integer('bytes').notNull(),
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

/** State that all users of an application share. */
export const appStates = pgTable('app_states', {
  appName: identifier('app_name').primaryKey(),
  state: jsonb('state').notNull(),
  writers: jsonb('writers').notNull().default(emptyObject),
  updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
});

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

/** Events of sessions that were added to a user's memory. */
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

/** Users and sessions whose data must not be deleted. Triggers enforce it (migrations). */
export const legalHolds = pgTable(
  'legal_holds',
  {
    ...ofSession(),
    reason: text('reason').notNull(),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [primaryKey({ name: 'legal_holds_pkey', columns: [t.appName, t.userId, t.sessionId] })],
);

/** Users that are being erased: the row goes with the last of their data. Triggers refuse new data meanwhile. */
export const userErasures = pgTable(
  'user_erasures',
  {
    ...ofUser(),
    counts: jsonb('counts').notNull().default(emptyObject),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
    updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'user_erasures_pkey', columns: [t.appName, t.userId] }),
    index('user_erasures_age_idx').on(t.updateTime),
  ],
);
