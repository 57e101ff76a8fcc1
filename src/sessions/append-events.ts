import { type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { assignments, excluded, insertSelect, names } from '../db/sql.ts';
import { escapeJson } from '../db/json-escape.ts';
import { emptyObject } from '../db/columns.ts';
import { appStates, events as eventTable, sessions, userStates } from '../db/schema.ts';
import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import { isEvalSession, type SessionKey } from '../core/session.ts';
import { firstTextIn, nextFirstText } from './event-first-text.ts';
import { type ScopedDelta, splitDelta, withoutTemporary } from '../core/state.ts';

/** Events on their way into one statement, with the state change that all of them make together. */
export interface EventAppend {
  key: SessionKey;
  events: NewEvent[];
  delta: ScopedDelta;
  /** True where the runtime made the events: only what it requested itself can be confirmed. No request sets it. */
  isFromRuntime: boolean;
}

/** Takes the events' deltas together, later ones winning, and leaves `temp:` keys out of what is stored. */
export function newAppend(key: SessionKey, events: NewEvent[], isFromRuntime = false): EventAppend {
  const stored = events.map(withoutTemporaryDelta);
  const merged: JsonObject = Object.create(null) as JsonObject;
  for (const event of stored) {
    for (const [name, value] of Object.entries(event.actions?.stateDelta ?? {})) merged[name] = value;
  }
  return { key, events: stored, delta: splitDelta(merged), isFromRuntime };
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
  from jsonb_array_elements(${escapeJson(events)}::jsonb) with ordinality as e(payload, position))`;

const GIVEN_BYTES = sql`(select coalesce(sum(given.bytes), 0)::bigint from given)`;

/** The size of all events of a session; of one that an earlier version wrote, it is counted until the next append. */
export const storedBytes = (
  row: Record<'appName' | 'userId' | 'id' | 'eventBytes', AnyPgColumn>,
): SQL => sql`coalesce(${row.eventBytes}, (
  select coalesce(sum(octet_length(${eventTable.payload}::text)), 0)::bigint from ${eventTable}
  where ${eventTable.appName} = ${row.appName} and ${eventTable.userId} = ${row.userId}
    and ${eventTable.sessionId} = ${row.id}))`;

const newSize = sql`${storedBytes(sessions)} + ${GIVEN_BYTES}`;

/** A size of a session's events. The statement fails where it is larger than `MAX_SESSION_BYTES`. */
export const limitedSize = (size: SQL) => sql`assert_session_size(${size})`;

/** What an append inserts where the session is new. */
export const newSession = ({ key, events, delta }: EventAppend) => ({
  appName: key.appName,
  userId: key.userId,
  id: key.sessionId,
  state: limited(sql`${escapeJson(delta.session)}::jsonb`),
  initialState: emptyObject,
  firstText: sql`${firstTextIn(events)}::text`,
  lastSequence: sql`${events.length}::int`,
  eventBytes: limitedSize(GIVEN_BYTES),
  isEval: sql`${isEvalSession(key.sessionId)}::boolean`,
});

/** The time of a change of a row: after that of the one before, also where the clock went back. */
export const nextUpdateTime = ({ updateTime }: { updateTime: AnyPgColumn }): SQL =>
  sql`greatest(${updateTime} + interval '1 microsecond', clock_timestamp())`;

/**
 * What an append sets in the row of its session: the one place that hands out sequences and moves a session's clock
 * forward. An ending (`isLast`) may exceed the size of a session: it has to be stored.
 */
export const advanceSession = ({ events, delta }: EventAppend, { isLast = false } = {}) => {
  const text = firstTextIn(events);
  return {
    ...(touches(delta.session) ? { state: merged(sessions.state, sql`${escapeJson(delta.session)}::jsonb`) } : {}),
    ...(text === '' ? {} : { firstText: nextFirstText(sessions, text) }),
    lastSequence: sql`${sessions.lastSequence} + ${events.length}::int`,
    eventBytes: isLast ? newSize : limitedSize(newSize),
    updateTime: nextUpdateTime(sessions),
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
  const { key, events, delta, isFromRuntime } = append;
  const user = touches(delta.user) ? sql`, user_merged as (${userMerge(key, delta.user)})` : sql``;
  const after = touches(delta.user) ? sql`where (select count(*) from user_merged) >= 0` : sql``;
  const app = touches(delta.app) ? sql`, app_merged as (${appMerge(append, after)})` : sql``;
  const timestamp = sql`given.payload ->> 'timestamp'`;
  const insert = insertSelect(eventTable, {
    appName: key.appName,
    userId: key.userId,
    sessionId: key.sessionId,
    sequence: sql`${advanced.lastSequence} - ${events.length}::int + given.position::int`,
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

const userMerge = ({ appName, userId }: SessionKey, delta: JsonObject) => sql`
  ${insertSelect(userStates, { appName, userId, state: limited(sql`${escapeJson(delta)}::jsonb`) })} from advanced
  on conflict (${names(userStates.appName, userStates.userId)}) do update set ${mergeState(userStates)}
  returning 1`;

const appMerge = ({ key: { appName, userId }, delta: { app }, isFromRuntime }: EventAppend, after: SQL) => {
  const writer = sql`${escapeJson(userId)}::jsonb`;
  const given = Object.fromEntries(Object.keys(app).map((name) => [name, userId]));
  // What a request says is the operator's own; what an agent says counts for the user in whose session it does.
  const writers = isFromRuntime ? sql`${escapeJson(given)}::jsonb` : emptyObject;
  const kept = isFromRuntime
    ? sql`${appStates.writers} || ${excluded(appStates.writers)}`
    : sql`${appStates.writers} - array(select jsonb_object_keys(${excluded(appStates.state)}))`;
  const limitedShare = (state: SQL, all: SQL) =>
    isFromRuntime ? sql`assert_writer_share(${state}, ${all}, ${writer})` : all;
  const state = sql`${escapeJson(app)}::jsonb`;
  return sql`
  ${insertSelect(appStates, { appName, state: limited(state), writers: limitedShare(state, writers) })}
  from advanced ${after}
  on conflict (${names(appStates.appName)}) do update set ${mergeState(appStates)},
    ${names(appStates.writers)} = ${limitedShare(sql`${appStates.state} || ${excluded(appStates.state)}`, kept)}
  returning 1`;
};

const mergeState = (table: typeof userStates | typeof appStates) =>
  assignments(table, { state: merged(table.state, excluded(table.state)), updateTime: nextUpdateTime(table) });

/** A state with a delta merged into it. The statement fails where that is larger than `MAX_STATE_BYTES`. */
const merged = (state: (typeof sessions | typeof userStates | typeof appStates)['state'], delta: SQL) =>
  limited(sql`${state} || ${delta}`);
const limited = (state: SQL) => sql`assert_state_size(${state})`;

const touches = (delta: JsonObject) => Object.keys(delta).length > 0;

/**
 * Unix seconds as a time; what lies outside timestamptz (an import may say anything) becomes its first or last year.
 */
const clampedTime = (seconds: SQL) => sql`to_timestamp(least(greatest(${seconds}, -2e11), 9e12))`;
