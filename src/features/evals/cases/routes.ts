import type { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { sessionNotFound } from '../../../core/session.ts';
import { evalCasePath, evalSetPath } from '../../../platform/http/operation/parameters.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { DEV_APP_PATH, evalOperation, getRequester, idsSchema, ofSet, SET_PATH, toOwnKey } from '../sets/context.ts';
import { evalCaseSchema, exampleEvalCase } from '../sets/eval-set.ts';
import { withToolUses } from '../sets/intermediate-data.ts';
import { addSession, listInstructions } from './add-sessions.ts';
import { addSessionSchema } from './eval-case.ts';
import { deleteEvalCase, findEvalCase, listEvalCaseIds, replaceEvalCase } from './eval-case-store.ts';

const CASE_PATH = `${SET_PATH}/eval-cases/{eval_id}`;

const ofCase = { path: CASE_PATH, parameters: { path: evalCasePath } };

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

const addSessionToEvalSet = evalOperation({
  ...ofAddedSession,
  path: `${SET_PATH}/add-session`,
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
});

/** Owner of the set that a case is added to. API keys bound to users act for the user that the request names. */
export const getOwner = (principal: Principal, userId: string) =>
  getRequester(principal) === undefined ? undefined : userId;

/** ADK defines only its older paths for the list of cases. */
const listEvalCases = evalOperation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}/evals`,
  operationId: 'listEvalCases',
  wire: 'ADK',
  summary: 'List evaluation cases',
  description: "The identifiers of a set's cases, sorted by code point.",
  ...ofSet,
  success: { schema: idsSchema, description: 'The case identifiers.', example: ['case1', 'case2'] },
  handler: async ({ database }, { path, principal, notFound }) => {
    const value = await listEvalCaseIds(database.reads, toOwnKey(path, principal));
    if (!value) throw notFound();
    return { kind: 'value', value };
  },
});

const getEvalCase = evalOperation({
  method: 'get',
  ...ofCase,
  operationId: 'getEvalCase',
  wire: 'ADK',
  summary: 'Get an evaluation case',
  success: { schema: evalCaseSchema, description: 'The case.', example: exampleEvalCase },
  errors: { 404: 'No such case.' },
  absent: ({ evalSetId, evalId }) => `Eval set \`${evalSetId}\` or Eval \`${evalId}\` not found.`,
  handler: async ({ database }, { path, principal, request, notFound }) => {
    const found = await findEvalCase(database.reads, toOwnKey(path, principal), path.evalId);
    if (!found) throw notFound();
    // Only the older paths add `toolUses`, for the ADK Web UI: every ADK refuses a file with events and `toolUses`.
    const shown = /\/eval-cases\/[^/]*$/.test(request.path) ? found : withToolUses(found);
    return { kind: 'json', text: JSON.stringify({ ...shown, finalSessionState: found.finalSessionState ?? {} }) };
  },
});

const updateEvalCase = evalOperation({
  method: 'put',
  ...ofCase,
  operationId: 'updateEvalCase',
  wire: 'ADK',
  summary: 'Replace an evaluation case',
  body: { schema: evalCaseSchema, required: true, example: exampleEvalCase },
  errors: { 400: 'The path names another case than the body.', 404: 'No such set or case.' },
  handler: async ({ database }, { path, body, principal }) => {
    if (body.evalId !== path.evalId)
      throw new InvalidError('Eval id in EvalCase should match the eval id in the API route.');
    const set = toOwnKey(path, principal);
    await replaceEvalCase(database.db, set, withoutKnownNulls(evalCaseSchema, body));
  },
});

const deleteEvalCaseOperation = evalOperation({
  method: 'delete',
  ...ofCase,
  operationId: 'deleteEvalCase',
  summary: 'Delete an evaluation case',
  errors: { 404: 'No such set or case.' },
  handler: async ({ database }, { path, principal }) => {
    await deleteEvalCase(database.db, toOwnKey(path, principal), path.evalId);
  },
});

export const evalCaseOperations = [
  addSessionToEvalSet,
  listEvalCases,
  getEvalCase,
  updateEvalCase,
  deleteEvalCaseOperation,
];
