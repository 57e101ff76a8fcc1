import { z } from 'zod';
import { InvalidError } from '../../core/errors.ts';
import { identifierSchema } from '../../core/session.ts';
import { runAsSystem } from '../../platform/context.ts';
import { REFUSED_ON_CLUSTER } from '../../platform/db/cluster.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { area } from '../../platform/http/operation/area.ts';
import {
  NEXT_CURSOR_HEADER,
  nextCursorHeader,
  pageQuery,
  readTextCursor,
  toTextCursor,
} from '../../platform/http/operation/cursor.ts';
import { appPath, pageSize } from '../../platform/http/operation/parameters.ts';
import {
  type Budget,
  budgetKey,
  budgetSchema,
  modelPriceSchema,
  usedBudgetSchema,
} from '../../conversation/budgets/budget.ts';
import {
  deleteBudget,
  listBudgets,
  listModelPrices,
  saveBudget,
  saveModelPrice,
  toBudgetPlace,
} from '../../conversation/budgets/budget-store.ts';
import type { Feature } from '../../platform/feature/feature.ts';

export interface BudgetContext {
  database: DatabasePool;
}

const room = area<BudgetContext>('Service and applications', { read: 'admin', write: 'admin', owner: 'service' });

const budget = room.resource({
  noun: 'budget',
  path: '/apps/{app_name}/budgets',
  within: appPath,
  schema: budgetSchema,
  example: { appliesTo: 'users', period: 'day', maxInvocations: 200, maxTokens: 1_000_000 },
});

const price = room.resource({
  noun: 'price of a model',
  id: 'ModelPrice',
  path: '/model-prices',
  schema: modelPriceSchema,
  example: { model: 'gpt-4o-mini', promptPrice: 0.15, outputPrice: 0.6 },
});

const errors = { 400: 'It applies to one user and names none, or names one and does not.' };

/** @throws {InvalidError} if a budget of a single user lacks the user's name, or any other budget has a user's name */
function checkUser({ appliesTo, forUser }: Pick<Budget, 'appliesTo' | 'forUser'>): void {
  if ((appliesTo === 'user') !== (forUser != null))
    throw new InvalidError('`forUser` names the user where `appliesTo` is `user`, and is absent otherwise.');
}

const operations = [
  budget.list({
    summary: 'List the budgets of an application',
    query: pageQuery('budgets').extend({
      limit: pageSize('Maximum number of budgets.').default(300),
      ofUser: identifierSchema.optional().describe('The user whose use is told of the budgets of each user.'),
    }),
    success: {
      schema: z.array(usedBudgetSchema),
      description: 'Its own, that of each user, then those of users by name.',
      example: [
        {
          appliesTo: 'app',
          period: 'day',
          maxInvocations: 200,
          used: { invocations: 12, tokens: 8_000, cost: 0.5 },
          isUsedUp: false,
        },
      ],
      headers: nextCursorHeader,
    },
    run: async ({ database }, { path, query: { ofUser, limit, cursor }, response }) => {
      const after = readTextCursor(cursor, 3);
      const found = await listBudgets(database.reads, path.appName, { ofUser, limit: limit + 1, after });
      const items = found.slice(0, limit);
      const last = found.length > limit ? items.at(-1) : undefined;
      if (last) response.setHeader(NEXT_CURSOR_HEADER, toTextCursor(toBudgetPlace(last)));
      return items;
    },
  }),
  budget.save({
    summary: 'Set a budget',
    description:
      'In the place of the one for the same users and period, as a whole: a maximum that is left out has no limit. One ' +
      'whose maxima are null is removed; one that names none is refused.',
    errors,
    run: async ({ database }, { path, body }) => {
      checkUser(body);
      if (body.webhookId != null && database.db.isOnCluster) throw new InvalidError(REFUSED_ON_CLUSTER.budgetWebhooks);
      await runAsSystem(() => saveBudget(database.db, path.appName, body));
    },
  }),
  budget.remove({
    summary: 'Remove a budget',
    description: 'Removing what is not there succeeds too.',
    query: z.object({ ...budgetKey, forUser: budgetKey.forUser.unwrap().unwrap().optional() }),
    errors,
    run: async ({ database }, { path, query }) => {
      checkUser(query);
      await runAsSystem(() => deleteBudget(database.db, path.appName, query));
    },
  }),
  price.list({
    summary: 'List the prices of models',
    success: { description: 'By model.' },
    run: ({ database }) => listModelPrices(database.reads),
  }),
  price.save({
    summary: 'Set the price of a model',
    description: 'What was used before keeps its cost.',
    run: ({ database }, { body }) => runAsSystem(() => saveModelPrice(database.db, body)),
  }),
];

export const budgetFeature = {
  name: 'budgets',
  operations,
  schemas: { Budget: budgetSchema, UsedBudget: usedBudgetSchema, ModelPrice: modelPriceSchema },
} satisfies Feature<BudgetContext>;
