import { type Placeholder, type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { assignments, excluded, insertSelect, names } from '../../platform/db/sql.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson, escapeText } from '../../platform/db/json-escape.ts';
import type { RowLimits } from '../../platform/db/row-limits.ts';
import { emptyObject } from '../../platform/db/schema/columns.ts';
import { appStates, events as eventTable, sessions, userStates } from '../../platform/db/schema/schema.ts';
import type { JsonObject } from '../../core/content.ts';
import type { NewEvent } from '../../core/event.ts';
import { isEvalSession, type ScopedDelta, type SessionKey, splitDelta, withoutTemporary } from '../../core/session.ts';
import { firstTextIn, keptFirstText, nextFirstText } from './event-first-text.ts';
import { isSession, type KEY } from './session-key.ts';

/** Events on their way into one statement, with the state change that all of them make together. */
export interface EventAppend {
  key: SessionKey;
  /** JSON of the events, as an array. */
  events: string;
  count: number;
  /** JSON of the changes by scope; a scope that none changes is absent. */
  delta: { session?: string; user?: string; app?: string };
  /** JSON of the user and of who writes which `app:` key, and those keys; absent where none is written. */
  writers?: { own: string; byKey: string; names: string[] };
  /** Beginning of what a user says first in the events; absent where none does. */
  firstText: string | undefined;
  isEval: boolean;
  /** True where the runtime made the events: only what it requested itself can be confirmed. No request sets it. */
  isFromRuntime: boolean;
  limits: RowLimits;
}

/** The user whose rows a statement with an append writes. */
export const userOf = ({ append }: { append: EventAppend }): string => append.key.userId;

/**
 * Takes the events' deltas together, later ones winning, and leaves `temp:` keys out of what is stored. `toState` makes
 * another change of what they change.
 */
export function newAppend(
  { limits }: Database,
  key: SessionKey,
  events: NewEvent[],
  isFromRuntime = false,
  toState: (delta: ScopedDelta) => ScopedDelta = (delta) => delta,
): EventAppend {
  const stored = events.map(withoutTemporaryDelta);
  const merged: JsonObject = Object.create(null) as JsonObject;
  for (const event of stored) {
    for (const [name, value] of Object.entries(event.actions?.stateDelta ?? {})) merged[name] = value;
  }
  const state = toState(splitDelta(merged));
  const scopes = Object.entries(state).filter(([, delta]: [string, JsonObject]) => Object.keys(delta).length > 0);
  const byKey = Object.fromEntries(Object.keys(state.app).map((name) => [name, key.userId]));
  return {
    key,
    events: escapeJson(stored),
    count: stored.length,
    delta: Object.fromEntries(scopes.map(([scope, delta]) => [scope, escapeJson(delta)])),
    ...(Object.keys(byKey).length > 0
      ? {
          writers: { own: escapeJson(key.userId), byKey: escapeJson(byKey), names: Object.keys(byKey).map(escapeText) },
        }
      : {}),
    firstText: firstTextIn(events) || undefined,
    isEval: isEvalSession(key.sessionId),
    isFromRuntime,
    limits,
  };
}

function withoutTemporaryDelta(event: NewEvent): NewEvent {
  const delta = event.actions?.stateDelta;
  if (!delta || !Object.keys(delta).some((name) => name.startsWith('temp:'))) return event;
  return { ...event, actions: { ...event.actions, stateDelta: withoutTemporary(delta) } };
}

/**
 * The CTE `given(payload, position, bytes)` that stands before `advanced`: the events of an append and the size of each
 * as it is stored. Only the database knows it: `1e308` is 309 digits there.
 */
export const givenEvents = ({ events }: EventAppend): SQL => sql`given as materialized (
  select e.payload, e.position, octet_length(e.payload::text) as bytes
  from jsonb_array_elements(${events}::jsonb) with ordinality as e(payload, position))`;

const GIVEN_BYTES = sql`(select coalesce(sum(given.bytes), 0)::bigint from given)`;

/** The size of all events of a session; of one that an earlier version wrote, it is counted until the next append. */
export const storedBytes = (
  key: SessionKey | typeof KEY,
  row: Record<'eventBytes', AnyPgColumn>,
): SQL => sql`coalesce(${row.eventBytes}, (
  select coalesce(sum(octet_length(${eventTable.payload}::text)), 0)::bigint from ${eventTable}
  where ${isSession(key, eventTable)}))`;

/** What {@link storedBytes} counts, where an earlier version wrote the session and nobody has counted it; else 0. */
const uncountedBytes = (key: SessionKey): SQL => sql`(
  select coalesce(sum(octet_length(${eventTable.payload}::text)), 0)::bigint from ${eventTable}
  where ${isSession(key, eventTable)} and exists (
    select from ${sessions} where ${isSession(key, sessions)} and ${sessions.eventBytes} is null))`;

const newSize = (key: SessionKey) => sql`${storedBytes(key, sessions)} + ${GIVEN_BYTES}`;

/** A size of a session's events. The statement fails where it is larger than `MAX_SESSION_BYTES`. */
export const limitedSize = (size: SQL, maxBytes: number | Placeholder) =>
  sql`assert_session_size(${size}, ${maxBytes}::bigint)`;

/**
 * What an append inserts where the session is new. Where it may be there (`mayConflict`) an uncounted size is part of
 * it, since after the conflict there are no queries; counted twice, and so too large, if another append counts it in
 * the same moment.
 */
export const newSession = (
  { key, count, delta, firstText, isEval, limits }: EventAppend,
  { mayConflict = false } = {},
) => ({
  appName: key.appName,
  userId: key.userId,
  id: key.sessionId,
  state: limited(sql`${delta.session ?? '{}'}::jsonb`, limits),
  initialState: emptyObject,
  firstText: sql`${firstText ?? ''}::text`,
  lastSequence: sql`${count}::int`,
  eventBytes: limitedSize(
    mayConflict ? sql`${GIVEN_BYTES} + ${uncountedBytes(key)}` : GIVEN_BYTES,
    limits.maxSessionBytes,
  ),
  isEval: sql`${isEval}::boolean`,
});

/**
 * The time of a change of a row: `moment`, and after the change before, also where the clock went back or the statement
 * waited for a writer that began later. In UTC: to add to a time in a zone is not immutable.
 */
export const nextUpdateTime = (
  { updateTime }: { updateTime: AnyPgColumn },
  moment: SQL = sql`statement_timestamp()`,
): SQL => sql`greatest(
  (${updateTime} at time zone 'utc' + interval '1 microsecond') at time zone 'utc', ${moment})`;

/**
 * What an append sets in the row of its session: the one place that hands out sequences and moves a session's clock
 * forward. An ending (`isLast`) may exceed the size of a session: it has to be stored. After the conflict of an insert
 * there are no queries: the first text that sessions of earlier versions lack is then left to the next append.
 */
export const advanceSession = (append: EventAppend, { isLast = false, afterConflict = false } = {}) => {
  const { key, count, delta, firstText, limits } = append;
  const size = afterConflict
    ? sql`coalesce(${sessions.eventBytes}, 0) + ${excluded(sessions.eventBytes)}`
    : newSize(key);
  const toFirstText = (text: string) => (afterConflict ? keptFirstText(text) : nextFirstText(key, text));
  return {
    ...(delta.session === undefined ? {} : { state: merged(sessions.state, sql`${delta.session}::jsonb`, limits) }),
    ...(firstText === undefined ? {} : { firstText: toFirstText(firstText) }),
    lastSequence: sql`${sessions.lastSequence} + ${count}::int`,
    eventBytes: isLast ? size : limitedSize(size, limits.maxSessionBytes),
    updateTime: nextUpdateTime(sessions, afterConflict ? excluded(sessions.updateTime) : undefined),
  };
};

/** What a CTE `advanced` returns, which {@link appendEventCtes} goes on from. */
export const ADVANCED = { lastSequence: sessions.lastSequence, updateTime: sessions.updateTime };

/** What an append moves forward, as those who go on from a CTE `advanced` see it. */
export const advanced = {
  lastSequence: sql`advanced.${names(sessions.lastSequence)}`,
  updateTime: sql`advanced.${names(sessions.updateTime)}`,
};

/**
 * The CTEs that follow {@link givenEvents} and a CTE `advanced`, which returns {@link ADVANCED}: they merge the shared
 * scopes that the delta touches and insert the events as `appended(sequence, payload)`. They insert nothing when
 * `advanced` is empty.
 * Shared rows are locked in the order session, user, app (each CTE reads the one before), so that writers of several
 * scopes never deadlock.
 */
export function appendEventCtes(append: EventAppend): SQL {
  const { key, count, delta, isFromRuntime } = append;
  const touchesUser = delta.user !== undefined;
  const user = touchesUser ? sql`, user_merged as (${userMerge(append)})` : sql``;
  const after = touchesUser ? sql`where (select count(*) from user_merged) >= 0` : sql``;
  const app = delta.app === undefined ? sql`` : sql`, app_merged as (${appMerge(append, after)})`;
  const timestamp = sql`given.payload ->> 'timestamp'`;
  const insert = insertSelect(eventTable, {
    appName: key.appName,
    userId: key.userId,
    sessionId: key.sessionId,
    sequence: sql`${advanced.lastSequence} - ${count}::int + given.position::int`,
    id: sql`given.payload ->> 'id'`,
    invocationId: sql`given.payload ->> 'invocationId'`,
    author: sql`given.payload ->> 'author'`,
    eventTime: sql`case when ${timestamp} is null then ${advanced.updateTime}
                        else ${clampedTime(sql`(${timestamp})::float8`)} end`,
    isFromRuntime,
    payload: sql`case when ${timestamp} is null
                      then given.payload || jsonb_build_object('timestamp', extract(epoch from ${advanced.updateTime}))
                      else given.payload end`,
    bytes: sql`given.bytes`,
  });
  return sql`${user}${app}, appended as (
    ${insert}
    from advanced, given
    returning ${eventTable.sequence} as sequence, ${eventTable.payload} as payload)`;
}

const userMerge = ({ key: { appName, userId }, delta, limits }: EventAppend) => sql`
  ${insertSelect(userStates, { appName, userId, state: limited(sql`${delta.user}::jsonb`, limits) })} from advanced
  on conflict (${names(userStates.appName, userStates.userId)}) do update set ${mergeState(userStates, limits)}
  returning 1`;

const appMerge = ({ key: { appName }, delta, limits, writers: given, isFromRuntime }: EventAppend, after: SQL) => {
  const writer = sql`${given?.own}::jsonb`;
  // What a request says is the operator's own; what an agent says counts for the user in whose session it does.
  const writers = isFromRuntime ? sql`${given?.byKey}::jsonb` : emptyObject;
  const kept = isFromRuntime
    ? sql`${appStates.writers} || ${excluded(appStates.writers)}`
    : sql`${appStates.writers} - ${given?.names}::text[]`;
  const limitedShare = (state: SQL, all: SQL) =>
    isFromRuntime ? sql`assert_writer_share(${state}, ${all}, ${writer}, ${limits.maxAppStateBytesPerUser}::int)` : all;
  const state = limited(sql`${delta.app}::jsonb`, limits);
  return sql`
  ${insertSelect(appStates, { appName, state, writers: limitedShare(sql`${delta.app}::jsonb`, writers) })}
  from advanced ${after}
  on conflict (${names(appStates.appName)}) do update set ${mergeState(appStates, limits)},
    ${names(appStates.writers)} = ${limitedShare(sql`${appStates.state} || ${excluded(appStates.state)}`, kept)}
  returning 1`;
};

const mergeState = (table: typeof userStates | typeof appStates, limits: RowLimits) =>
  assignments(table, {
    state: merged(table.state, excluded(table.state), limits),
    updateTime: nextUpdateTime(table, excluded(table.updateTime)),
  });

/** A state with a delta merged into it. The statement fails where that is larger than `MAX_STATE_BYTES`. */
const merged = (
  state: (typeof sessions | typeof userStates | typeof appStates)['state'],
  delta: SQL,
  limits: RowLimits,
) => limited(sql`${state} || ${delta}`, limits);
const limited = (state: SQL, { maxStateBytes, maxStateKeys }: RowLimits) =>
  sql`assert_state_size(${state}, ${maxStateBytes}::int, ${maxStateKeys}::int)`;

/**
 * Unix seconds as a time; what lies outside timestamptz (an import may say anything) becomes its first or last year.
 */
const clampedTime = (seconds: SQL) => sql`to_timestamp(least(greatest(${seconds}, -2e11), 9e12))`;
