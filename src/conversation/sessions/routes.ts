import type { Response } from 'express';
import { z } from 'zod';
import { appendEvents, toNewEvents, toStateEvent } from './append-store.ts';
import { deleteLostDeltas } from './delta-store.ts';
import { diffSessions } from './diff.ts';
import { listEvents } from './event-store.ts';
import {
  absentSession,
  checkEventSize,
  exampleAnswer,
  exampleEvent,
  exampleListedSession,
  exampleSession,
  room,
  session,
  SESSION_PATH,
  type SessionContext,
} from './session-context.ts';
import { forkSession } from './fork.ts';
import { labelOperations } from './labels.ts';
import { CHANGED, findEtag, ifMatch, ifNoneMatch, isUnchanged, toVersions } from './precondition.ts';
import { listSessionsOperation } from './session-list.ts';
import { deleteSession, findSession, insertSession, type SessionJson } from './session-store.ts';
import { countAppStateKeys, deleteAppStateKeys, userTables } from './user-data-store.ts';
import { contentSchema, type JsonObject, partSchema } from '../../core/content.ts';
import { InvalidError, NotFoundError, PreconditionFailedError } from '../../core/errors.ts';
import { type Event, eventActionsSchema, eventSchema } from '../../core/event.ts';
import { groundingMetadataSchema, usageMetadataSchema } from '../../core/model-metadata.ts';
import { sessionTopic } from '../../core/names.ts';
import {
  createSessionSchema,
  type SessionKey,
  sessionNotFound,
  sessionSchema,
  updateSessionSchema,
} from '../../core/session.ts';
import { runAsSystem } from '../../platform/context.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { NEXT_CURSOR_HEADER } from '../../platform/http/operation/cursor.ts';
import { eventDemands, sharedStateDemands } from '../../platform/http/operation/demands.ts';
import type { Answer } from '../../platform/http/operation/operation.ts';
import {
  afterSequence,
  eventPath,
  filterText,
  INT32_MAX,
  pageSize,
  sessionPath,
} from '../../platform/http/operation/parameters.ts';
import { ValidationFailedError, valueError } from '../../platform/http/operation/request-errors.ts';
import { collect } from '../../platform/json-stream.ts';

const sequence = z.int().min(0).max(INT32_MAX);

const getSession = session.read({
  wire: 'ADK',
  load: 'heavy',
  description:
    'With its state and all events, in order. This is also how a session is exported. With `atSequence` or `atTime` ' +
    'both are those of then; of the keys with `user:` and `app:` in front, which have no history, the state of then ' +
    "has what the session's own events set until then. The header `ETag` is for `If-None-Match` and `If-Match`.",
  query: z.object({
    numRecentEvents: sequence.optional().describe('Only the newest so many events, still oldest first.'),
    afterSequence: afterSequence.optional(),
    atSequence: sequence.optional().describe('As it was after this event; 0 is before the first.'),
    atTime: z
      .number()
      .optional()
      .describe('As it was at this Unix time in seconds: with the events before the first one that is later.'),
    withDetails: z
      .boolean()
      .default(false)
      .describe("True: with the members of `Session` that ADK's own clients do not know."),
  }),
  headers: ifNoneMatch,
  errors: { 400: 'The session has not reached `atSequence`.' },
  bare: { 304: 'The session and the states that it shares have not changed.' },
  handler: async ({ database }, { path, query, headers, response, notFound }) => {
    if (query.atSequence !== undefined && query.atTime !== undefined)
      throw new ValidationFailedError([valueError(['query', 'atTime'], 'atSequence says it already', query.atTime)]);
    const known = headers['if-none-match'];
    const etag = known && (await findEtag(database.reads, path));
    if (known && etag !== undefined && isUnchanged(etag, known)) {
      response.writeHead(304, { etag }).end();
      return { kind: 'sent' };
    }
    const found = await findSession(database.reads, path, query);
    if (!found) throw notFound();
    response.setHeader('etag', found.etag);
    return { kind: 'stream', text: found };
  },
});

const DEFAULT_PAGE_SIZE = 100;

const appendEventOperation = session.action('events')({
  operationId: 'appendEvent',
  summary: 'Append an event',
  description:
    'Its state delta is merged into the state. `id`, `author` and `timestamp` are filled in where absent. The header ' +
    '`ETag` is the new one of the session, for the next `If-Match`.',
  demands: ({ body }) => eventDemands([body]),
  headers: ifMatch,
  body: { schema: eventSchema, example: { author: 'user', content: exampleEvent.content } },
  success: { schema: eventSchema, description: 'The event as it is stored.', example: exampleEvent },
  errors: {
    400: 'A partial event is never stored.',
    409: 'The session has an event of this id.',
    412: CHANGED,
  },
  handler: async (context, { path: key, body, headers, response }) => {
    const { database, notifications, newId, limits } = context;
    const [event] = toNewEvents([body], newId);
    if (!event) throw new InvalidError('A partial event is a piece of a stream and is never stored.');
    checkEventSize(event, limits.eventBytes);
    const versions = toVersions(headers['if-match']);
    const { events, version } = await appendEvents(database.db, key, [event], { versions });
    response.setHeader('etag', `"${version}"`);
    notifications.publish(sessionTopic(key));
    return { kind: 'json', text: events[0]?.text ?? 'null' };
  },
});

const listEventsOperation = session.action('events')({
  method: 'get',
  operationId: 'listEvents',
  load: 'heavy',
  summary: "List a session's events",
  description:
    'A page, oldest first; large events make it shorter than `limit`. The header ' +
    `\`${NEXT_CURSOR_HEADER}\` is the \`afterSequence\` of the next one. With \`invocationId\` a page looks through 2,000 ` +
    'events of the session; it may be empty where a next one follows.',
  query: z.object({
    afterSequence: afterSequence.default(0),
    invocationId: filterText('Only the events of this invocation [all].'),
    limit: pageSize('Maximum number of events of the page.').default(DEFAULT_PAGE_SIZE),
  }),
  success: { schema: z.array(eventSchema), description: 'The events.', example: [exampleEvent, exampleAnswer] },
  handler: async ({ database }, { path, query, response, notFound }) => {
    const page = await listEvents(database.reads, path, query.afterSequence, query.limit, query.invocationId);
    if (!page) throw notFound();
    if (page.next !== undefined) response.setHeader(NEXT_CURSOR_HEADER, page.next);
    return { kind: 'stream', text: page };
  },
});

const eventOperations = [appendEventOperation, listEventsOperation];

const createSession = session.create({
  wire: 'ADK',
  description:
    'The body may be absent. `id` is another spelling of `sessionId`. The JSON of a session is a body too: ' +
    'that is how ' +
    'it is imported.',
  demands: ({ body }) => [...sharedStateDemands(body?.state), ...eventDemands(body?.events ?? [])],
  body: {
    schema: createSessionSchema,
    required: false,
    aliases: { id: 'sessionId' },
    example: { sessionId: 's1', state: exampleSession.state },
  },
  success: { status: 200, description: 'The new session.', example: exampleListedSession },
  errors: { 404: 'No such application.', 409: 'The id is taken.' },
  handler: async (context, { path, body, response }) => {
    const key = { ...path, sessionId: body.sessionId?.trim() || context.newId() };
    return createAndAnswer(context, key, { state: body.state ?? {}, events: body.events ?? [] }, response);
  },
});

const updateSession = session.change({
  wire: 'ADK',
  summary: "Change a session's state",
  description: 'Appends an event that carries the change. The header `ETag` is for the next `If-Match`.',
  demands: ({ body }) => sharedStateDemands(body.stateDelta),
  headers: ifMatch,
  body: { schema: updateSessionSchema, example: { stateDelta: { topic: 'arithmetic' } } },
  success: { description: 'The session with the change, and all events.' },
  errors: { 412: CHANGED },
  handler: async (context, { path: key, body, headers, response }) => {
    const { database, notifications, newId } = context;
    const versions = toVersions(headers['if-match']);
    await appendEvents(database.db, key, [toStateEvent(body.stateDelta, newId)], { versions });
    notifications.publish(sessionTopic(key));
    return answerSession(await findSession(database.db, key), key, response);
  },
});

const deleteSessionOperation = room.operation({
  method: 'delete',
  path: SESSION_PATH,
  operationId: 'deleteSession',
  summary: 'Delete a session',
  description:
    'With its events, its traces and the answers kept for retries. Deleting what is not there succeeds too. ' +
    'Artifacts and shared state stay.',
  parameters: {
    path: sessionPath,
    query: z.object({
      forgetMemories: z
        .boolean()
        .default(false)
        .describe("True: the user's memory forgets what was said in it; evaluation cases made from it go too."),
    }),
    headers: ifMatch,
  },
  errors: { 412: `${CHANGED} Also where there is no session.` },
  absent: absentSession,
  handler: async ({ database, forgetSessions }, { path: key, query, headers }) => {
    const tags = headers['if-match'];
    await database.transaction(async (tx) => {
      // The session is deleted before its memories: a statement that adds memories locks the session, so none adds any
      // later.
      const isDeleted = await deleteSession(tx, key, toVersions(tags));
      if (tags && !isDeleted) throw new PreconditionFailedError(await findEtag(tx, key));
      await forgetSessions(tx, [key], { copiesToo: query.forgetMemories });
    });
  },
});

const operations = [
  listSessionsOperation,
  getSession,
  createSession,
  updateSession,
  deleteSessionOperation,
  forkSession,
  diffSessions,
  ...labelOperations,
  ...eventOperations,
];

/** Creates a session from the body of a request. @returns the session as it is stored */
export async function createAndAnswer(
  { database, newId, limits }: SessionContext,
  key: SessionKey,
  { state, events }: { state: JsonObject; events: Event[] },
  response: Response,
): Promise<Answer> {
  const created = toNewEvents(events, newId);
  for (const event of created) checkEventSize(event, limits.eventBytes);
  const inserted = await insertSession(database.db, key, state, created);
  return answerSession(inserted ?? (await findSession(database.db, key)), key, response);
}

async function answerSession(
  found: SessionJson | undefined,
  { sessionId }: SessionKey,
  response: Response,
): Promise<Answer> {
  if (!found) throw new NotFoundError(sessionNotFound(sessionId));
  response.setHeader('etag', found.etag);
  return { kind: 'json', text: await collect(found) };
}

export const sessionFeature = {
  name: 'sessions',
  operations,
  schemas: {
    Session: sessionSchema,
    Event: eventSchema,
    Content: contentSchema,
    Part: partSchema,
    EventActions: eventActionsSchema,
    UsageMetadata: usageMetadataSchema,
    GroundingMetadata: groundingMetadataSchema,
    CreateSessionRequest: createSessionSchema,
    UpdateSessionRequest: updateSessionSchema,
  },
  parameters: { SessionId: sessionPath.shape.sessionId, EventId: eventPath.shape.eventId },
  sweeps: [
    {
      group: 'minutely',
      name: 'deleting text of invocations that died',
      run: ({ database, signal }) => deleteLostDeltas(database.db, signal),
    },
  ],
  userTables,
  userCopies: [
    {
      count: async (db, user) => ({ app_states: await countAppStateKeys(db, user) }),
      erase: ({ database }, user) =>
        runAsSystem(() => database.transaction(async (tx) => ({ app_states: await deleteAppStateKeys(tx, user) }))),
    },
  ],
} satisfies Feature<SessionContext>;
