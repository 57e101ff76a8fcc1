import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../errors.ts';
import { mayActFor } from '../http/bearer.ts';
import { operation, type Operation } from '../http/operation.ts';
import { sessionNotFound } from '../sessions/store.ts';
import { addSession } from './add-session.ts';
import { addSessionSchema } from './eval-case.ts';
import { type EvalSetKey, listEvalCaseIds } from './store.ts';

const area = 'Evaluation (development server)';

const toKey = (path: Record<string, string>): EvalSetKey => ({
  appName: path['app_name'] ?? '',
  evalSetId: path['eval_set_id'] ?? '',
});

/** Evaluation, in development UI mode only: add a session as a case, list a set's cases. */
export const evalRoutes = ({ database }: { database: DatabasePool }): Operation[] => [
  operation({
    method: 'post',
    path: '/dev/apps/{app_name}/eval-sets/{eval_set_id}/add-session',
    operationId: 'addSessionToEvalSet',
    area,
    summary: 'Add a session as an evaluation case',
    description: 'Creates the set where it is absent, and turns the conversation into a new case.',
    body: { schema: addSessionSchema, required: true },
    errors: { 404: 'No such session.', 409: 'The set has a case of this id.' },
    handler: async ({ path, body, principal }) => {
      if (!mayActFor(principal, body.userId)) throw new NotFoundError(sessionNotFound(body.sessionId));
      const { appName, evalSetId } = toKey(path);
      await addSession(
        database.db,
        { appName, userId: body.userId, sessionId: body.sessionId },
        evalSetId,
        body.evalId,
      );
      return { kind: 'value', value: null };
    },
  }),
  operation({
    method: 'get',
    path: '/dev/apps/{app_name}/eval_sets/{eval_set_id}/evals',
    operationId: 'listEvalCases',
    area,
    summary: 'List evaluation cases',
    description: "The identifiers of a set's cases, sorted by code point.",
    success: { schema: { type: 'array', items: { type: 'string' } }, description: 'The case identifiers.' },
    errors: { 404: 'No such set.' },
    handler: async ({ path }) => {
      const key = toKey(path);
      const value = await listEvalCaseIds(database.db, key);
      if (!value) throw new NotFoundError(`Eval set \`${key.evalSetId}\` not found.`);
      return { kind: 'value', value };
    },
  }),
];
