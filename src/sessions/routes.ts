import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../errors.ts';
import { operation, type Operation } from '../http/operation.ts';
import type { Event, NewEvent } from './event.ts';
import { createSessionSchema, type SessionKey, sessionSchema } from './session.ts';
import { deleteSession, findSessionText, insertSession, listSessionsText, sessionNotFound } from './store.ts';

const LIST = '/apps/{app_name}/users/{user_id}/sessions';
const ONE = `${LIST}/{session_id}`;
const area = 'Sessions';

/** What the session operations need. */
interface SessionContext {
  database: DatabasePool;
  newId: () => string;
}

const absent = ({ session_id = '' }: Record<string, string>) => sessionNotFound(session_id);

/** The session that a path names. */
const toKey = (path: Record<string, string>): SessionKey => ({
  appName: path['app_name'] ?? '',
  userId: path['user_id'] ?? '',
  sessionId: path['session_id'] ?? '',
});

/** Sessions: list, get, create, delete. */
export const sessionRoutes = ({ database, newId }: SessionContext): Operation[] => [
  operation({
    method: 'get',
    path: LIST,
    operationId: 'listSessions',
    area,
    summary: 'List sessions',
    description: 'Newest first, then by id. Sessions made by evaluation runs are left out; `events` is always `[]`.',
    success: {
      schema: { type: 'array', items: { $ref: '#/components/schemas/Session' } },
      description: 'The sessions.',
    },
    handler: async ({ path }) => {
      const { appName, userId } = toKey(path);
      return { kind: 'json', text: await listSessionsText(database.db, appName, userId) };
    },
  }),
  operation({
    method: 'get',
    path: ONE,
    operationId: 'getSession',
    area,
    summary: 'Get a session',
    description: 'With its state and all events, in order.',
    success: { schema: sessionSchema, description: 'The session.' },
    errors: { 404: 'No such session.' },
    absent,
    handler: async ({ path }) => {
      const text = await findSessionText(database.db, toKey(path));
      if (text === undefined) throw new NotFoundError(absent(path));
      return { kind: 'json', text };
    },
  }),
  operation({
    method: 'post',
    path: LIST,
    operationId: 'createSession',
    area,
    summary: 'Create a session',
    description: 'The body may be absent. `id` is another spelling of `sessionId`.',
    body: { schema: createSessionSchema, required: false, aliases: { id: 'sessionId' } },
    success: { schema: sessionSchema, description: 'The new session.' },
    errors: { 409: 'The id is taken.' },
    handler: async ({ path, body }) => {
      const sessionId = body.sessionId?.trim() || newId();
      const key = { ...toKey(path), sessionId };
      await insertSession(database.db, key, body.state ?? {}, toNewEvents(body.events ?? [], newId));
      return { kind: 'json', text: (await findSessionText(database.db, key)) ?? 'null' };
    },
  }),
  operation({
    method: 'delete',
    path: ONE,
    operationId: 'deleteSession',
    area,
    summary: 'Delete a session',
    description: 'With its events. Deleting what is not there succeeds too. Artifacts and shared state stay.',
    absent,
    handler: async ({ path }) => {
      await deleteSession(database.db, toKey(path));
      return { kind: 'value', value: null };
    },
  }),
];

/** Events of a client made ready for the store: what names them is filled in; pieces of a stream are never stored. */
const toNewEvents = (events: Event[], newId: () => string): NewEvent[] =>
  events
    .filter((event) => event.partial !== true)
    .map((event) => ({
      ...event,
      id: event.id || newId(),
      invocationId: event.invocationId ?? '',
      author: event.author || 'user',
    }));
