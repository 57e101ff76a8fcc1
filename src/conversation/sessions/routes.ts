import type { Response } from 'express';
import { z } from 'zod';
import { contentSchema, type JsonObject, partSchema } from '../../core/content.ts';
import { NotFoundError, PreconditionFailedError } from '../../core/errors.ts';
import { type Event, eventActionsSchema, eventSchema } from '../../core/event.ts';
import { groundingMetadataSchema, usageMetadataSchema } from '../../core/model-metadata.ts';
import { runAsSystem } from '../../platform/context.ts';
import {
  createSessionSchema,
  type SessionKey,
  sessionNotFound,
  sessionSchema,
  updateSessionSchema,
} from '../../core/session.ts';
import { sessionTopic } from '../../core/names.ts';
import { eventDemands, sharedStateDemands } from '../../platform/http/operation/demands.ts';
import type { Answer } from '../../platform/http/operation/operation.ts';
import { eventPath, sessionPath } from '../../platform/http/operation/parameters.ts';
import { appendEvents } from './append-store.ts';
import { deleteLostDeltas } from './delta-store.ts';
import { eventOperations } from './event-routes.ts';
import { exampleListedSession, exampleSession } from './examples.ts';
import { diffSessions } from './diff-routes.ts';
import { forkSession } from './fork-routes.ts';
import { getSession } from './get-routes.ts';
import { collect } from '../../platform/json-stream.ts';
import { labelOperations } from './label-routes.ts';
import { listSessionsOperation } from './list-routes.ts';
import { toNewEvents, toStateEvent } from './new-event.ts';
import { absentSession, checkEventSize, room, session, SESSION_PATH, type SessionContext } from './session-context.ts';
import { CHANGED, findEtag, ifMatch, toVersions } from './precondition.ts';
import { deleteSession, findSession, type SessionJson, insertSession } from './session-store.ts';
import { countAppStateKeys, deleteAppStateKeys, userTables } from './user-data-store.ts';
import type { Feature } from '../../platform/feature/feature.ts';

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
