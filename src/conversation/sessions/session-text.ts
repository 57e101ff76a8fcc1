import { type SQL, sql } from 'drizzle-orm';
import { type AnyPgColumn, alias } from 'drizzle-orm/pg-core';
import { appStates, events, sessions, userStates } from '../../platform/db/schema/schema.ts';
import { type SessionRef, type UserRef, isSession } from './session-row.ts';

/** Maximum length of a session's first text in code points. */
export const MAX_FIRST_TEXT = 200;

export const s = alias(sessions, 's');
const a = alias(appStates, 'a');
const u = alias(userStates, 'u');

export const withStates = ({ appName, userId }: UserRef): SQL => sql`${sessions} ${s}
  left join ${appStates} ${a} on ${a.appName} = ${appName}
  left join ${userStates} ${u} on ${u.appName} = ${appName} and ${u.userId} = ${userId}`;
/** SQL: the merged state as the API returns it. Keys are stored with their prefix, so merging needs no renaming. */
export const mergedState = sql`(${s.state} || coalesce(${a.state}, '{}') || coalesce(${u.state}, '{}'))`;

/** Guesses a jsonb value's text size without serialising it; stored values may be compressed to a hundredth. */
export const estimatedBytes = (column: AnyPgColumn): SQL => sql`20 * pg_column_size(${column})`;

/** SQL expressions used in place of columns of the session's row, for a session as it was earlier. */
interface TextOptions {
  /** The members `appName` and `userId`; a list has them once as a parameter. */
  owner?: SQL;
  state?: SQL;
  updateTime?: SQL | AnyPgColumn;
  lastSequence?: SQL | AnyPgColumn;
  firstText?: SQL | AnyPgColumn;
  /** True: include the optional members of the type Session. */
  withDetails?: boolean;
}

/**
 * SQL: a session's JSON before and after its events, as arguments of `concat`, which copies the text once; each `||`
 * would copy what is before it.
 */
export function sessionTexts({
  owner = sql`'"appName":', to_json(${s.appName}), ',"userId":', to_json(${s.userId})`,
  state = mergedState,
  updateTime = s.updateTime,
  lastSequence = s.lastSequence,
  firstText = s.firstText,
  withDetails = false,
}: TextOptions): [SQL, SQL] {
  const details = sql`',"createTime":', extract(epoch from ${s.createTime}),
    ',"lastSequence":', ${lastSequence}, ',"labels":', ${s.labels},
    ',"firstText":', to_json(coalesce(${firstText}, '')),
    ',"forkedFrom":{"sessionId":' || to_json(${s.forkedFromId}) || ',"atSequence":' || ${s.forkedFromSequence} || '}',
    ',"parent":{"sessionId":' || to_json(${s.parentSessionId}) || ',"invocationId":' || to_json(${s.parentInvocationId}) ||
      ',"callId":' || to_json(${s.parentCallId}) || ',"rootSessionId":' || to_json(${s.rootSessionId}) || '}',`;
  return [
    sql`'{"id":', to_json(${s.id}), ',', ${owner}, ',"state":', ${state}, ',"events":['`,
    sql`'],"lastUpdateTime":', extract(epoch from ${updateTime}), ${withDetails ? details : sql``} '}'`,
  ];
}

/** SQL: a row's version, the time of its last change in microseconds; every change increases it. */
export const rowVersion = ({ updateTime }: { updateTime: AnyPgColumn }): SQL<string> =>
  sql<string>`row_version(${updateTime})`;

/** SQL: the ETag `"session.app.user"` of session `s`; the statement must join the shared states. */
export const sessionEtag = sql<string>`session_etag(${s.updateTime}, ${a.updateTime}, ${u.updateTime})`;

// The fragments below describe session `s` as it was after the event with sequence `n`; 0 is before the first event.

/** SQL: the sequence before the first event after a time; events may be out of order, as clients choose timestamps. */
export const sequenceAt = (key: SessionRef, seconds: SQL): SQL => sql`coalesce((
  select min(${events.sequence}) - 1 from ${events}
  where ${isSession(key, events)} and ${events.eventTime} > to_timestamp(${seconds})), ${s.lastSequence})`;

const stateDelta = sql`case jsonb_typeof(${events.payload} #> '{actions,stateDelta}')
  when 'object' then ${events.payload} #> '{actions,stateDelta}' else '{}' end`;

/** SQL: merged state deltas up to sequence `n`, later values winning. @param which - condition on `changed.key` */
const changesUpTo = (key: SessionRef, n: SQL, which: SQL): SQL => sql`coalesce((
  select jsonb_object_agg(key, value) from (
    select distinct on (changed.key) changed.key, changed.value
    from ${events} cross join lateral jsonb_each(${stateDelta}) changed
    where ${isSession(key, events)} and ${events.sequence} <= ${n} and ${which}
    order by changed.key, ${events.sequence} desc) latest), '{}')`;

const isShared = sql`(starts_with(changed.key, 'user:') or starts_with(changed.key, 'app:'))`;

/** SQL: the session's own state at sequence `n`, without the shared states. */
export const ownStateAt = (key: SessionRef, n: SQL): SQL => sql`case when ${n} = ${s.lastSequence} then ${s.state}
  else ${s.initialState} || ${changesUpTo(key, n, sql`not ${isShared}`)} end`;

/** SQL: the merged state at sequence `n`. Of the shared states only the changes by this session's events are known. */
export const stateAt = (key: SessionRef, n: SQL): SQL =>
  sql`(${ownStateAt(key, n)} || ${changesUpTo(key, n, isShared)})`;

/** SQL: the session's update time at sequence `n`: the time of event `n`, or the session's creation for 0. */
export const timeAt = (
  key: SessionRef,
  n: SQL,
): SQL => sql`case when ${n} = ${s.lastSequence} then ${s.updateTime} else coalesce((
  select ${events.eventTime} from ${events}
  where ${isSession(key, events)} and ${events.sequence} = ${n}), ${s.createTime}) end`;

/** SQL: the user's first text up to sequence `n`; null if there is none. */
export const firstTextAt = (key: SessionRef, n: SQL): SQL => sql`(
  select left(said.text, ${sql.raw(String(MAX_FIRST_TEXT))})
  from ${events}, lateral (
    select string_agg(part ->> 'text', ' ') as text
    from jsonb_array_elements(${events.payload} #> '{content,parts}') part) said
  where ${isSession(key, events)} and ${events.sequence} <= ${n} and ${events.author} = 'user'
    and jsonb_typeof(${events.payload} #> '{content,parts}') = 'array' and said.text <> ''
  order by ${events.sequence} limit 1)`;
