import { sql } from 'drizzle-orm';
import { check, index, primaryKey } from 'drizzle-orm/pg-core';
import { identifier, ofUser, time, timeOfChange } from './columns.ts';
import { table } from './table.ts';

export const budgets = table(
  'budgets',
  'Limits on use per UTC day or month. Read with each claim, so a change takes effect at once.',
  (c) => ({
    ...ofUser('The user if it applies to one; otherwise empty.'),
    appliesTo: c
      .text('applies_to', { enum: ['app', 'users', 'user'] })
      .notNull()
      .comment(
        'app: all users together; users: each user without a budget of their own for the period; user: the user in user_id.',
      ),
    period: c
      .text('period', { enum: ['day', 'month'] })
      .notNull()
      .comment('day or month.'),
    maxInvocations: c
      .bigint('max_invocations', { mode: 'number' })
      .comment('Maximum number of invocations; null: no limit.'),
    maxTokens: c
      .bigint('max_tokens', { mode: 'number' })
      .comment('Maximum number of prompt, answer and thought tokens; null: no limit.'),
    maxCost: c.numeric('max_cost', { mode: 'number' }).comment('Maximum cost by model_prices; null: no limit.'),
    webhookId: c.text('webhook_id').comment('Webhook to notify when 50, 80 or 100 percent are used; null for none.'),
    updateTime: timeOfChange('update_time').comment('Last change.'),
  }),
  (t) => [
    primaryKey({ name: 'budgets_pkey', columns: [t.appName, t.userId, t.appliesTo, t.period] }),
    check('budgets_applies_to_check', sql`applies_to in ('app', 'users', 'user')`),
    check('budgets_period_check', sql`period in ('day', 'month')`),
    check('budgets_user_id_check', sql`(applies_to = 'user') = (user_id <> '')`),
  ],
);

export const budgetUses = table(
  'budget_uses',
  'Use by user and day, counted by the statements that start invocations and store model answers.',
  (c) => ({
    ...ofUser(),
    day: c.date('day').notNull().comment('Day in UTC.'),
    shard: c
      .smallint('shard')
      .notNull()
      .comment("Shard, so that a user's concurrent invocations do not block each other."),
    invocations: c
      .bigint('invocations', { mode: 'number' })
      .notNull()
      .comment('Invocations: those that have started if the user has a budget, else those that have ended or paused.'),
    promptTokens: c.bigint('prompt_tokens', { mode: 'number' }).notNull().comment('Prompt tokens of all model calls.'),
    outputTokens: c
      .bigint('output_tokens', { mode: 'number' })
      .notNull()
      .comment('Answer and thought tokens of all model calls.'),
    cost: c.numeric('cost', { mode: 'number' }).notNull().comment('Their cost at the prices of that time.'),
  }),
  (t) => [
    primaryKey({ name: 'budget_uses_pkey', columns: [t.appName, t.userId, t.day, t.shard] }),
    check('budget_uses_counts_check', sql`least(invocations, prompt_tokens, output_tokens) >= 0 and cost >= 0`),
    index('budget_uses_day_idx').on(t.appName, t.day),
  ],
);

export const budgetTotals = table(
  'budget_totals',
  'Total use by all users of an application since a day, counted along with budget_uses; empty in a distributed database.',
  (c) => ({
    appName: identifier('app_name').notNull().comment('Application.'),
    since: c
      .date('since')
      .notNull()
      .comment("First day in UTC: a day for its own total, the first of a month for the month's total."),
    shard: c.smallint('shard').notNull().comment('Shard, so that concurrent invocations do not block each other.'),
    invocations: c.bigint('invocations', { mode: 'number' }).notNull().comment('Started invocations.'),
    tokens: c
      .bigint('tokens', { mode: 'number' })
      .notNull()
      .comment('Prompt, answer and thought tokens of all model calls.'),
    cost: c.numeric('cost', { mode: 'number' }).notNull().comment('Their cost at the prices of that time.'),
  }),
  (t) => [primaryKey({ name: 'budget_totals_pkey', columns: [t.appName, t.since, t.shard] })],
);

export const budgetReservations = table(
  'budget_reservations',
  'Maximum use by running model calls, until it is counted.',
  (c) => ({
    ...ofUser(),
    id: c.uuid('id').notNull().comment('Id of the model call.'),
    tokens: c.bigint('tokens', { mode: 'number' }).notNull().comment('Prompt and output tokens.'),
    cost: c.numeric('cost', { mode: 'number' }).notNull().comment('Their cost at the prices of that time.'),
    expireTime: time('expire_time').notNull().comment('When the reservation ends, unless its process renews it.'),
  }),
  (t) => [primaryKey({ name: 'budget_reservations_pkey', columns: [t.appName, t.userId, t.id] })],
);

export const budgetAlerts = table(
  'budget_alerts',
  'The level of a budget last reported to its webhook.',
  (c) => ({
    ...ofUser('User of the budget; empty for all users.'),
    appliesTo: c.text('applies_to').notNull().comment('Same as in budgets.'),
    period: c.text('period').notNull().comment('Same as in budgets.'),
    since: c.date('since').notNull().comment('First day of the period in UTC.'),
    level: c.smallint('level').notNull().comment('50, 80 or 100 percent.'),
  }),
  (t) => [primaryKey({ name: 'budget_alerts_pkey', columns: [t.appName, t.userId, t.appliesTo, t.period] })],
);

export const modelPrices = table('model_prices', "Model prices, in the operator's currency.", (c) => ({
  model: identifier('model').primaryKey().comment('Prefix of model names; * for models without a price.'),
  promptPrice: c.numeric('prompt_price', { mode: 'number' }).notNull().comment('Price of a million prompt tokens.'),
  outputPrice: c
    .numeric('output_price', { mode: 'number' })
    .notNull()
    .comment('Price of a million answer and thought tokens.'),
  updateTime: timeOfChange('update_time').comment('Last change.'),
}));
