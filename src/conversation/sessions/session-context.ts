import { TooLargeError } from '../../core/errors.ts';
import { eventBytes, type NewEvent } from '../../core/event.ts';
import { type SessionKey, sessionNotFound, sessionSchema } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { area } from '../../platform/http/operation/area.ts';
import { sessionPath, userPath } from '../../platform/http/operation/parameters.ts';
import { exampleSession } from './examples.ts';
import type { ForkPoint } from './fork-store.ts';

const SESSIONS_PATH = '/apps/{app_name}/users/{user_id}/sessions';
export const SESSION_PATH = `${SESSIONS_PATH}/{session_id}`;

/** Response header with the cursor of the next page; absent on the last page. */
export const NEXT_CURSOR_HEADER = 'x-next-cursor';
export const nextCursorHeader = { 'X-Next-Cursor': 'The `cursor` of the next page; absent on the last one.' };

export interface SessionContext {
  database: DatabasePool;
  notifications: Notifications;
  newId: () => string;
  /** Deletes the data that other features store for deleted sessions, in the same transaction. */
  forgetSessions: (tx: Database, keys: readonly SessionKey[], options: { copiesToo: boolean }) => Promise<void>;
  /** Copies artifacts as of a fork point. `write` gets a function that inserts the copies and returns their number. */
  copyArtifacts: <T>(
    source: SessionKey,
    point: ForkPoint,
    write: (insertArtifacts: (tx: Database, sessionId: string) => Promise<number>) => Promise<T>,
  ) => Promise<T>;
  /** Maximum size of an event, in bytes of JSON. */
  limits: { eventBytes: number };
}

/** Declares the operations on sessions; those that change something accept an `Idempotency-Key`. */
export const room = area<SessionContext>('Sessions', {
  read: 'read',
  write: 'write',
  owner: 'path',
  isIdempotent: true,
});

// The resource has no `find` (loading before the handler), because each operation reads only the parts of a session
// that it needs, or changes the session in one statement.
export const session = room.resource({
  noun: 'session',
  path: SESSIONS_PATH,
  within: userPath,
  key: sessionPath,
  schema: sessionSchema,
  example: exampleSession,
});

export const absentSession = ({ sessionId }: { sessionId: string }): string => sessionNotFound(sessionId);

/** @throws {TooLargeError} if the event exceeds `maxBytes` */
export function checkEventSize(event: NewEvent, maxBytes: number): void {
  if (eventBytes(event) > maxBytes)
    throw new TooLargeError(`An event is larger than MAX_EVENT_BYTES, ${maxBytes} bytes.`);
}
