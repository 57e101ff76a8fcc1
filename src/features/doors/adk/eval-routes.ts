import { nextCursorHeader } from '../../../conversation/sessions/session-context.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { evalSetPath } from '../../../platform/http/operation/parameters.ts';
import { addSession, listInstructions } from '../../evals/cases/add-sessions.ts';
import { deleteEvalCase } from '../../evals/cases/eval-case-store.ts';
import { getOwner, noSession, ofAddedSession } from '../../evals/cases/routes.ts';
import { caseResultsSchema, exampleCaseResult } from '../../evals/runs/eval-run.ts';
import {
  evalResult,
  exampleResultIds,
  ofAwaitedRun,
  ofResultList,
  readResultIds,
  runAndRead,
  sendCompressed,
} from '../../evals/runs/result-routes.ts';
import { streamList } from '../../evals/sets/bounds.ts';
import { DEV_APP_PATH, evalSet, idsSchema, room, toOwnKey } from '../../evals/sets/context.ts';
import { checkSetId } from '../../evals/sets/eval-set.ts';
import { insertEvalSet } from '../../evals/sets/eval-set-store.ts';
import { exampleIds, INVALID_ID, ofSetList, readSetIds } from '../../evals/sets/routes.ts';

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
