import { sessionNotFound } from '../core/session.ts';
import type { DatabasePool } from '../db/database.ts';
import { InvalidError, NotFoundError } from '../core/errors.ts';
import { mayActFor } from '../http/access/bearer.ts';
import { checkBodyIdentifier } from '../http/validation/body-identifier.ts';
import { operation, type Operation } from '../http/operation/operation.ts';
import { withoutKnownNulls } from '../core/known-nulls.ts';
import { addSession } from './add-session.ts';
import { addSessionSchema } from './eval-case.ts';
import { createEvalSetSchema, EVAL_SET_ID, evalCaseSchema, evalSetSchema, METRICS_INFO } from './eval-set.ts';
import {
  deleteEvalCase,
  deleteEvalSet,
  type EvalSetKey,
  evalSetNotFound,
  findEvalCaseText,
  findEvalResultText,
  findEvalSetText,
  insertEvalSet,
  listEvalCaseIds,
  listEvalResultIds,
  listEvalSetIds,
  type NewEvalSet,
  replaceEvalCase,
} from './eval-store.ts';

const APP = '/dev/apps/{app_name}';
const SET = `${APP}/eval-sets/{eval_set_id}`;
const CASE = `${SET}/eval-cases/{eval_id}`;
const area = 'Evaluation (development server)';
const ids = { type: 'array', items: { type: 'string' } };
const anyObject = { type: 'object' };

const toKey = (path: Record<string, string>): EvalSetKey => ({
  appName: path['app_name'] ?? '',
  evalSetId: path['eval_set_id'] ?? '',
});

/** Evaluation, in development UI mode only: sets, cases, results, metrics. Each in the spellings that clients call. */
export const evalRoutes = (context: { database: DatabasePool }): Operation[] => {
  const operations = [...setRoutes(context), ...caseRoutes(context), ...resultRoutes(context)];
  return [...operations, ...operations.flatMap(withoutDev)];
};

/** An operation in ADK's older spelling too; the list of cases has that one only (specification). */
const withUnderscores = (plain: Operation): Operation[] => [
  plain,
  {
    ...plain,
    path: plain.path.replace('eval-cases', 'evals').replaceAll('-', '_'),
    operationId: `${plain.operationId}Underscore`,
  },
];

/** An operation as ADK 1.x spells it: underscores, and no `/dev` in front. */
function withoutDev(plain: Operation): Operation[] {
  if (!/\/eval_(?:sets|results)/.test(plain.path)) return [];
  const [path, operationId] = [plain.path.slice('/dev'.length), `${plain.operationId}Legacy`];
  return [{ ...plain, path, operationId, area: 'Compatibility endpoints' }];
}

/** A list of identifiers, sorted by code point: inside an object, and with underscores as a bare array. */
function idLists(name: 'Sets' | 'Results', list: (appName: string) => Promise<string[]>): Operation[] {
  const [member, spelling] = [`eval${name.slice(0, -1)}Ids`, `eval-${name.toLowerCase()}`];
  const common = { method: 'get', area, summary: `List evaluation ${name.toLowerCase()}` } as const;
  return [
    operation({
      ...common,
      path: `${APP}/${spelling}`,
      operationId: `listEval${name}`,
      success: { schema: anyObject, description: `\`{"${member}": […]}\`, sorted by code point.` },
      handler: async ({ path }) => ({ kind: 'value', value: { [member]: await list(toKey(path).appName) } }),
    }),
    operation({
      ...common,
      path: `${APP}/${spelling.replace('-', '_')}`,
      operationId: `listEval${name.slice(0, -1)}Ids`,
      success: { schema: ids, description: 'The identifiers, sorted by code point.' },
      handler: async ({ path }) => ({ kind: 'value', value: await list(toKey(path).appName) }),
    }),
  ];
}

const setRoutes = ({ database }: { database: DatabasePool }): Operation[] => {
  const create = async (key: EvalSetKey, evalSet: NewEvalSet) => {
    if (!EVAL_SET_ID.test(key.evalSetId)) {
      throw new InvalidError(`Invalid Eval Set Id. Eval Set Id should have the \`${EVAL_SET_ID.source}\` format`);
    }
    await insertEvalSet(database.db, key, evalSet);
  };
  const find = async (key: EvalSetKey) => {
    const text = await findEvalSetText(database.db, key);
    if (text === undefined) throw new NotFoundError(evalSetNotFound(key));
    return { kind: 'json', text } as const;
  };
  return [
    operation({
      method: 'post',
      path: `${APP}/eval-sets`,
      operationId: 'createEvalSet',
      area,
      summary: 'Create an evaluation set',
      body: { schema: createEvalSetSchema, required: true },
      success: { schema: evalSetSchema, description: 'The new set.' },
      errors: { 400: 'The id has other characters than letters, digits and `_`.', 409: 'The id is taken.' },
      handler: async ({ path, body }) => {
        const { eval_set_id: evalSetId, name, description, eval_cases } = body.evalSet;
        const key = { ...toKey(path), evalSetId };
        const cases = (eval_cases ?? []).map((evalCase) => withoutKnownNulls(evalCaseSchema, evalCase));
        for (const { evalId } of cases) checkBodyIdentifier('evalId', evalId);
        await create(key, { name, description, cases });
        return find(key);
      },
    }),
    operation({
      method: 'post',
      path: `${APP}/eval_sets/{eval_set_id}`,
      operationId: 'createEvalSetWithId',
      area,
      summary: 'Create an empty evaluation set',
      errors: { 400: 'The id has other characters than letters, digits and `_`.', 409: 'The id is taken.' },
      handler: async ({ path }) => {
        await create(toKey(path), { cases: [] });
        return { kind: 'value', value: null };
      },
    }),
    ...idLists('Sets', (appName) => listEvalSetIds(database.reads, appName)),
    ...withUnderscores(
      operation({
        method: 'get',
        path: SET,
        operationId: 'getEvalSet',
        area,
        summary: 'Get an evaluation set',
        success: { schema: evalSetSchema, description: 'The set with its cases, oldest first.' },
        errors: { 404: 'No such set.' },
        handler: ({ path }) => find(toKey(path)),
      }),
    ),
    ...withUnderscores(
      operation({
        method: 'delete',
        path: SET,
        operationId: 'deleteEvalSet',
        area,
        summary: 'Delete an evaluation set',
        description: 'With its cases.',
        errors: { 404: 'No such set.' },
        handler: async ({ path }) => {
          await deleteEvalSet(database.db, toKey(path));
          return { kind: 'value', value: null };
        },
      }),
    ),
  ];
};

const caseRoutes = ({ database }: { database: DatabasePool }): Operation[] => [
  ...withUnderscores(
    operation({
      method: 'post',
      path: `${SET}/add-session`,
      operationId: 'addSessionToEvalSet',
      area,
      summary: 'Add a session as an evaluation case',
      description: 'Creates the set where it is absent, and turns the conversation into a new case.',
      body: { schema: addSessionSchema, required: true },
      errors: { 404: 'No such session.', 409: 'The set has a case of this id.' },
      handler: async ({ path, body, principal }) => {
        const { userId, sessionId } = body;
        if (!mayActFor(principal, userId)) throw new NotFoundError(sessionNotFound(sessionId));
        const { appName, evalSetId } = toKey(path);
        const evalId = checkBodyIdentifier('evalId', body.evalId);
        await addSession(database.db, { appName, userId, sessionId }, evalSetId, evalId);
        return { kind: 'value', value: null };
      },
    }),
  ),
  operation({
    method: 'get',
    path: `${APP}/eval_sets/{eval_set_id}/evals`,
    operationId: 'listEvalCases',
    area,
    summary: 'List evaluation cases',
    description: "The identifiers of a set's cases, sorted by code point.",
    success: { schema: ids, description: 'The case identifiers.' },
    errors: { 404: 'No such set.' },
    handler: async ({ path }) => {
      const key = toKey(path);
      const value = await listEvalCaseIds(database.reads, key);
      if (!value) throw new NotFoundError(evalSetNotFound(key));
      return { kind: 'value', value };
    },
  }),
  ...withUnderscores(
    operation({
      method: 'get',
      path: CASE,
      operationId: 'getEvalCase',
      area,
      summary: 'Get an evaluation case',
      success: { schema: evalCaseSchema, description: 'The case.' },
      errors: { 404: 'No such case.' },
      handler: async ({ path }) => {
        const { eval_id: evalId = '' } = path;
        const key = toKey(path);
        const text = await findEvalCaseText(database.reads, key, evalId);
        if (text !== undefined) return { kind: 'json', text };
        throw new NotFoundError(`Eval set \`${key.evalSetId}\` or Eval \`${evalId}\` not found.`);
      },
    }),
  ),
  ...withUnderscores(
    operation({
      method: 'put',
      path: CASE,
      operationId: 'updateEvalCase',
      area,
      summary: 'Replace an evaluation case',
      body: { schema: evalCaseSchema, required: true },
      errors: { 400: 'The body is another case than the path.', 404: 'No such set or case.' },
      handler: async ({ path, body }) => {
        if (body.evalId !== path['eval_id']) {
          throw new InvalidError('Eval id in EvalCase should match the eval id in the API route.');
        }
        await replaceEvalCase(database.db, toKey(path), withoutKnownNulls(evalCaseSchema, body));
        return { kind: 'value', value: null };
      },
    }),
  ),
  ...withUnderscores(
    operation({
      method: 'delete',
      path: CASE,
      operationId: 'deleteEvalCase',
      area,
      summary: 'Delete an evaluation case',
      errors: { 404: 'No such set or case.' },
      handler: async ({ path }) => {
        await deleteEvalCase(database.db, toKey(path), path['eval_id'] ?? '');
        return { kind: 'value', value: null };
      },
    }),
  ),
];

const resultRoutes = ({ database }: { database: DatabasePool }): Operation[] => [
  ...idLists('Results', (appName) => listEvalResultIds(database.reads, appName)),
  ...withUnderscores(
    operation({
      method: 'get',
      path: `${APP}/eval-results/{eval_result_id}`,
      operationId: 'getEvalResult',
      area,
      summary: 'Get an evaluation result',
      success: { schema: anyObject, description: 'The result.' },
      errors: { 404: 'No such result.' },
      handler: async ({ path }) => {
        const { eval_result_id: id = '' } = path;
        const text = await findEvalResultText(database.reads, toKey(path).appName, id);
        if (text === undefined) throw new NotFoundError(`Eval result \`${id}\` not found.`);
        return { kind: 'json', text };
      },
    }),
  ),
  operation({
    method: 'get',
    path: `${APP}/metrics-info`,
    operationId: 'getMetricsInfo',
    area,
    summary: 'List the metrics of evaluations',
    success: { schema: anyObject, description: '`{"metricsInfo": […]}`, each with the interval of its values.' },
    handler: async () => ({ kind: 'value', value: METRICS_INFO }),
  }),
];
