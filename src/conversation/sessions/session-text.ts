import { type SQL, sql } from 'drizzle-orm';
import { type AnyPgColumn, alias } from 'drizzle-orm/pg-core';
import { appStates, sessions, userStates } from '../../platform/db/schema/schema.ts';
import type { GivenUser } from './session-key.ts';

/** The row of sessions in every statement that is made of these parts. */
export const s = alias(sessions, 's');
const a = alias(appStates, 'a');
const u = alias(userStates, 'u');

/** Joins the two shared states to rows of a user's sessions that stand in front of it. */
export const statesOf = ({ appName, userId }: GivenUser): SQL => sql`${s}
  left join ${appStates} ${a} on ${a.appName} = ${appName}
  left join ${userStates} ${u} on ${u.appName} = ${appName} and ${u.userId} = ${userId}`;
/** The table of sessions with the two shared states of a user joined. */
export const withStates = (user: GivenUser): SQL => sql`${sessions} ${statesOf(user)}`;
/** The state as the wire shows it: keys are stored with their prefix, so that the scopes merge without renaming. */
export const mergedState = sql`(${s.state} || coalesce(${a.state}, '{}') || coalesce(${u.state}, '{}'))`;

/**
 * About the size of a jsonb value as text, without writing it: what is stored may be compressed to a hundredth, so that
 * what this takes for 1 MiB is at most some 5 MiB.
 */
export const estimatedBytes = (column: AnyPgColumn): SQL => sql`20 * pg_column_size(${column})`;

/** What of a session's text is not as the row says it. */
interface TextOptions {
  state?: SQL;
  updateTime?: SQL | AnyPgColumn;
  lastSequence?: SQL | AnyPgColumn;
  firstText: SQL;
  /** True: with the members that are told only to those who want them. */
  withDetails?: boolean;
}

/** The JSON text of a session before and after the text of its events. */
export function sessionTexts({
  state = mergedState,
  updateTime = s.updateTime,
  lastSequence = s.lastSequence,
  firstText,
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
export const versionOf = ({ updateTime }: { updateTime: AnyPgColumn | SQL }): SQL<string> =>
  sql<string>`to_hex((extract(epoch from ${updateTime} at time zone 'utc') * 1000000)::bigint)`;

/** The ETag of session `s` with its shared states joined: `"session.app.user"`. */
export const etagOf = sql<string>`'"' || ${versionOf(s)} || '.' || coalesce(${versionOf(a)}, '') || '.' ||
  coalesce(${versionOf(u)}, '') || '"'`;
