import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { Database } from '../../platform/db/database.ts';
import { escapeText, unescapeJson } from '../../platform/json-escape.ts';
import { memories } from '../../platform/db/schema/schema.ts';
import { bytesBefore, insertSelect } from '../../platform/db/sql.ts';
import { addsJob } from '../../platform/jobs/job-store.ts';
import { sessionWords } from '../../conversation/sessions/event-store.ts';
import { isSession, sessionLock } from '../../conversation/sessions/session-row.ts';
import { limitedBytes } from '../../conversation/storage/storage-store.ts';
import type { SessionKey } from '../../core/session.ts';
import { MEMORY_JOB } from '../../invocations/memory.ts';

/** Maximum bytes of an event that memory stores whole. Of a larger event it stores this many characters of text. */
export const MAX_MEMORY = 65_536;
/** Maximum bytes of events added per statement, which takes some tenths of a second. The first event may exceed it. */
const BATCH_BYTES = 262_144;
/** Maximum bytes of a search result. The first memory may exceed it. */
export const MAX_FOUND_BYTES = 524_288;
/** Maximum number of matches that a search ranks (the newest), and maximum bytes of their word vectors. */
export const MAX_RANKED = 5_000;
const MAX_RANKED_BYTES = 8_388_608;
/** Maximum number of memories in a search result, taken from each of the two rankings before they are merged. */
const MAX_FUSED = 100;
/**
 * Constant of reciprocal rank fusion, and the weight of the ranking by words relative to the ranking by meaning. Words
 * weigh less, because any word matches, even "the". Of 60 test questions (test/data/memory), 47 have their answer among
 * the first five results with these values; 14 by words only, 48 by meaning only, 30 with the usual constants 60 and 1.
 */
const RANK_CONSTANT = 10;
const WORDS_WEIGHT = 0.5;

/** SQL: the expression indexed by `memories_search_idx`: the memory's words, and a hash of its user. */
const INDEXED = sql`(${memories.searchVector} || array_to_tsvector(array[
  md5(${memories.appName} || chr(1) || ${memories.userId})]))`;

type User = Pick<SessionKey, 'appName' | 'userId'>;

/** Id of a user's memory job that embeds all memories of the user; that of any other names a session and an invocation. */
export const EMBEDS_USER = '';

const addsEmbedding = ({ appName, userId }: User) => addsJob(MEMORY_JOB, { appName, userId, id: EMBEDS_USER });

/**
 * Adds a session's events to its user's memory. One statement locks the session, so that nothing is added while
 * the session is being deleted.
 * @param after - sequence of the last event that was handled
 * @param embeds - true: also schedule the embedding of the user's memories
 * @returns the sequence to continue after, `null` at the end, `undefined` if the session does not exist
 */
export async function addToMemory(
  db: Database,
  key: SessionKey,
  after: number,
  embeds = false,
  only?: string[],
): Promise<number | null | undefined> {
  const head = sql`left(said.text, ${MAX_MEMORY})`;
  const content = sql`case when said.bytes <= ${MAX_MEMORY} then said.content else jsonb_build_object(
      'role', said.content -> 'role', 'parts', jsonb_build_array(jsonb_build_object('text', ${head}))) end`;
  const insert = insertSelect(memories, {
    appName: key.appName,
    userId: key.userId,
    sessionId: key.sessionId,
    eventId: sql`said.id`,
    author: sql`said.author`,
    content,
    eventTime: sql`said.event_time`,
    searchVector: sql`memory_words(${head}, true)`,
  });
  const isAdded = (eventId: AnyPgColumn) =>
    sql`(exists (select from ${memories} where ${isSession(key, memories)} and ${memories.eventId} = ${eventId})
      ${only ? sql`or ${eventId} <> all(${sql.param(only)}::text[])` : sql``})`;
  const { rows } = await db.execute<{ last: number | null }>(sql`
    with held as materialized (${sessionLock(key)}),
    said as materialized (${sessionWords(key, after, BATCH_BYTES, isAdded)}),
    checked as materialized (
      select ${limitedBytes(db, key, sql`sum(octet_length((${content})::text))`)}
      from said where said.text is not null having count(*) > 0),
    added as (${insert} from held, said, checked where said.text is not null on conflict do nothing)
    select (select max(sequence) from said) as last ${embeds ? sql`, ${addsEmbedding(key)}` : sql``} from held`);
  return rows[0]?.last;
}

export async function embedLater(db: Database, user: User): Promise<void> {
  await db.execute(sql`select ${addsEmbedding(user)}`);
}

export async function deleteMemories(db: Database, key: SessionKey): Promise<void> {
  await db.delete(memories).where(isSession(key, memories));
}

/** The vector of a search query, compared with memories that the same model embedded. */
export interface VectorQuery {
  vector: number[];
  model: string;
  schema: string;
}

/**
 * SQL: the user's memories nearest to a vector, as `near`. It compares vectors exactly, without a vector index: an
 * index over all users would mostly return other users' memories, and a single user has few. The newest {@link
 * MAX_RANKED} are compared, in 10 ms with 256 dimensions and 53 ms with 1,536 (plain SQL over arrays: 261 and 821 ms).
 */
function findNear({ appName, userId }: User, { vector, model, schema }: VectorQuery): SQL {
  const [type, distance] = [sql`${sql.identifier(schema)}.vector`, sql`operator(${sql.identifier(schema)}.<=>)`];
  return sql`near as materialized (
    select author, content, event_time, session_id, event_id, row_number() over (
      order by embedding::${type} ${distance} ${sql.param(vector)}::real[]::${type}) as place
    from (
      select * from ${memories}
      where ${memories.appName} = ${appName} and ${memories.userId} = ${userId} and ${memories.embedding} is not null
        and ${memories.embeddingModel} = ${model} and cardinality(${memories.embedding}) = ${vector.length}
      order by ${memories.eventTime} desc limit ${MAX_RANKED}) compared
    order by place limit ${MAX_FUSED}),`;
}

/**
 * Finds a user's memories that contain any of the words, best match first, then newest; with `near`, also memories of
 * similar meaning. Returns at most `limit`, fewer if they are large. Each memory is JSON with `author`, `content` and
 * an ISO 8601 `timestamp`.
 */
export async function searchMemories(
  db: Database,
  { appName, userId }: User,
  query: string,
  limit: number,
  near?: VectorQuery,
): Promise<string[]> {
  const byTime = sql`${memories.eventTime} desc, ${memories.sessionId}, ${memories.eventId}`;
  const time = sql`to_char(found.event_time at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
  const fused = sql`
    select author, content, event_time, row_number() over (
      order by score desc, event_time desc, session_id, event_id) as place
    from (
      select *, sum(weight / (${RANK_CONSTANT} + place)) over same as score, row_number() over same as copy
      from (select *, ${WORDS_WEIGHT}::float8 as weight from matched union all select *, 1 from near) lists
      window same as (partition by session_id, event_id)) scored
    where copy = 1 order by place limit ${limit}`;
  const { rows } = await db.execute<{ text: string }>(sql`
    with wanted as not materialized (
      select memory_words_asked(${escapeText(query)}) as words),
    newest as materialized (
      select ${memories}.*, ${bytesBefore(sql`pg_column_size(${memories.searchVector})`, byTime)} as bytes_before
      from ${memories}, wanted
      where ${memories.appName} = ${appName} and ${memories.userId} = ${userId} and ${memories.searchVector} @@ words
        and ${INDEXED} @@ (words && md5(${appName} || chr(1) || ${userId})::tsquery)
      order by ${byTime} limit ${MAX_RANKED}),
    ${near ? findNear({ appName, userId }, near) : sql``}
    ${near ? sql`matched` : sql`found`} as materialized (
      select author, content, event_time, session_id, event_id, row_number() over (
        order by ts_rank(search_vector, words) desc, event_time desc, session_id, event_id
      ) as place from newest, wanted where bytes_before < ${MAX_RANKED_BYTES}
      order by place limit ${near ? MAX_FUSED : limit}),
    ${near ? sql`found as materialized (${fused}),` : sql``}
    sized as (
      select text, place, ${bytesBefore(sql`octet_length(text)`, sql`place`)} as bytes_before
      from found, lateral (select json_build_object(
        'author', found.author, 'content', found.content, 'timestamp', ${time})::text as text) printed)
    select text from sized where bytes_before < ${MAX_FOUND_BYTES} order by place`);
  return rows.map(({ text }) => unescapeJson(text));
}
