import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import type { Database } from '../../platform/db/database.ts';
import { escapeText, unescapeJson } from '../../platform/db/json-escape.ts';
import { memoryJobs, memories } from '../../platform/db/schema/schema.ts';
import { bytesBefore, getKey, insertSelect } from '../../platform/db/sql.ts';
import { saidInSession } from '../sessions/event-store.ts';
import { isSession } from '../sessions/session-key.ts';
import { heldSession } from '../sessions/session-lease.ts';
import { limitedBytes } from '../storage/storage-store.ts';
import type { SessionKey } from '../../core/session.ts';

/** Bytes of an event that is remembered whole; of a larger one only as many characters of its text. */
export const MAX_MEMORY = 65_536;
/** Bytes of events that one statement adds, but for a first larger one: some tenths of a second of the database. */
const BATCH_BYTES = 262_144;
/** Bytes of the memories that a search finds, but for a first larger one. */
export const MAX_FOUND_BYTES = 524_288;
/** Matches that a search ranks, the newest of a user, and bytes of their words, but for a first larger one. */
export const MAX_RANKED = 5_000;
const MAX_RANKED_BYTES = 8_388_608;
/** Places of each list that are fused: as many as a search may ask for. */
const MAX_FUSED = 100;
/**
 * The constant of reciprocal rank fusion, and the weight of words beside meaning: any word matches, `the` too. Of 60
 * questions (test/data/memory) 47 have their answer among the first five: 14 by words alone, 48 by meaning alone, 30
 * with the usual 60 and 1.
 */
const RANK_CONSTANT = 10;
const WORDS_WEIGHT = 0.5;

/** The words of a memory and its user, as `memories_search_idx` has them. */
const INDEXED = sql`(${memories.searchVector} || array_to_tsvector(array[
  md5(${memories.appName} || chr(1) || ${memories.userId})]))`;

/**
 * Adds what was said in a session after a sequence to its user's memory, one batch; events that are there already stay
 * as they are. One statement, which holds the session meanwhile: nothing is added of one that is being deleted.
 * @param embeds true: what its user remembers and has no vector is due to get one
 * @param only the events that are added [all]
 * @returns the sequence to go on after, `null` after the last; `undefined` when there is no such session.
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
  // The end of a job under way sees that it began anew.
  const due = sql`due as (
    insert into ${memoryJobs} (app_name, user_id) select ${key.appName}, ${key.userId} from held
    on conflict (app_name, user_id, session_id, invocation_id) do update set attempts = 0),`;
  const { rows } = await db.execute<{ last: number | null }>(sql`
    with held as materialized (${heldSession(key)}),
    ${embeds ? due : sql``}
    said as materialized (${saidInSession(key, after, BATCH_BYTES, isAdded)}),
    checked as materialized (
      select ${limitedBytes(db, key, sql`sum(octet_length((${content})::text))`)}
      from said where said.text is not null having count(*) > 0),
    added as (${insert} from held, said, checked where said.text is not null on conflict do nothing)
    select (select max(sequence) from said) as last from held`);
  return rows[0]?.last;
}

/** Notes that memories of a user may have no vectors. */
export async function embedLater(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<void> {
  const target = getKey(memoryJobs);
  await db
    .insert(memoryJobs)
    .values({ appName, userId })
    .onConflictDoUpdate({ target, set: { attempts: 0 } });
}

/** Forgets what was said in a session; forgetting what is not there does nothing. */
export async function deleteMemories(db: Database, key: SessionKey): Promise<void> {
  await db.delete(memories).where(isSession(key, memories));
}

/** A text that is looked for as a vector, among the memories with vectors of the same model. */
export interface Near {
  vector: number[];
  /** Model and dimensions. */
  model: string;
  /** The schema of pgvector. */
  schema: string;
}

/**
 * The memories of a user nearest to a vector, as `near`. Exact, and no index of vectors: one over all users would find
 * the nearest of all and lose this user's among them, while those of one user are few. The newest
 * {@link MAX_RANKED} are compared, 10 ms for 256 numbers each and 53 for 1,536 (in plain SQL over arrays 261 and 821).
 */
function findNear({ appName, userId }: Pick<SessionKey, 'appName' | 'userId'>, { vector, model, schema }: Near): SQL {
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
 * Finds memories of this user of this app that hold any of the words, best first, then newest; with `near` those of a
 * like meaning too. At most `limit`, fewer where they are large. Each is the JSON text of an object with `author`,
 * `content` and `timestamp`, which is ISO 8601.
 */
export async function searchMemories(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  query: string,
  limit: number,
  near?: Near,
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
