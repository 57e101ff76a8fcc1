import type { z } from 'zod';
import { listAgents } from '../../../conversation/apps/agent-description.ts';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { sessionNotFound } from '../../../core/session.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { evalCasePath, evalSetPath } from '../../../platform/http/operation/parameters.ts';
import { addSession } from './add-session.ts';
import { addSessionSchema } from './eval-case.ts';
import { evalCaseSchema, exampleEvalCase } from '../sets/eval-set.ts';
import { evalSetNotFound } from '../sets/eval-set-store.ts';
import { deleteEvalCase, findEvalCaseText, listEvalCaseIds, replaceEvalCase } from './eval-case-store.ts';
import {
  area,
  DEV_APP_PATH,
  type EvalContext,
  idsSchema,
  OLD_SET_PATHS,
  SET_PATH,
  requesterOf,
} from '../sets/context.ts';

const CASE_PATH = `${SET_PATH}/eval-cases/{eval_id}`;
const OLD_CASE_PATHS = OLD_SET_PATHS.map((path) => `${path}/evals/{eval_id}`);

const [OLD_ADD_PATH = '', ...OLDER_ADD_PATHS] = OLD_SET_PATHS.map((path) => `${path}/add_session`);

const addSessionToEvalSet = operation({
  method: 'post',
  path: `${SET_PATH}/add-session`,
  operationId: 'addSessionToEvalSet',
  scope: 'develop',
  area,
  summary: 'Add a session as an evaluation case',
  description: 'Creates the set where it is absent, and turns the conversation into a new case.',
  owner: { user: ({ body }) => body.userId, absent: ({ body }) => sessionNotFound(body.sessionId) },
  parameters: { path: evalSetPath },
  body: { schema: addSessionSchema, required: true, example: { evalId: 'case1', sessionId: 's1', userId: 'u1' } },
  errors: {
    400: 'The session has not reached `fromSequence`, or that is within an invocation.',
    404: 'No such session, or the set is another user’s.',
    409: 'The set has a case of this id.',
  },
  handler: async ({ database, agents }: EvalContext, { path, body, principal }) => {
    const { appName } = path;
    const { userId, sessionId } = body;
    const set = { ...path, ownerId: ownerOf(principal, userId) };
    await addSession(database.db, { appName, userId, sessionId }, set, sourceOf(agents, appName, body));
    return { kind: 'value', value: null };
  },
});

/** The spelling that only the UI uses: it asks whether to overwrite and then sends the very same request. */
const overwriteEvalCase = operation({
  method: 'post',
  path: OLD_ADD_PATH,
  aliases: OLDER_ADD_PATHS,
  operationId: 'overwriteEvalCase',
  scope: 'develop',
  area,
  summary: 'Add a session as an evaluation case, in the place of one of this id',
  description: 'As `add-session`, for the ADK Web UI: a case of this id is overwritten.',
  owner: { user: ({ body }) => body.userId, absent: ({ body }) => sessionNotFound(body.sessionId) },
  parameters: { path: evalSetPath },
  body: { schema: addSessionSchema, required: true, example: { evalId: 'case1', sessionId: 's1', userId: 'u1' } },
  errors: {
    400: 'The session has not reached `fromSequence`, or that is within an invocation.',
    404: 'No such session, or the set is another user’s.',
  },
  handler: async ({ database, agents }: EvalContext, { path, body, principal }) => {
    const { appName } = path;
    const { userId, sessionId, evalId } = body;
    const set = { ...path, ownerId: ownerOf(principal, userId) };
    await database.transaction(async (tx) => {
      await deleteEvalCase(tx, set, evalId).catch((error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
      });
      await addSession(tx, { appName, userId, sessionId }, set, sourceOf(agents, appName, body));
    });
    return { kind: 'value', value: null };
  },
});

/** A key that is bound to users acts for the one that it names: theirs is the set. */
const ownerOf = (principal: Principal, userId: string) => (requesterOf(principal) === undefined ? undefined : userId);

function sourceOf(
  agents: EvalContext['agents'],
  appName: string,
  { evalId, fromSequence }: z.input<typeof addSessionSchema>,
) {
  const agent = agents.get(appName)?.describe();
  const instructions = agent ? listAgents(agent).map(({ instruction }) => instruction) : [];
  return { evalId, instructions, fromSequence: fromSequence ?? undefined };
}

/** The list of cases has the older spellings only (specification). */
const listEvalCases = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}/evals`,
  aliases: ['/apps/{app_name}/eval_sets/{eval_set_id}/evals'],
  operationId: 'listEvalCases',
  scope: 'develop',
  area,
  summary: 'List evaluation cases',
  description: "The identifiers of a set's cases, sorted by code point.",
  owner: 'caller',
  parameters: { path: evalSetPath },
  success: { schema: idsSchema, description: 'The case identifiers.', example: ['case1', 'case2'] },
  errors: { 404: 'No such set.' },
  absent: evalSetNotFound,
  handler: async ({ database }: EvalContext, { path, principal, notFound }) => {
    const value = await listEvalCaseIds(database.reads, { ...path, ownerId: requesterOf(principal) });
    if (!value) throw notFound();
    return { kind: 'value', value };
  },
});

const getEvalCase = operation({
  method: 'get',
  path: CASE_PATH,
  aliases: OLD_CASE_PATHS,
  operationId: 'getEvalCase',
  scope: 'develop',
  area,
  summary: 'Get an evaluation case',
  owner: 'caller',
  parameters: { path: evalCasePath },
  success: { schema: evalCaseSchema, description: 'The case.', example: exampleEvalCase },
  errors: { 404: 'No such case.' },
  absent: ({ evalSetId, evalId }) => `Eval set \`${evalSetId}\` or Eval \`${evalId}\` not found.`,
  handler: async ({ database }: EvalContext, { path, principal, notFound }) => {
    const text = await findEvalCaseText(database.reads, { ...path, ownerId: requesterOf(principal) }, path.evalId);
    if (text === undefined) throw notFound();
    return { kind: 'json', text };
  },
});

const updateEvalCase = operation({
  method: 'put',
  path: CASE_PATH,
  aliases: OLD_CASE_PATHS,
  operationId: 'updateEvalCase',
  scope: 'develop',
  area,
  summary: 'Replace an evaluation case',
  owner: 'caller',
  parameters: { path: evalCasePath },
  body: { schema: evalCaseSchema, required: true, example: exampleEvalCase },
  errors: { 400: 'The path names another case than the body.', 404: 'No such set or case.' },
  handler: async ({ database }: EvalContext, { path, body, principal }) => {
    if (body.evalId !== path.evalId) {
      throw new InvalidError('Eval id in EvalCase should match the eval id in the API route.');
    }
    const set = { ...path, ownerId: requesterOf(principal) };
    await replaceEvalCase(database.db, set, withoutKnownNulls(evalCaseSchema, body));
    return { kind: 'value', value: null };
  },
});

const deleteEvalCaseOperation = operation({
  method: 'delete',
  path: CASE_PATH,
  aliases: OLD_CASE_PATHS,
  operationId: 'deleteEvalCase',
  scope: 'develop',
  area,
  summary: 'Delete an evaluation case',
  owner: 'caller',
  parameters: { path: evalCasePath },
  errors: { 404: 'No such set or case.' },
  handler: async ({ database }: EvalContext, { path, principal }) => {
    await deleteEvalCase(database.db, { ...path, ownerId: requesterOf(principal) }, path.evalId);
    return { kind: 'value', value: null };
  },
});

/** Evaluation cases: made from a session, list, get, replace, delete. */
export const evalCaseOperations = [
  addSessionToEvalSet,
  overwriteEvalCase,
  listEvalCases,
  getEvalCase,
  updateEvalCase,
  deleteEvalCaseOperation,
];
