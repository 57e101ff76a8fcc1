import { TooLargeError } from '../../core/errors.ts';
import { eventBytes, type NewEvent } from '../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import type { ForkPoint } from './fork-store.ts';

export const SESSIONS_PATH = '/apps/{app_name}/users/{user_id}/sessions';
export const SESSION_PATH = `${SESSIONS_PATH}/{session_id}`;

/** The answer's header that says where the next page begins; absent on the last one. */
export const NEXT_CURSOR_HEADER = 'x-next-cursor';
/** The header as an operation documents it. */
export const nextCursorHeader = { 'X-Next-Cursor': 'The `cursor` of the next page; absent on the last one.' };

/** Dependencies of the session operations. */
export interface SessionContext {
  database: DatabasePool;
  notifications: Notifications;
  newId: () => string;
  /** Deletes what features above sessions hold of sessions, in the transaction that has deleted them. */
  forgetSessions: (tx: Database, keys: readonly SessionKey[], options: { copiesToo: boolean }) => Promise<void>;
  /** Copies the artifacts of a session as of a point; `write` is given what inserts the copies, and counts. */
  copyArtifacts: <T>(
    source: SessionKey,
    point: ForkPoint,
    write: (insertArtifacts: (tx: Database, sessionId: string) => Promise<number>) => Promise<T>,
  ) => Promise<T>;
  /** Largest event, bytes of its JSON. */
  limits: { eventBytes: number };
}

/** The text of the 404 of the session that a path names. */
export const absentSession = ({ sessionId }: { sessionId: string }): string => sessionNotFound(sessionId);

/** @throws {TooLargeError} for an event of more bytes than allowed. */
export function checkEventSize(event: NewEvent, maxBytes: number): void {
  if (eventBytes(event) > maxBytes)
    throw new TooLargeError(`An event is larger than MAX_EVENT_BYTES, ${maxBytes} bytes.`);
}
