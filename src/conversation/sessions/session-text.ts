import { type SQL, sql } from 'drizzle-orm';
import { type AnyPgColumn, alias } from 'drizzle-orm/pg-core';
import { appStates, events, sessions, userStates } from '../../platform/db/schema/schema.ts';
import { MAX_FIRST_TEXT } from './append-store.ts';
import { type GivenSession, type GivenUser, isSession } from './session-key.ts';

/** The row of sessions in every statement that is made of these parts. */
export const s = alias(sessions, 's');
const a = alias(appStates, 'a');
const u = alias(userStates, 'u');

/** The table of sessions with the two shared states of a user joined. */
export const withStates = ({ appName, userId }: GivenUser): SQL => sql`${sessions} ${s}
  left join ${appStates} ${a} on ${a.appName} = ${appName}
  left join ${userStates} ${u} on ${u.appName} = ${appName} and ${u.userId} = ${userId}`;
/** The state as the wire shows it: keys are stored with their prefix, so that the scopes merge without renaming. */
export const mergedState = sql`(${s.state} || coalesce(${a.state}, '{}') || coalesce(${u.state}, '{}'))`;

/** About the size of a jsonb value as text, without writing it: it may be compressed to a hundredth. */
export const estimatedBytes = (column: AnyPgColumn): SQL => sql`20 * pg_column_size(${column})`;

/** Replacements of columns in a session's text. */
interface TextOptions {
  state?: SQL;
  updateTime?: SQL | AnyPgColumn;
  lastSequence?: SQL | AnyPgColumn;
  firstText?: SQL | AnyPgColumn;
  /** True: with the members that are told only to those who want them. */
  withDetails?: boolean;
}

/** The JSON text of a session before and after the text of its events. */
export function sessionTexts({
  state = mergedState,
  updateTime = s.updateTime,
  lastSequence = s.lastSequence,
  firstText = s.firstText,
  withDetails = false,
}: TextOptions): [SQL, SQL] {
  const details = sql` || ',"createTime":' || extract(epoch from ${s.createTime}) ||
    ',"lastSequence":' || ${lastSequence} || ',"labels":' || ${s.labels} ||
    ',"firstText":' || to_json(coalesce(${firstText}, '')) ||
    coalesce(',"forkedFrom":{"sessionId":' || to_json(${s.forkedFromId}) ||
             ',"atSequence":' || ${s.forkedFromSequence} || '}', '')`;
  return [
    sql`'{"id":' || to_json(${s.id}) || ',"appName":' || to_json(${s.appName}) ||
    ',"userId":' || to_json(${s.userId}) || ',"state":' || ${state} || ',"events":['`,
    sql`'],"lastUpdateTime":' || extract(epoch from ${updateTime}) ${withDetails ? details : sql``} || '}'`,
  ];
}

/** The version of a row: its last change in microseconds. Each change moves it on. */
export const rowVersion = ({ updateTime }: { updateTime: AnyPgColumn }): SQL<string> =>
  sql<string>`row_version(${updateTime})`;

/** The ETag of session `s` with its shared states joined: `"session.app.user"`. */
export const sessionEtag = sql<string>`session_etag(${s.updateTime}, ${a.updateTime}, ${u.updateTime})`;

/* Session `s` as it was after its event `n`, which may be 0. */

/** The last sequence before the first event later than a time: clients may give events any time. */
export const sequenceAt = (key: GivenSession, seconds: SQL): SQL => sql`coalesce((
  select min(${events.sequence}) - 1 from ${events}
  where ${isSession(key, events)} and ${events.eventTime} > to_timestamp(${seconds})), ${s.lastSequence})`;

const stateDelta = sql`case jsonb_typeof(${events.payload} #> '{actions,stateDelta}')
  when 'object' then ${events.payload} #> '{actions,stateDelta}' else '{}' end`;

/** All that the events up to `n` set, as one object, later ones winning; `which` is a condition on `changed.key`. */
const changesUpTo = (key: GivenSession, n: SQL, which: SQL): SQL => sql`coalesce((
  select jsonb_object_agg(key, value) from (
    select distinct on (changed.key) changed.key, changed.value
    from ${events} cross join lateral jsonb_each(${stateDelta}) changed
    where ${isSession(key, events)} and ${events.sequence} <= ${n} and ${which}
    order by changed.key, ${events.sequence} desc) latest), '{}')`;

const isShared = sql`(starts_with(changed.key, 'user:') or starts_with(changed.key, 'app:'))`;

/** The state of the session's own, without what it shares. */
export const ownStateAt = (key: GivenSession, n: SQL): SQL => sql`case when ${n} = ${s.lastSequence} then ${s.state}
  else ${s.initialState} || ${changesUpTo(key, n, sql`not ${isShared}`)} end`;

/** The state as the wire shows it; shared scopes have no history but that of the session's own events. */
export const stateAt = (key: GivenSession, n: SQL): SQL =>
  sql`(${ownStateAt(key, n)} || ${changesUpTo(key, n, isShared)})`;

/** The time of the session then: of the event, or of the creation. */
export const timeAt = (
  key: GivenSession,
  n: SQL,
): SQL => sql`case when ${n} = ${s.lastSequence} then ${s.updateTime} else coalesce((
  select ${events.eventTime} from ${events}
  where ${isSession(key, events)} and ${events.sequence} = ${n}), ${s.createTime}) end`;

/** The first text of a session as it was after event `n`; null where there is none. */
export const firstTextAt = (key: GivenSession, n: SQL): SQL => sql`(
  select left(said.text, ${sql.raw(String(MAX_FIRST_TEXT))})
  from ${events}, lateral (
    select string_agg(part ->> 'text', ' ') as text
    from jsonb_array_elements(${events.payload} #> '{content,parts}') part) said
  where ${isSession(key, events)} and ${events.sequence} <= ${n} and ${events.author} = 'user'
    and jsonb_typeof(${events.payload} #> '{content,parts}') = 'array' and said.text <> ''
  order by ${events.sequence} limit 1)`;
