import { nextCursorHeader } from '../../platform/http/operation/cursor.ts';
import { NotFoundError } from '../../core/errors.ts';
import type { Aliases } from '../../platform/http/operation/paths.ts';
import { evalSetPath } from '../../platform/http/operation/parameters.ts';
import { addSession, listInstructions } from './cases/add-sessions.ts';
import { deleteEvalCase } from './cases/eval-case-store.ts';
import { getOwner, noSession, ofAddedSession } from './cases/routes.ts';
import { caseResultsSchema, exampleCaseResult } from './runs/eval-run.ts';
import {
  evalResult,
  exampleResultIds,
  ofAwaitedRun,
  ofResultList,
  readResultIds,
  runAndRead,
  sendCompressed,
} from './runs/result-routes.ts';
import { streamList } from './sets/bounds.ts';
import { DEV_APP_PATH, evalSet, idsSchema, room, toOwnKey } from './sets/context.ts';
import { checkSetId } from './sets/eval-set.ts';
import { insertEvalSet } from './sets/eval-set-store.ts';
import { exampleIds, INVALID_ID, ofSetList, readSetIds } from './sets/routes.ts';

const createEvalSetWithId = room.operation({
  method: 'post',
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}`,
  operationId: 'createEvalSetWithId',
  wire: 'ADK',
  summary: 'Create an empty evaluation set',
  parameters: { path: evalSetPath },
  errors: { 400: INVALID_ID, 409: 'The id is taken.' },
  handler: async ({ database }, { path, principal }) => {
    checkSetId(path.evalSetId);
    await insertEvalSet(database.db, toOwnKey(path, principal), { eval_cases: [] });
    return { kind: 'value', value: null };
  },
});

const listEvalSetIds = evalSet.list({
  path: `${DEV_APP_PATH}/eval_sets`,
  operationId: 'listEvalSetIds',
  wire: 'ADK',
  summary: 'List evaluation sets as a bare array',
  ...ofSetList,
  success: {
    schema: idsSchema,
    description: 'The identifiers, sorted by code point.',
    example: exampleIds,
    headers: nextCursorHeader,
  },
  run: ({ database }, call) => readSetIds(database.reads, call),
});

/** Overwrites an existing case: only the ADK Web UI calls this, after asking the person, by repeating the request. */
const overwriteEvalCase = room.operation({
  ...ofAddedSession,
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}/add_session`,
  operationId: 'overwriteEvalCase',
  wire: 'ADK',
  summary: 'Add a session as an evaluation case, in the place of one of this id',
  description: 'As `add-session`, for the ADK Web UI: a case of this id is overwritten.',
  errors: noSession,
  handler: async ({ database, agents }, { path, body, principal }) => {
    const set = { ...path, ownerId: getOwner(principal, body.userId) };
    const instructions = listInstructions(agents.get(path.appName));
    await database.transaction(async (tx) => {
      await deleteEvalCase(tx, set, body.evalId).catch((error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
      });
      await addSession(tx, { ...path, ...body }, set, { ...body, instructions });
    });
  },
});

const runEvalSetAsList = evalSet.action('run_eval')({
  ...ofAwaitedRun,
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}/run_eval`,
  operationId: 'runEvalSetAsList',
  wire: 'ADK',
  summary: 'Run an evaluation set, the answer a bare array',
  success: { schema: caseResultsSchema, description: 'The results.', example: [exampleCaseResult] },
  handler: async (context, call) =>
    sendCompressed(call.request, call.response, await streamList(await runAndRead(context, 'runEvalSetAsList', call))),
});

const listEvalResultIds = evalResult.list({
  path: `${DEV_APP_PATH}/eval_results`,
  operationId: 'listEvalResultIds',
  wire: 'ADK',
  summary: 'List evaluation results as a bare array',
  ...ofResultList,
  success: { schema: idsSchema, description: 'The identifiers.', example: exampleResultIds, headers: nextCursorHeader },
  run: ({ database }, call) => readResultIds(database.reads, call),
});

/** Evaluation operations for ADK's clients only: create an empty set, get lists as bare arrays, overwrite a case. */
export const adkEvalOperations = [
  createEvalSetWithId,
  listEvalSetIds,
  overwriteEvalCase,
  runEvalSetAsList,
  listEvalResultIds,
];

/** Older paths of ADK's evaluation API: with underscores, and in ADK 1.x without the prefix `/dev`. */
export const EVAL_ALIASES: Aliases = {
  '/dev/apps/{app_name}/eval_sets/{eval_set_id}': ['getEvalSet', 'deleteEvalSet'],
  '/dev/apps/{app_name}/eval_sets/{eval_set_id}/evals/{eval_id}': ['getEvalCase', 'updateEvalCase', 'deleteEvalCase'],
  '/dev/apps/{app_name}/eval_results/{eval_result_id}': ['getEvalResult'],
  '/apps/{app_name}/eval_sets': ['listEvalSetIds'],
  '/apps/{app_name}/eval_sets/{eval_set_id}': ['createEvalSetWithId', 'getEvalSet', 'deleteEvalSet'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/add_session': ['overwriteEvalCase'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/run_eval': ['runEvalSetAsList'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/evals': ['listEvalCases'],
  '/apps/{app_name}/eval_sets/{eval_set_id}/evals/{eval_id}': ['getEvalCase', 'updateEvalCase', 'deleteEvalCase'],
  '/apps/{app_name}/eval_results': ['listEvalResultIds'],
  '/apps/{app_name}/eval_results/{eval_result_id}': ['getEvalResult'],
};
