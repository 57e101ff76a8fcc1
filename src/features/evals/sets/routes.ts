import { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import type { DatabasePool } from '../../../platform/db/database.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import { appPath, evalSetPath } from '../../../platform/http/operation/parameters.ts';
import { createEvalSetSchema, EVAL_SET_ID, evalCaseSchema, evalSetSchema, exampleEvalSet } from './eval-set.ts';
import {
  deleteEvalSet,
  type EvalSetKey,
  evalSetNotFound,
  findEvalSetText,
  insertEvalSet,
  listEvalSetIds,
  type NewEvalSet,
} from './eval-set-store.ts';
import {
  area,
  DEV_APP_PATH,
  type EvalContext,
  exampleIds,
  idsSchema,
  OLD_SET_PATHS,
  SET_PATH,
  requesterOf,
} from './context.ts';

const INVALID_ID = 'The id has other characters than letters, digits and `_`.';

const createEvalSet = operation({
  method: 'post',
  path: `${DEV_APP_PATH}/eval-sets`,
  operationId: 'createEvalSet',
  scope: 'develop',
  area,
  summary: 'Create an evaluation set',
  owner: 'caller',
  parameters: { path: appPath },
  body: { schema: createEvalSetSchema, required: true, example: { evalSet: exampleEvalSet } },
  success: { schema: evalSetSchema, description: 'The new set.', example: exampleEvalSet },
  errors: { 400: INVALID_ID, 409: 'The id is taken.' },
  handler: async ({ database }: EvalContext, { path, body, principal, notFound }) => {
    const { eval_set_id: evalSetId, name, description, eval_cases, ...set } = body.evalSet;
    const key = { ...path, evalSetId, ownerId: requesterOf(principal) };
    const cases = (eval_cases ?? []).map((evalCase) => withoutKnownNulls(evalCaseSchema, evalCase));
    const modes = { modelExecutionMode: set.model_execution_mode, toolExecutionMode: set.tool_execution_mode };
    await create(database, key, { name, description, cases, ...modes });
    const text = await findEvalSetText(database.db, key);
    if (text === undefined) throw notFound();
    return { kind: 'json', text };
  },
});

const createEvalSetWithId = operation({
  method: 'post',
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}`,
  aliases: ['/apps/{app_name}/eval_sets/{eval_set_id}'],
  operationId: 'createEvalSetWithId',
  scope: 'develop',
  area,
  summary: 'Create an empty evaluation set',
  owner: 'caller',
  parameters: { path: evalSetPath },
  errors: { 400: INVALID_ID, 409: 'The id is taken.' },
  handler: async ({ database }: EvalContext, { path, principal }) => {
    await create(database, { ...path, ownerId: requesterOf(principal) }, { cases: [] });
    return { kind: 'value', value: null };
  },
});

const listEvalSets = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval-sets`,
  operationId: 'listEvalSets',
  scope: 'develop',
  area,
  summary: 'List evaluation sets',
  owner: 'caller',
  parameters: { path: appPath },
  success: {
    schema: z.looseObject({ evalSetIds: z.array(z.string()).describe('Sorted by code point.') }),
    description: 'The identifiers, in an object.',
    example: { evalSetIds: exampleIds },
  },
  handler: async ({ database }: EvalContext, { path, principal }) => ({
    kind: 'value',
    value: { evalSetIds: await listEvalSetIds(database.reads, path.appName, requesterOf(principal)) },
  }),
});

const listEvalSetIdsOperation = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval_sets`,
  aliases: ['/apps/{app_name}/eval_sets'],
  operationId: 'listEvalSetIds',
  scope: 'develop',
  area,
  summary: 'List evaluation sets as a bare array',
  owner: 'caller',
  parameters: { path: appPath },
  success: { schema: idsSchema, description: 'The identifiers, sorted by code point.', example: exampleIds },
  handler: async ({ database }: EvalContext, { path, principal }) => ({
    kind: 'value',
    value: await listEvalSetIds(database.reads, path.appName, requesterOf(principal)),
  }),
});

const getEvalSet = operation({
  method: 'get',
  path: SET_PATH,
  aliases: OLD_SET_PATHS,
  operationId: 'getEvalSet',
  load: 'heavy',
  scope: 'develop',
  area,
  summary: 'Get an evaluation set',
  owner: 'caller',
  parameters: { path: evalSetPath },
  success: { schema: evalSetSchema, description: 'The set with its cases, oldest first.', example: exampleEvalSet },
  errors: { 404: 'No such set.' },
  absent: evalSetNotFound,
  handler: async ({ database }: EvalContext, { path, principal, notFound }) => {
    const text = await findEvalSetText(database.db, { ...path, ownerId: requesterOf(principal) });
    if (text === undefined) throw notFound();
    return { kind: 'json', text };
  },
});

const deleteEvalSetOperation = operation({
  method: 'delete',
  path: SET_PATH,
  aliases: OLD_SET_PATHS,
  operationId: 'deleteEvalSet',
  scope: 'develop',
  area,
  summary: 'Delete an evaluation set',
  description: 'With its cases.',
  owner: 'caller',
  parameters: { path: evalSetPath },
  errors: { 404: 'No such set.' },
  handler: async ({ database }: EvalContext, { path, principal }) => {
    await deleteEvalSet(database.db, { ...path, ownerId: requesterOf(principal) });
    return { kind: 'value', value: null };
  },
});

/** Evaluation sets: create, list, get, delete. */
export const evalSetOperations = [
  createEvalSet,
  createEvalSetWithId,
  listEvalSets,
  listEvalSetIdsOperation,
  getEvalSet,
  deleteEvalSetOperation,
];

async function create(database: DatabasePool, key: EvalSetKey, evalSet: NewEvalSet): Promise<void> {
  if (!EVAL_SET_ID.test(key.evalSetId)) {
    throw new InvalidError(`Invalid Eval Set ID. Eval Set ID should have the \`${EVAL_SET_ID.source}\` format`);
  }
  await insertEvalSet(database.db, key, evalSet);
}
