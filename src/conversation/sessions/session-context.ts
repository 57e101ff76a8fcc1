import { z } from 'zod';
import { TooLargeError } from '../../core/errors.ts';
import { eventBytes, type eventSchema, type NewEvent } from '../../core/event.ts';
import { type SessionKey, sessionNotFound, sessionSchema } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { area } from '../../platform/http/operation/area.ts';
import { sessionPath, userPath } from '../../platform/http/operation/parameters.ts';

export const exampleEvent = {
  id: '3f2504e0-4f89-41d3-9a0c-0305e82c3301',
  invocationId: 'e-7d444840-9dc0-11d1-b245-5ffdce74fad2',
  author: 'user',
  timestamp: 1_767_225_600.25,
  content: { role: 'user', parts: [{ text: 'What is 17 * 23?' }] },
} satisfies z.input<typeof eventSchema>;

export const exampleAnswer = {
  id: '9b2d6a2e-6f0b-4b7e-8f55-1d2f6c1f3c02',
  invocationId: exampleEvent.invocationId,
  author: 'harness_agent',
  timestamp: 1_767_225_601.5,
  content: { role: 'model', parts: [{ text: '17 * 23 = 391' }] },
} satisfies z.input<typeof eventSchema>;

/** The success response in the OpenAPI document for operations that stream events. */
export const eventStream = {
  schema: z.string(),
  description: 'Events.',
  example: `data: ${JSON.stringify(exampleAnswer)}\n\n`,
  mediaType: 'text/event-stream',
} as const;

export const exampleListedSession = {
  id: 's1',
  appName: 'harness_agent',
  userId: 'u1',
  state: { topic: 'arithmetic', 'user:name': 'Ada' },
  events: [],
  lastUpdateTime: 1_767_225_601.5,
} satisfies z.input<typeof sessionSchema>;

export const exampleSession = { ...exampleListedSession, events: [exampleEvent, exampleAnswer] };

const SESSIONS_PATH = '/apps/{app_name}/users/{user_id}/sessions';
export const SESSION_PATH = `${SESSIONS_PATH}/{session_id}`;

/** A point in a session at which it is forked, with the data to select the artifact versions that existed then. */
export interface ForkPoint {
  /** The last sequence of the session that is forked. */
  reached: number;
  atSequence: number;
  /** Time of the event after the fork point, ISO 8601 with microseconds; null if there is none. */
  nextTime: string | null;
  /** By artifact name: highest version saved by events up to the fork, and lowest version saved by later events. */
  saved: Record<string, number>;
  savedLater: Record<string, number>;
}

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
