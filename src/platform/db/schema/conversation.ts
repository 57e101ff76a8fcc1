import { sql } from 'drizzle-orm';
import { type ExtraConfigColumn, check, foreignKey, index, primaryKey, unique } from 'drizzle-orm/pg-core';
import {
  anyIdentifier,
  anyText,
  bytes,
  emptyObject,
  identifier,
  json,
  ofSession,
  ofUser,
  ofUserPolicy,
  searchVector,
  secondsOfChange,
  time,
  timeOfChange,
} from './columns.ts';
import { table } from './table.ts';

export const sessions = table(
  'sessions',
  'One conversation of one user with one application.',
  (c) => ({
    ...ofUser(
      'Owner; other users never see the session.',
      'Application; harness_agent for the command-line deployment.',
    ),
    id: identifier('id').notNull().comment('Session identifier, unique per application and user.'),
    state: json('state')
      .notNull()
      .default(emptyObject)
      .comment('Keys of this session only; app: and user: keys are in app_states and user_states.'),
    initialState: json('initial_state').notNull().default(emptyObject).comment('Its own state before its first event.'),
    lastSequence: c
      .integer('last_sequence')
      .notNull()
      .default(0)
      .comment('Sequence of the newest event; increased by the statement that inserts the event.'),
    eventBytes: c
      .bigint('event_bytes', { mode: 'number' })
      .notNull()
      .default(0)
      .comment('Size of all events of the session as text, bytes.'),
    eventsVersion: c
      .integer('events_version')
      .notNull()
      .default(0)
      .comment(
        'Increases when stored events are changed or deleted by SQL, which the service never does; invalidates caches.',
      ),
    isEval: c.boolean('is_eval').notNull().default(false).comment('Created by an evaluation run; not listed.'),
    labels: json('labels').notNull().default(emptyObject).comment('Labels set by clients: names and string values.'),
    firstText: anyText('first_text')
      .notNull()
      .default('')
      .comment("Start of the user's first text; empty if there is none yet."),
    forkedFromId: identifier('forked_from_id').comment('Source session of a fork; may be deleted by now.'),
    forkedFromSequence: c.integer('forked_from_sequence').comment('Number of events copied by the fork.'),
    parentSessionId: identifier('parent_session_id').comment(
      'Of a child session, in which an agent works that another one called like a tool: the session of the call. It is deleted with it, and not listed.',
    ),
    parentInvocationId: identifier('parent_invocation_id').comment('Invocation of the call; null for no child.'),
    parentCallId: anyIdentifier('parent_call_id').comment('Id of the call; null for no child.'),
    rootSessionId: identifier('root_session_id').comment(
      'Of a child session: the session above it that is no child, whose user talks there.',
    ),
    depth: c.smallint('depth').notNull().default(0).comment('Number of sessions above it: 0 for one that is no child.'),
    leaseToken: c
      .uuid('lease_token')
      .comment(
        'Lease (fencing token) of the running invocation; null if none runs. Checked by every write of an invocation.',
      ),
    isSteered: c
      .boolean('is_steered')
      .notNull()
      .default(false)
      .comment('True if messages may wait that the running invocation takes at its next step.'),
    createTime: timeOfChange('create_time').comment('When the session was created.'),
    updateTime: timeOfChange('update_time').comment("Last change, by the database's clock; never decreases."),
  }),
  (t) => [
    primaryKey({ name: 'sessions_pkey', columns: [t.appName, t.userId, t.id] }),
    index('sessions_list_idx')
      .on(t.appName, t.userId, t.updateTime.desc().nullsFirst(), t.id.desc().nullsFirst())
      .where(sql`not is_eval`),
    index('sessions_created_idx')
      .on(t.appName, t.userId, t.createTime.desc().nullsFirst(), t.id.desc().nullsFirst())
      .where(sql`not is_eval`),
    // Of child sessions alone, so that a session without them costs no entry. Deletions look for children with it.
    index('sessions_parent_idx')
      .on(t.appName, t.userId, t.parentSessionId, t.parentInvocationId)
      .where(sql`parent_session_id is not null`),
    check('sessions_last_sequence_check', sql`last_sequence >= 0`),
    check(
      'sessions_parent_check',
      sql`num_nulls(parent_session_id, parent_invocation_id, parent_call_id, root_session_id) = case when depth = 0 then 4 else 0 end`,
    ),
    foreignKey({
      name: 'sessions_parent_fkey',
      columns: [t.appName, t.userId, t.parentSessionId],
      foreignColumns: [t.appName, t.userId, t.id],
    }).onDelete('cascade'),
    ofUserPolicy(),
  ],
);

/** Foreign key to the session; rows are deleted with it. */
export const sessionKey = (name: string, t: Record<'appName' | 'userId' | 'sessionId', ExtraConfigColumn>) =>
  foreignKey({
    name,
    columns: [t.appName, t.userId, t.sessionId],
    foreignColumns: [sessions.appName, sessions.userId, sessions.id],
  }).onDelete('cascade');

export const events = table(
  'events',
  'Events of conversations. Order by sequence, never by time.',
  (c) => ({
    ...ofSession(),
    sequence: c.integer('sequence').notNull().comment('1, 2, 3 … per session, without gap or tie.'),
    id: identifier('id').notNull().comment('Event identifier, unique within its session.'),
    invocationId: identifier('invocation_id').notNull().comment('Invocation that wrote the event.'),
    author: c.text('author').notNull().comment('user, or the name of the agent.'),
    eventTime: time('event_time').notNull().comment('The timestamp of the payload; imported events keep their own.'),
    isFromRuntime: c
      .boolean('is_from_runtime')
      .notNull()
      .default(false)
      .comment(
        'True if the runtime made the event; false if a request sent it, whatever author it names. False for events older than this column.',
      ),
    payload: json('payload')
      .notNull()
      .comment("The event in the API's format. U+E000 and four hex digits encode a code unit that jsonb refuses."),
    bytes: c.integer('bytes').notNull().comment('Size of the payload as text, bytes.'),
  }),
  (t) => [
    primaryKey({ name: 'events_pkey', columns: [t.appName, t.userId, t.sessionId, t.sequence] }),
    unique('events_id_key').on(t.appName, t.userId, t.sessionId, t.id),
    sessionKey('events_session_fkey', t),
    ofUserPolicy(),
  ],
);

export const eventDeltas = table(
  'event_deltas',
  'Streamed text of incomplete events, in chunks, for followers of a session. Replaced by the complete event.',
  (c) => ({
    ...ofSession(),
    number: c
      .bigint('number', { mode: 'number' })
      .notNull()
      .comment("Order of a session's chunks: microseconds since 1970, or the previous number plus one. Never reused."),
    leaseToken: c
      .uuid('lease_token')
      .notNull()
      .comment('Lease under which it was written. Valid while it equals sessions.lease_token.'),
    eventId: identifier('event_id').notNull().comment('Id of the complete event to come.'),
    payload: c.text('payload').notNull().comment("The chunk in the API's format: a partial event, JSON."),
  }),
  (t) => [
    primaryKey({ name: 'event_deltas_pkey', columns: [t.appName, t.userId, t.sessionId, t.number] }),
    sessionKey('event_deltas_session_fkey', t),
    ofUserPolicy(),
  ],
);

export const userStates = table(
  'user_states',
  'State keys with the prefix user:, shared by all sessions of a user in an application.',
  () => ({
    ...ofUser(),
    state: json('state').notNull().comment('Keys with their prefix; merged in SQL.'),
    updateTime: timeOfChange('update_time').comment('Last merge.'),
  }),
  (t) => [primaryKey({ name: 'user_states_pkey', columns: [t.appName, t.userId] }), ofUserPolicy()],
);

export const appStates = table(
  'app_states',
  'State keys with the prefix app:, shared by all users of an application.',
  () => ({
    appName: identifier('app_name').primaryKey().comment('Application.'),
    state: json('state').notNull().comment('Keys with their prefix; merged in SQL.'),
    writers: json('writers')
      .notNull()
      .default(emptyObject)
      .comment(
        'By key: the user in whose session an agent last wrote it. Keys without an entry were written by the operator.',
      ),
    updateTime: timeOfChange('update_time').comment('Last merge.'),
  }),
);

export const artifacts = table(
  'artifacts',
  'One row per artifact name and scope; version numbers are assigned under its row lock.',
  (c) => ({
    ...ofSession('Session, or empty for an artifact of the user (name begins with user:).', 'Owner.'),
    name: identifier('name').notNull().comment('Artifact name as it was sent.'),
    nextVersion: c
      .integer('next_version')
      .notNull()
      .comment('Number of the next version; never reused, even after a delete.'),
  }),
  (t) => [primaryKey({ name: 'artifacts_pkey', columns: [t.appName, t.userId, t.sessionId, t.name] }), ofUserPolicy()],
);

export const artifactVersions = table(
  'artifact_versions',
  'Versions of artifacts with their content.',
  (c) => ({
    ...ofSession('Session, or empty for an artifact of the user.', 'Owner.'),
    artifactName: identifier('artifact_name').notNull().comment('Artifact name.'),
    version: c.integer('version').notNull().comment('0, 1, 2 … per artifact.'),
    canonicalUri: c.text('canonical_uri').notNull().comment('URI of the content.'),
    mimeType: anyText('mime_type').comment('MIME type of the content.'),
    customMetadata: json('custom_metadata')
      .notNull()
      .default(emptyObject)
      .comment('Free-form members sent with the save.'),
    part: json('part').notNull().comment('The part as it was sent, without its bytes.'),
    content: bytes('content').comment(
      'The bytes; null if they are in the object store, or the part references a file elsewhere.',
    ),
    objectKey: c.text('object_key').comment('Key of the content in the object store; null if it is not stored there.'),
    sizeBytes: c.integer('size_bytes').notNull().comment('Length of the content in bytes.'),
    sha256: bytes('sha256').notNull().comment('SHA-256 of the content.'),
    createTime: timeOfChange('create_time').comment('When the version was saved.'),
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
    ofUserPolicy(),
  ],
);

export const memories = table(
  'memories',
  'Memories of users: events of sessions, searchable by words.',
  (c) => ({
    ...ofSession('Session of the event; may be deleted by now.', 'User.'),
    eventId: identifier('event_id').notNull().comment('The event.'),
    author: c.text('author').notNull().comment('Author of the event.'),
    content: json('content').notNull().comment('The content of the event.'),
    eventTime: time('event_time').notNull().comment('Timestamp of the event.'),
    searchVector: searchVector('search_vector').notNull().comment('Words for full-text search, configuration simple.'),
    // The embedding is an array instead of pgvector's type, so that migrations and dumps need no extension.
    embedding: c
      .real('embedding')
      .array()
      .comment('Embedding vector; null if not embedded yet, or the model refused the text.'),
    embeddingModel: c
      .text('embedding_model')
      .comment('Model and dimensions of the vector, or of the model that refused the text.'),
  }),
  (t) => [
    primaryKey({ name: 'memories_pkey', columns: [t.appName, t.userId, t.sessionId, t.eventId] }),
    index('memories_embedding_idx').on(t.appName, t.userId, t.eventTime).where(sql`embedding is not null`),
    // The index includes the user, so that a search does not read other users' entries with the same words.
    index('memories_search_idx').using(
      'gin',
      sql`(search_vector || array_to_tsvector(array[md5(app_name || chr(1) || user_id)]))`,
    ),
    ofUserPolicy(),
  ],
);

export const idempotencyKeys = table(
  'idempotency_keys',
  'Stored answers to requests with an Idempotency-Key, for a day; those of invocations are in invocations.',
  (c) => ({
    ...ofUser('User of the request; empty if none.', 'Application of the request; empty if none.'),
    scope: identifier('scope').notNull().comment('Operation and caller.'),
    key: identifier('key').notNull().comment('Idempotency-Key of the request.'),
    requestHash: c
      .text('request_hash')
      .notNull()
      .comment('SHA-256 of the request; distinguishes a retry from another request with the same key.'),
    responseBody: anyText('response_body').notNull().comment('The response as sent; a retry receives the same bytes.'),
    sessionId: identifier('session_id').comment(
      'Session of the answer; null if none. When it is deleted the answer is cleared, and a retry receives 404.',
    ),
    createTime: timeOfChange('create_time').comment('When the request was answered.'),
  }),
  (t) => [
    primaryKey({ name: 'idempotency_keys_pkey', columns: [t.appName, t.userId, t.scope, t.key] }),
    index('idempotency_keys_age_idx').on(t.createTime),
    index('idempotency_keys_session_idx').on(t.appName, t.userId, t.sessionId).where(sql`session_id is not null`),
    ofUserPolicy(),
  ],
);

export const legalHolds = table(
  'legal_holds',
  'Legal holds: data that nobody may delete, of a user or of one session. Enforced by triggers.',
  () => ({
    ...ofSession('The session; empty for all data of the user.', 'User.'),
    reason: anyText('reason').notNull().comment('Reason, a free text.'),
    createTime: secondsOfChange('create_time').comment('When it was set.'),
  }),
  (t) => [primaryKey({ name: 'legal_holds_pkey', columns: [t.appName, t.userId, t.sessionId] }), ofUserPolicy()],
);

export const userErasures = table(
  'user_erasures',
  'Users being erased. The row is deleted with their last data; until then triggers refuse new data.',
  (c) => ({
    ...ofUser(),
    counts: json('counts').notNull().default(emptyObject).comment('Rows deleted so far, by table.'),
    webhookId: c.text('webhook_id').comment('Webhook to notify when done; null for none.'),
    createTime: timeOfChange('create_time').comment('First request.'),
    updateTime: timeOfChange('update_time').comment('Last progress; the sweeper resumes abandoned erasures.'),
  }),
  (t) => [
    primaryKey({ name: 'user_erasures_pkey', columns: [t.appName, t.userId] }),
    index('user_erasures_age_idx').on(t.updateTime),
    ofUserPolicy(),
  ],
);

export const userStorage = table(
  'user_storage',
  'Bytes stored by each user, in shards; the sum counts.',
  (c) => ({
    ...ofUser(),
    shard: c.smallint('shard').notNull().comment('Shard; each connection uses one.'),
    eventBytes: c
      .bigint('event_bytes', { mode: 'number' })
      .notNull()
      .comment(
        'Bytes of JSON of events, session states and queued requests; negative if another shard had counted data deleted since.',
      ),
    artifactBytes: c
      .bigint('artifact_bytes', { mode: 'number' })
      .notNull()
      .comment('Versions of artifacts with their metadata, in the database or in a bucket.'),
    memoryBytes: c
      .bigint('memory_bytes', { mode: 'number' })
      .notNull()
      .comment('Bytes of JSON of memories, without their search index.'),
  }),
  (t) => [primaryKey({ name: 'user_storage_pkey', columns: [t.appName, t.userId, t.shard] }), ofUserPolicy()],
);
