import { sql } from 'drizzle-orm';
import { type ExtraConfigColumn, check, foreignKey, index, pgTable, primaryKey, unique } from 'drizzle-orm/pg-core';
import { bytes, emptyObject, identifier, ofSession, ofUser, searchVector, time, timeOfChange } from './columns.ts';

/** Conversations. `lease_token` identifies the invocation that may write. */
export const sessions = pgTable(
  'sessions',
  (c) => ({
    ...ofUser(),
    id: identifier('id').notNull(),
    state: c.jsonb('state').notNull().default(emptyObject),
    initialState: c.jsonb('initial_state').notNull().default(emptyObject),
    lastSequence: c.integer('last_sequence').notNull().default(0),
    eventBytes: c.bigint('event_bytes', { mode: 'number' }).notNull().default(0),
    eventsVersion: c.integer('events_version').notNull().default(0),
    isEval: c.boolean('is_eval').notNull().default(false),
    labels: c.jsonb('labels').notNull().default(emptyObject),
    firstText: c.text('first_text').notNull().default(''),
    forkedFromId: identifier('forked_from_id'),
    forkedFromSequence: c.integer('forked_from_sequence'),
    leaseToken: c.uuid('lease_token'),
    createTime: timeOfChange('create_time'),
    updateTime: timeOfChange('update_time'),
  }),
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

/** Foreign key to the session; rows are deleted with it. */
export const sessionKey = (name: string, t: Record<'appName' | 'userId' | 'sessionId', ExtraConfigColumn>) =>
  foreignKey({
    name,
    columns: [t.appName, t.userId, t.sessionId],
    foreignColumns: [sessions.appName, sessions.userId, sessions.id],
  }).onDelete('cascade');

export const events = pgTable(
  'events',
  (c) => ({
    ...ofSession(),
    sequence: c.integer('sequence').notNull(),
    id: identifier('id').notNull(),
    invocationId: identifier('invocation_id').notNull(),
    author: c.text('author').notNull(),
    eventTime: time('event_time').notNull(),
    isFromRuntime: c.boolean('is_from_runtime').notNull().default(false),
    payload: c.jsonb('payload').notNull(),
    bytes: c.integer('bytes').notNull(),
  }),
  (t) => [
    primaryKey({ name: 'events_pkey', columns: [t.appName, t.userId, t.sessionId, t.sequence] }),
    unique('events_id_key').on(t.appName, t.userId, t.sessionId, t.id),
    sessionKey('events_session_fkey', t),
  ],
);

/** Streamed text of incomplete events. Valid while `lease_token` equals the session's. */
export const eventDeltas = pgTable(
  'event_deltas',
  (c) => ({
    ...ofSession(),
    number: c.bigint('number', { mode: 'number' }).notNull(),
    leaseToken: c.uuid('lease_token').notNull(),
    eventId: identifier('event_id').notNull(),
    payload: c.text('payload').notNull(),
  }),
  (t) => [
    primaryKey({ name: 'event_deltas_pkey', columns: [t.appName, t.userId, t.sessionId, t.number] }),
    sessionKey('event_deltas_session_fkey', t),
  ],
);

/** State shared by all sessions of a user. */
export const userStates = pgTable(
  'user_states',
  (c) => ({
    ...ofUser(),
    state: c.jsonb('state').notNull(),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [primaryKey({ name: 'user_states_pkey', columns: [t.appName, t.userId] })],
);

/** State shared by all users of an application. */
export const appStates = pgTable('app_states', (c) => ({
  appName: identifier('app_name').primaryKey(),
  state: c.jsonb('state').notNull(),
  writers: c.jsonb('writers').notNull().default(emptyObject),
  updateTime: timeOfChange('update_time'),
}));

/** Names of artifacts; an artifact's row assigns its version numbers. */
export const artifacts = pgTable(
  'artifacts',
  (c) => ({
    ...ofSession(),
    name: identifier('name').notNull(),
    nextVersion: c.integer('next_version').notNull(),
  }),
  (t) => [primaryKey({ name: 'artifacts_pkey', columns: [t.appName, t.userId, t.sessionId, t.name] })],
);

/** Versions of artifacts, with their content or the location of it. */
export const artifactVersions = pgTable(
  'artifact_versions',
  (c) => ({
    ...ofSession(),
    artifactName: identifier('artifact_name').notNull(),
    version: c.integer('version').notNull(),
    canonicalUri: c.text('canonical_uri').notNull(),
    mimeType: c.text('mime_type'),
    customMetadata: c.jsonb('custom_metadata').notNull().default(emptyObject),
    part: c.jsonb('part').notNull(),
    content: bytes('content'),
    objectKey: c.text('object_key'),
    sizeBytes: c.integer('size_bytes').notNull(),
    sha256: bytes('sha256').notNull(),
    createTime: timeOfChange('create_time'),
  }),
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

/** Events added to a user's memory. */
export const memories = pgTable(
  'memories',
  (c) => ({
    ...ofSession(),
    eventId: identifier('event_id').notNull(),
    author: c.text('author').notNull(),
    content: c.jsonb('content').notNull(),
    eventTime: time('event_time').notNull(),
    searchVector: searchVector('search_vector').notNull(),
    // The embedding is an array instead of pgvector's type, so that migrations and dumps need no extension.
    embedding: c.real('embedding').array(),
    embeddingModel: c.text('embedding_model'),
  }),
  (t) => [
    primaryKey({ name: 'memories_pkey', columns: [t.appName, t.userId, t.sessionId, t.eventId] }),
    index('memories_embedding_idx').on(t.appName, t.userId, t.eventTime).where(sql`embedding is not null`),
    // The index includes the user, so that a search does not read other users' entries with the same words.
    index('memories_search_idx').using(
      'gin',
      sql`(search_vector || array_to_tsvector(array[md5(app_name || chr(1) || user_id)]))`,
    ),
  ],
);

/** Stored responses for idempotent retries of all operations except invocations. */
export const idempotencyKeys = pgTable(
  'idempotency_keys',
  (c) => ({
    ...ofUser(),
    scope: identifier('scope').notNull(),
    key: identifier('key').notNull(),
    requestHash: c.text('request_hash').notNull(),
    responseBody: c.text('response_body').notNull(),
    sessionId: identifier('session_id'),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'idempotency_keys_pkey', columns: [t.appName, t.userId, t.scope, t.key] }),
    index('idempotency_keys_age_idx').on(t.createTime),
    index('idempotency_keys_session_idx').on(t.appName, t.userId, t.sessionId).where(sql`session_id is not null`),
  ],
);

/** Users and sessions whose data must not be deleted; enforced by triggers. */
export const legalHolds = pgTable(
  'legal_holds',
  (c) => ({
    ...ofSession(),
    reason: c.text('reason').notNull(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [primaryKey({ name: 'legal_holds_pkey', columns: [t.appName, t.userId, t.sessionId] })],
);

/** Users being erased; the row is deleted with their last data. Triggers refuse new data meanwhile. */
export const userErasures = pgTable(
  'user_erasures',
  (c) => ({
    ...ofUser(),
    counts: c.jsonb('counts').notNull().default(emptyObject),
    webhookId: c.text('webhook_id'),
    createTime: timeOfChange('create_time'),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [
    primaryKey({ name: 'user_erasures_pkey', columns: [t.appName, t.userId] }),
    index('user_erasures_age_idx').on(t.updateTime),
  ],
);

/** Bytes stored by each user, counted by triggers; in shards, so that connections do not block each other. */
export const userStorage = pgTable(
  'user_storage',
  (c) => ({
    ...ofUser(),
    shard: c.smallint('shard').notNull(),
    eventBytes: c.bigint('event_bytes', { mode: 'number' }).notNull(),
    artifactBytes: c.bigint('artifact_bytes', { mode: 'number' }).notNull(),
    memoryBytes: c.bigint('memory_bytes', { mode: 'number' }).notNull(),
  }),
  (t) => [primaryKey({ name: 'user_storage_pkey', columns: [t.appName, t.userId, t.shard] })],
);
