import { sessionTopic } from '../core/topics.ts';
import { pipeline } from 'node:stream/promises';
import type { Database, DatabasePool } from '../db/database.ts';
import type { Notifications } from '../db/notifications.ts';
import { InvalidError, NotFoundError, TooLargeError } from '../core/errors.ts';
import { checkBodyIdentifier } from '../http/validation/body-identifier.ts';
import { type Answer, type Call, operation, type Operation, type QueryParameter } from '../http/operation/operation.ts';
import { ValidationFailedError, valueError } from '../http/operation/request-errors.ts';
import type { JsonObject } from '../core/content.ts';
import { type Event, eventBytes, eventSchema, type NewEvent } from '../core/event.ts';
import { decodeCursor, type SessionCursor, encodeCursor } from './session-cursor.ts';
import { type JsonStream, collect } from './json-stream.ts';
import { toNewEvents, toStateEvent } from './new-event.ts';
import {
  createSessionSchema,
  legacyStateSchema,
  type SessionKey,
  sessionKeyOf,
  sessionSchema,
  toLegacyState,
  updateSessionSchema,
  sessionNotFound,
} from '../core/session.ts';
import { appendEvents, listEvents } from './event-store.ts';
import { deleteSession, findSession, insertSession, listSessions } from './session-store.ts';

const LIST = '/apps/{app_name}/users/{user_id}/sessions';
const ONE = `${LIST}/{session_id}`;
const EVENTS = `${ONE}/events`;
const area = 'Sessions';

/** The answer's header that says where the next page begins; absent on the last one. */
const NEXT = 'x-next-cursor';
/** Most elements of a page. */
const MOST = 1_000;
/** Events of a page where the client does not say how many. */
const DEFAULT_EVENTS = 100;
const INT32_MAX = 2_147_483_647;

const count = (name: string, description: string, minimum: number, maximum: number): QueryParameter => ({
  name,
  schema: { type: 'integer', minimum, maximum },
  description,
});
const afterSequence = (description: string) => count('afterSequence', description, 0, INT32_MAX);

/** What the session operations need. */
interface SessionContext {
  database: DatabasePool;
  notifications: Notifications;
  newId: () => string;
  /** Makes the user's memory forget what was said in a session, in the transaction that deletes it. */
  deleteMemories: (db: Database, key: SessionKey) => Promise<void>;
  /** Largest event, bytes of its JSON. */
  limits: { eventBytes: number };
}

const absent = ({ session_id = '' }: Record<string, string>) => sessionNotFound(session_id);

/** Sessions and their events: list, get, create, change, delete; append, list. */
export const sessionRoutes = (context: SessionContext): Operation[] => [
  ...readRoutes(context),
  ...writeRoutes(context),
  ...eventRoutes(context),
];

const readRoutes = ({ database }: SessionContext): Operation[] => [
  operation({
    method: 'get',
    path: LIST,
    operationId: 'listSessions',
    area,
    summary: 'List sessions',
    description: `Newest first, then by id. Sessions made by evaluation runs are left out; \`events\` is always \`[]\`. All of them, or with \`limit\` a page: the header \`${NEXT}\` is the \`cursor\` of the next one.`,
    query: [
      count('limit', 'Most sessions of a page [all].', 1, MOST),
      { name: 'cursor', schema: { type: 'string' }, description: `The header \`${NEXT}\` of the page before.` },
      {
        name: 'updatedAfter',
        schema: { type: 'number' },
        description: 'Only sessions updated after this Unix time in seconds.',
      },
    ],
    success: {
      schema: { type: 'array', items: { $ref: '#/components/schemas/Session' } },
      description: 'The sessions.',
    },
    handler: async (call) => {
      const { appName, userId } = sessionKeyOf(call.path);
      const { limit, cursor, updatedAfter } = call.query as {
        limit?: number;
        cursor?: string;
        updatedAfter?: number;
      };
      const page = { limit, updatedAfter, after: cursor === undefined ? undefined : toPlace(cursor) };
      const { next, ...text } = await listSessions(database.reads, appName, userId, page);
      if (next) call.response.setHeader(NEXT, encodeCursor(next));
      return sendText(call, text);
    },
  }),
  operation({
    method: 'get',
    path: ONE,
    operationId: 'getSession',
    area,
    summary: 'Get a session',
    description: 'With its state and all events, in order. This is also how a session is exported.',
    query: [
      count('numRecentEvents', 'Only the newest so many events, still oldest first.', 0, INT32_MAX),
      afterSequence('Only events after this place; the first event has place 1.'),
    ],
    success: { schema: sessionSchema, description: 'The session.' },
    errors: { 404: 'No such session.' },
    absent,
    handler: async (call) => {
      const text = await findSession(database.reads, sessionKeyOf(call.path), call.query);
      if (!text) throw new NotFoundError(absent(call.path));
      return sendText(call, text);
    },
  }),
];

function checkSize(event: NewEvent, most: number): void {
  if (eventBytes(event) > most) throw new TooLargeError(`An event is larger than MAX_EVENT_BYTES, ${most} bytes.`);
}

const writeRoutes = ({ database, notifications, newId, deleteMemories, limits }: SessionContext): Operation[] => {
  const create = async (key: SessionKey, state: JsonObject, events: Event[]) => {
    const made = toNewEvents(events, newId);
    for (const event of made) checkSize(event, limits.eventBytes);
    await insertSession(database.db, key, state, made);
    return answerSession(database.db, key);
  };
  return [
    operation({
      method: 'post',
      path: LIST,
      operationId: 'createSession',
      area,
      summary: 'Create a session',
      description:
        'The body may be absent. `id` is another spelling of `sessionId`. The JSON of a session is a body too: that is how it is imported.',
      body: { schema: createSessionSchema, required: false, aliases: { id: 'sessionId' } },
      success: { schema: sessionSchema, description: 'The new session.' },
      errors: { 409: 'The id is taken.' },
      handler: async ({ path, body }) => {
        const sessionId = checkBodyIdentifier('sessionId', body.sessionId?.trim() || newId());
        return create({ ...sessionKeyOf(path), sessionId }, body.state ?? {}, body.events ?? []);
      },
    }),
    operation({
      method: 'post',
      path: ONE,
      operationId: 'createSessionWithId',
      area: 'Compatibility endpoints',
      summary: 'Create a session with an id',
      description: 'As ADK 1.x and its JavaScript client do: the body is the state, or `{"state": …}`.',
      body: { schema: legacyStateSchema, required: false },
      success: { schema: sessionSchema, description: 'The new session.' },
      errors: { 409: 'The id is taken.' },
      absent,
      handler: ({ path, body }) => create(sessionKeyOf(path), toLegacyState(body), []),
    }),
    operation({
      method: 'patch',
      path: ONE,
      operationId: 'updateSession',
      area,
      summary: "Change a session's state",
      description: 'Appends an event that carries the change.',
      body: { schema: updateSessionSchema, required: true },
      success: { schema: sessionSchema, description: 'The session with the change, and all events.' },
      errors: { 404: 'No such session.' },
      absent,
      handler: async ({ path, body }) => {
        const key = sessionKeyOf(path);
        await appendEvents(database.db, key, [toStateEvent(body.stateDelta, newId)]);
        notifications.publish(sessionTopic(key));
        return answerSession(database.db, key);
      },
    }),
    operation({
      method: 'delete',
      path: ONE,
      operationId: 'deleteSession',
      area,
      summary: 'Delete a session',
      description: 'With its events. Deleting what is not there succeeds too. Artifacts and shared state stay.',
      query: [
        {
          name: 'forgetMemories',
          schema: { type: 'boolean' },
          description: "True: the user's memory forgets what was said in it [false].",
        },
      ],
      absent,
      handler: async ({ path, query }) => {
        const key = sessionKeyOf(path);
        if (query['forgetMemories'] !== true) await deleteSession(database.db, key);
        else {
          await database.transaction(async (tx) => {
            // The session first: an addition to the memory locks it, and so comes before or finds nothing to add.
            await deleteSession(tx, key);
            await deleteMemories(tx, key);
          });
        }
        return { kind: 'value', value: null };
      },
    }),
  ];
};

const eventRoutes = ({ database, notifications, newId, limits }: SessionContext): Operation[] => [
  operation({
    method: 'post',
    path: EVENTS,
    operationId: 'appendEvent',
    area,
    summary: 'Append an event',
    description: 'Its state delta is merged into the state. `id`, `author` and `timestamp` are filled in where absent.',
    body: { schema: eventSchema, required: true },
    success: { schema: eventSchema, description: 'The event as it is stored.' },
    errors: {
      400: 'A piece of a stream is never stored.',
      404: 'No such session.',
      409: 'The session has an event of this id.',
    },
    absent,
    handler: async ({ path, body }) => {
      const [event] = toNewEvents([body], newId);
      if (!event) throw new InvalidError('A partial event is a piece of a stream and is never stored.');
      checkSize(event, limits.eventBytes);
      const key = sessionKeyOf(path);
      const [stored] = await appendEvents(database.db, key, [event]);
      notifications.publish(sessionTopic(key));
      return { kind: 'json', text: stored?.text ?? 'null' };
    },
  }),
  operation({
    method: 'get',
    path: EVENTS,
    operationId: 'listEvents',
    area,
    summary: "List a session's events",
    description: `A page, oldest first; large events make it shorter than \`limit\`. The header \`${NEXT}\` is the \`afterSequence\` of the next one.`,
    query: [
      afterSequence('Only events after this place; the first event has place 1 [0].'),
      count('limit', `Most events of the page [${DEFAULT_EVENTS}].`, 1, MOST),
    ],
    success: { schema: { type: 'array', items: { $ref: '#/components/schemas/Event' } }, description: 'The events.' },
    errors: { 404: 'No such session.' },
    absent,
    handler: async ({ path, query, response }) => {
      const { afterSequence: after = 0, limit = DEFAULT_EVENTS } = query as { afterSequence?: number; limit?: number };
      const page = await listEvents(database.reads, sessionKeyOf(path), after, limit);
      if (!page) throw new NotFoundError(absent(path));
      if (page.next !== undefined) response.setHeader(NEXT, page.next);
      return { kind: 'json', text: page.text };
    },
  }),
];

async function answerSession(db: Database, key: SessionKey): Promise<Answer> {
  const text = await findSession(db, key);
  if (!text) throw new NotFoundError(sessionNotFound(key.sessionId));
  return { kind: 'json', text: await collect(text) };
}

/** Sends a text piece by piece, as fast as the client reads. Nobody hears of it when the client leaves in between. */
async function sendText({ response }: Call<unknown>, { first, rest }: JsonStream): Promise<Answer> {
  if (!rest) return { kind: 'json', text: first };
  response.setHeader('content-type', 'application/json');
  response.write(first);
  await pipeline(rest, response).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
  return { kind: 'sent' };
}

function toPlace(cursor: string): SessionCursor {
  const place = decodeCursor(cursor);
  if (place) return place;
  const refusal = valueError(['query', 'cursor'], `it must be the header ${NEXT} of the page before`, cursor);
  throw new ValidationFailedError([refusal]);
}
