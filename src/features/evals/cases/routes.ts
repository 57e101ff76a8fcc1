import type { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { sessionNotFound } from '../../../core/session.ts';
import { evalCasePath, evalSetPath } from '../../../platform/http/operation/parameters.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { DEV_APP_PATH, evalSet, getRequester, idsSchema, room, toOwnKey } from '../sets/context.ts';
import { evalCaseSchema, exampleEvalCase } from '../sets/eval-set.ts';
import { evalSetNotFound } from '../sets/eval-set-store.ts';
import { withToolUses } from '../sets/intermediate-data.ts';
import { addSession, listInstructions } from './add-sessions.ts';
import { addSessionSchema } from './eval-case.ts';
import { deleteEvalCase, findEvalCase, listEvalCaseIds, replaceEvalCase } from './eval-case-store.ts';

// No `find`, because a change finds the case itself, and says whether set or case is absent.
const evalCase = room.resource({
  noun: 'case',
  id: 'EvalCase',
  path: `${evalSet.onePath}/eval-cases`,
  within: evalSetPath,
  key: evalCasePath,
  schema: evalCaseSchema,
  example: exampleEvalCase,
  absent: ({ evalSetId, evalId }) => `Eval set \`${evalSetId}\` or Eval \`${evalId}\` not found.`,
});

type SentSession = z.input<typeof addSessionSchema>;
export const ofAddedSession = {
  method: 'post',
  owner: {
    user: ({ body }: { body: SentSession }) => body.userId,
    absent: ({ body }: { body: SentSession }) => sessionNotFound(body.sessionId),
  },
  parameters: { path: evalSetPath },
  body: { schema: addSessionSchema, required: true, example: { evalId: 'case1', sessionId: 's1', userId: 'u1' } },
} as const;
export const noSession = {
  400: 'The session has not reached `fromSequence`, or that is within an invocation.',
  404: 'No such session, or the set is another user’s.',
};

/** Owner of the set that a case is added to. API keys bound to users act for the user that the request names. */
export const getOwner = (principal: Principal, userId: string) =>
  getRequester(principal) === undefined ? undefined : userId;

export const evalCaseOperations = [
  room.operation({
    ...ofAddedSession,
    path: `${evalSet.onePath}/add-session`,
    operationId: 'addSessionToEvalSet',
    wire: 'ADK',
    summary: 'Add a session as an evaluation case',
    description: 'Creates the set where it is absent, and turns the conversation into a new case.',
    errors: { ...noSession, 409: 'The set has a case of this id.' },
    handler: async ({ database, agents }, { path, body, principal }) => {
      const set = { ...path, ownerId: getOwner(principal, body.userId) };
      const instructions = listInstructions(agents.get(path.appName));
      await addSession(database.db, { ...path, ...body }, set, { ...body, instructions });
    },
  }),
  evalCase.list({
    // ADK defines only its older paths for the list of cases.
    path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}/evals`,
    wire: 'ADK',
    summary: 'List evaluation cases',
    description: "The identifiers of a set's cases, sorted by code point.",
    success: { schema: idsSchema, description: 'The case identifiers.', example: ['case1', 'case2'] },
    errors: { 404: 'No such set.' },
    absent: evalSetNotFound,
    run: async ({ database }, { path, principal, notFound }) => {
      const ids = await listEvalCaseIds(database.reads, toOwnKey(path, principal));
      if (!ids) throw notFound();
      return ids;
    },
  }),
  evalCase.read({
    wire: 'ADK',
    summary: 'Get an evaluation case',
    run: async ({ database }, { path, principal, request, notFound }) => {
      const found = await findEvalCase(database.reads, toOwnKey(path, principal), path.evalId);
      if (!found) throw notFound();
      // Only the older paths add `toolUses`, for the ADK Web UI: every ADK refuses a file with events and `toolUses`.
      const shown = /\/eval-cases\/[^/]*$/.test(request.path) ? found : withToolUses(found);
      return { ...shown, finalSessionState: found.finalSessionState ?? {} };
    },
  }),
  evalCase.save({
    operationId: 'updateEvalCase',
    wire: 'ADK',
    summary: 'Replace an evaluation case',
    errors: { 400: 'The path names another case than the body.', 404: 'No such set or case.' },
    run: async ({ database }, { path, body, principal }) => {
      if (body.evalId !== path.evalId)
        throw new InvalidError('Eval id in EvalCase should match the eval id in the API route.');
      await replaceEvalCase(database.db, toOwnKey(path, principal), withoutKnownNulls(evalCaseSchema, body));
    },
  }),
  evalCase.remove({
    summary: 'Delete an evaluation case',
    errors: { 404: 'No such set or case.' },
    absent: evalSetNotFound,
    run: ({ database }, { path, principal }) => deleteEvalCase(database.db, toOwnKey(path, principal), path.evalId),
  }),
];
