import { z } from 'zod';
import { InvalidError } from '../../core/errors.ts';
import { runAsSystem } from '../../platform/context.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { appPath } from '../../platform/http/operation/parameters.ts';
import { type Budget, budgetKey, budgetSchema, modelPriceSchema } from './budget.ts';
import { deleteBudget, listBudgets, listModelPrices, saveBudget, saveModelPrice } from './budget-store.ts';

/** Dependencies of the operations on budgets. */
interface BudgetContext {
  database: DatabasePool;
}

const exampleBudget: Budget = { appliesTo: 'users', period: 'day', maxInvocations: 200, maxTokens: 1_000_000 };
const examplePrice = { model: 'gpt-4o-mini', promptPrice: 0.15, outputPrice: 0.6 };

const listAll = operation({
  method: 'get',
  path: '/apps/{app_name}/budgets',
  operationId: 'listBudgets',
  scope: 'admin',
  load: 'read',
  summary: 'List the budgets of an application',
  owner: 'service',
  parameters: { path: appPath },
  success: {
    schema: z.array(budgetSchema),
    description: 'Its own, that of each user, then those of users by name.',
    example: [exampleBudget],
  },
  handler: async ({ database }: BudgetContext, { path }) => ({
    kind: 'value',
    value: await listBudgets(database.reads, path.appName),
  }),
});

const saveOne = operation({
  method: 'put',
  path: '/apps/{app_name}/budgets',
  operationId: 'saveBudget',
  scope: 'admin',
  summary: 'Set a budget',
  description:
    'In the place of the one for the same users and period, as a whole: a maximum that is left out has no limit. One ' +
    'whose maxima are null is removed; one that names none is refused.',
  owner: 'service',
  parameters: { path: appPath },
  body: { schema: budgetSchema, required: true, example: exampleBudget },
  errors: { 400: 'It applies to one user and names none, or names one and does not.' },
  handler: async ({ database }: BudgetContext, { path, body }) => {
    checkUser(body);
    await runAsSystem(() => saveBudget(database.db, path.appName, body));
  },
});

const deleteOne = operation({
  method: 'delete',
  path: '/apps/{app_name}/budgets',
  operationId: 'deleteBudget',
  scope: 'admin',
  summary: 'Remove a budget',
  description: 'Removing what is not there succeeds too.',
  owner: 'service',
  parameters: {
    path: appPath,
    query: z.object({ ...budgetKey, forUser: budgetKey.forUser.unwrap().unwrap().optional() }),
  },
  errors: { 400: 'It applies to one user and names none, or names one and does not.' },
  handler: async ({ database }: BudgetContext, { path, query }) => {
    checkUser(query);
    await runAsSystem(() => deleteBudget(database.db, path.appName, query));
  },
});

/** @throws {InvalidError} for a budget of one user without its name, or another one with a name */
function checkUser({ appliesTo, forUser }: Pick<Budget, 'appliesTo' | 'forUser'>): void {
  if ((appliesTo === 'user') !== (forUser != null))
    throw new InvalidError('`forUser` names the user where `appliesTo` is `user`, and is absent otherwise.');
}

const listPrices = operation({
  method: 'get',
  path: '/model-prices',
  operationId: 'listModelPrices',
  scope: 'admin',
  load: 'read',
  summary: 'List the prices of models',
  owner: 'service',
  success: { schema: z.array(modelPriceSchema), description: 'By model.', example: [examplePrice] },
  handler: async ({ database }: BudgetContext) => ({ kind: 'value', value: await listModelPrices(database.reads) }),
});

const savePrice = operation({
  method: 'put',
  path: '/model-prices',
  operationId: 'saveModelPrice',
  scope: 'admin',
  summary: 'Set the price of a model',
  description: 'What was used before keeps its cost.',
  owner: 'service',
  body: { schema: modelPriceSchema, required: true, example: examplePrice },
  handler: async ({ database }: BudgetContext, { body }) => {
    await runAsSystem(() => saveModelPrice(database.db, body));
  },
});

/** Budgets of users and applications, prices of models: what an operator with the scope `admin` sets. */
export const budgetOperations = [listAll, saveOne, deleteOne, listPrices, savePrice];
