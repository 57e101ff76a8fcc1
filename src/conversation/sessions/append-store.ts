import { type SQL, and, eq, sql } from 'drizzle-orm';
import { ConflictError, LeaseLostError, NotFoundError } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { unescapeJson } from '../../platform/db/json-escape.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { shapedStatement } from '../../platform/db/statement.ts';
import {
  ADVANCED,
  advanced,
  advanceSession,
  type EventAppend,
  appendEventCtes,
  givenEvents,
  newAppend,
  userOf,
} from './append-events.ts';
import { changeRefused, hasVersion } from './precondition.ts';
import { isSession } from './session-key.ts';
import { versionOf } from './session-text.ts';

/** An event as it was stored: its place in the session, and its JSON text with the timestamp that the store gave it. */
export interface StoredEvent {
  sequence: number;
  text: string;
}

/** What another feature adds to a statement that appends: CTEs that go on from `advanced`, and a value of its own. */
interface AppendExtra {
  ctes: SQL;
  note: SQL;
}

/** The error for events whose ids the session has already. */
export const eventExists = ({ sessionId }: SessionKey) =>
  new ConflictError(`Event already exists in session ${sessionId}.`);

/** What an append asks for beside its events. */
export interface AppendOptions {
  /** The append is an invocation's: it is refused when the session's lease is another's by now. */
  leaseToken?: string | undefined;
  /** It is refused where the session has none of these versions by now. */
  versions?: string[] | undefined;
}

/** An event as it was stored, with the version that the session has by it. */
export type AppendedEvent = StoredEvent & { version: string; note?: unknown };

/**
 * Appends events in order: sequence, state of three scopes and `lastUpdateTime` move together in one statement.
 * @throws {NotFoundError} when there is no such session. @throws {LeaseLostError} when the token is no longer the
 * session's. @throws {PreconditionFailedError} when the session has another version.
 * @throws {ConflictError} when the session has an event of one of the ids.
 */
export const appendEvents = (
  db: Database,
  key: SessionKey,
  newEvents: NewEvent[],
  options: AppendOptions = {},
): Promise<AppendedEvent[]> => appendOnly(db, key, newEvents, { ...options, more: {} });

/**
 * A function that appends as {@link appendEvents} does, with what `toExtra` adds to the statement for `more`: an object
 * of texts, numbers and flags, see {@link shapedStatement}.
 */
export function newAppending<More extends object>(
  toExtra: (more: More, key: SessionKey) => AppendExtra | undefined,
): (
  db: Database,
  key: SessionKey,
  newEvents: NewEvent[],
  options: AppendOptions & { more: More },
) => Promise<AppendedEvent[]> {
  type Given = AppendOptions & { append: EventAppend; more: More };
  const send = shapedStatement<Given, AppendedEvent>(({ append, leaseToken, versions, more }, db) => {
    const fence = leaseToken === undefined ? undefined : eq(sessions.leaseToken, leaseToken);
    const updated = db
      .update(sessions)
      .set(advanceSession(append))
      .where(and(isSession(append.key, sessions), fence, hasVersion(sessions, versions)))
      .returning(ADVANCED);
    const extra = toExtra(more, append.key);
    const note = extra ? sql`, (${extra.note}) as note` : sql``;
    return sql`
      with ${givenEvents(append)}, advanced as ${updated} ${appendEventCtes(append)} ${extra?.ctes}
      select sequence, payload::text as text, ${versionOf(advanced)} as version ${note}
      from appended, advanced order by sequence`;
  }, userOf);
  return async (db, key, newEvents, { leaseToken, versions, more }) => {
    const given = { append: newAppend(db, key, newEvents, leaseToken !== undefined), leaseToken, versions, more };
    const rows = await onConflict(send(db, given), 'events_id_key', () => eventExists(key));
    if (rows.length === newEvents.length) return rows.map(unescaped);
    if (leaseToken !== undefined) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
    throw versions ? await changeRefused(db, key) : new NotFoundError(sessionNotFound(key.sessionId));
  };
}

const appendOnly = newAppending(() => undefined);

/** A row with the text of an event, which is JSON again. */
export const unescaped = <Row extends { text: string }>(row: Row): Row => ({ ...row, text: unescapeJson(row.text) });
