import { z } from 'zod';
import { ConflictError } from '../../core/errors.ts';
import { chosenIdentifierSchema } from '../../core/session.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { INT32_MAX, sessionPath } from '../../platform/http/operation/parameters.ts';
import { findForkPoint, insertFork } from './fork-store.ts';
import { newLabelsSchema } from './label.ts';
import { absentSession, SESSION_PATH, type SessionContext } from './session-context.ts';
import { checkReached } from './session-store.ts';
import { looseObject, optional } from '../../core/members.ts';

/** Body of a fork. */
const forkRequestSchema = looseObject('Where a session is forked.', {
  sessionId: chosenIdentifierSchema.nullish().describe('Chosen id of the new session; else the server makes it.'),
  atSequence: optional(
    z.int().min(0).max(INT32_MAX),
    'Number of events that are taken over; 0 is none of them, and without it all are.',
  ),
  labels: newLabelsSchema.nullish().describe('Labels of the new session; those of the other one stay there.'),
});

const forkSchema = looseObject('A session that was made from another one.', {
  id: z.string().describe('The new session.'),
  appName: z.string().describe('The application.'),
  userId: z.string().describe('The user.'),
  forkedFrom: looseObject('Where it comes from.', {
    sessionId: z.string().describe('The session that it was made from.'),
    atSequence: z.int().describe('Number of events that were taken over.'),
  }),
  artifactVersions: z.int().describe('Number of versions of artifacts that were copied.'),
});

const example = {
  id: 's2',
  appName: 'harness_agent',
  userId: 'u1',
  forkedFrom: { sessionId: 's1', atSequence: 2 },
  artifactVersions: 0,
};

/** A new session from the beginning of another one. */
export const forkSession = operation({
  method: 'post',
  path: `${SESSION_PATH}/fork`,
  operationId: 'forkSession',
  load: 'heavy',
  scope: 'write',
  summary: 'Fork a session',
  description:
    'Makes a session of the same user with the first events of this one, the state and the artifacts of then. The ' +
    'two share nothing afterwards but the `user:` and `app:` state, which have no history. Artifacts of then are ' +
    'the versions that these events saved, and those that were saved before the next event and that no later one ' +
    'names. What is known of the invocations beside their events (status, tape) stays with the first session.',
  parameters: { path: sessionPath },
  body: { schema: forkRequestSchema, required: false, example: { sessionId: 's2', atSequence: 2 } },
  success: { schema: forkSchema, description: 'What was made.', example },
  errors: {
    400: 'The session has not reached `atSequence`.',
    404: 'No such session or application.',
    409: 'The id is taken, by a session or by artifacts of a deleted one.',
    413: 'The artifacts are too many or too large to copy, the user would keep too much, or the body is too large.',
  },
  absent: absentSession,
  handler: async (context: SessionContext, { path, body, notFound }) => {
    const { database, newId, copyArtifacts } = context;
    const { appName, userId } = path;
    const point = await findForkPoint(database.db, path, body?.atSequence ?? undefined);
    if (!point) throw notFound();
    const { reached, atSequence } = point;
    checkReached(reached, atSequence);
    const sessionId = body?.sessionId?.trim() || newId();
    const artifactVersions = await copyArtifacts(path, point, (insertArtifacts) =>
      database.transaction(async (tx) => {
        if (!(await insertFork(tx, path, { sessionId, atSequence, labels: body?.labels ?? {} }))) {
          if (!(await findForkPoint(tx, path, 0))) throw notFound();
          throw new ConflictError(`Session already exists: ${sessionId}`);
        }
        return insertArtifacts(tx, sessionId);
      }),
    );
    const forkedFrom = { sessionId: path.sessionId, atSequence };
    return { kind: 'value', value: { id: sessionId, appName, userId, forkedFrom, artifactVersions } };
  },
});
