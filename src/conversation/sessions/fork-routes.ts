import { z } from 'zod';
import { SessionExistsError } from '../../core/errors.ts';
import { chosenIdentifierSchema } from '../../core/session.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';
import { findForkPoint, insertFork } from './fork-store.ts';
import { newLabelsSchema } from './label.ts';
import { session, type SessionContext } from './session-context.ts';
import { checkReached } from './session-store.ts';
import type { SessionKey } from '../../core/session.ts';
import { looseObject, optional } from '../../core/members.ts';

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

interface ForkRequest {
  sessionId: string;
  /** Number of events to copy. Default: all. */
  atSequence?: number | null | undefined;
  labels?: Record<string, string> | null | undefined;
}

/**
 * Creates a session from the first events of another session, with the state and the artifacts at that point.
 * @returns what was copied; `undefined` if the source session does not exist
 * @throws {ConflictError} if the new session's id is taken
 * @throws {InvalidError} if the source session has fewer events
 */
export async function forkAt(
  { database, copyArtifacts }: Pick<SessionContext, 'database' | 'copyArtifacts'>,
  key: SessionKey,
  { sessionId, labels, ...from }: ForkRequest,
): Promise<{ atSequence: number; artifactVersions: number } | undefined> {
  const point = await findForkPoint(database.db, key, from.atSequence ?? undefined);
  if (!point) return undefined;
  const { reached, atSequence } = point;
  checkReached(reached, atSequence);
  const artifactVersions = await copyArtifacts(key, point, (insertArtifacts) =>
    database.transaction(async (tx) => {
      if (await insertFork(tx, key, { sessionId, atSequence, labels: labels ?? {} }))
        return insertArtifacts(tx, sessionId);
      if (!(await findForkPoint(tx, key, 0))) return undefined;
      throw new SessionExistsError(sessionId);
    }),
  );
  return artifactVersions === undefined ? undefined : { atSequence, artifactVersions };
}

export const forkSession = session.action('fork')({
  operationId: 'forkSession',
  load: 'heavy',
  summary: 'Fork a session',
  description:
    'Makes a session of the same user with the first events of this one, the state and the artifacts of then. The ' +
    'two share nothing afterwards but the `user:` and `app:` state, which have no history. Artifacts of then are ' +
    'the versions that these events saved, and those that were saved before the next event and that no later one ' +
    'names. What is known of the invocations beside their events (status, tape, tasks) stays with the first session: an ' +
    'open question is answered there, and here with 409.',
  body: { schema: forkRequestSchema, required: false, example: { sessionId: 's2', atSequence: 2 } },
  success: { schema: forkSchema, description: 'What was made.', example },
  errors: {
    400: 'The session has not reached `atSequence`.',
    404: 'No such session or application.',
    409: 'The id is taken, by a session or by artifacts of a deleted one.',
    413: 'The artifacts are too many or too large to copy, the user would keep too much, or the body is too large.',
  },
  run: async (context, { path, body, notFound }) => {
    const { appName, userId } = path;
    const sessionId = body?.sessionId?.trim() || context.newId();
    const fork = await forkAt(context, path, { sessionId, atSequence: body?.atSequence, labels: body?.labels });
    if (!fork) throw notFound();
    const { atSequence, artifactVersions } = fork;
    const forkedFrom = { sessionId: path.sessionId, atSequence };
    return { id: sessionId, appName, userId, forkedFrom, artifactVersions };
  },
});
