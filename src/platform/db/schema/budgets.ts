import { sql } from 'drizzle-orm';
import { bigint, check, date, index, numeric, pgTable, primaryKey, smallint, text } from 'drizzle-orm/pg-core';
import { identifier, ofUser, time } from './columns.ts';

/** Allowances of an application's users for a day or a month. */
export const budgets = pgTable(
  'budgets',
  {
    ...ofUser(),
    appliesTo: text('applies_to', { enum: ['app', 'users', 'user'] }).notNull(),
    period: text('period', { enum: ['day', 'month'] }).notNull(),
    maxInvocations: bigint('max_invocations', { mode: 'number' }),
    maxTokens: bigint('max_tokens', { mode: 'number' }),
    maxCost: numeric('max_cost', { mode: 'number' }),
    updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'budgets_pkey', columns: [t.appName, t.userId, t.appliesTo, t.period] }),
    check('budgets_applies_to_check', sql`applies_to in ('app', 'users', 'user')`),
    check('budgets_period_check', sql`period in ('day', 'month')`),
    check('budgets_user_id_check', sql`(applies_to = 'user') = (user_id <> '')`),
  ],
);

/** Use by users and day in UTC; a day has several rows, so that a user's invocations do not wait for each other. */
export const budgetUses = pgTable(
  'budget_uses',
  {
    ...ofUser(),
    day: date('day').notNull(),
    shard: smallint('shard').notNull(),
    invocations: bigint('invocations', { mode: 'number' }).notNull(),
    promptTokens: bigint('prompt_tokens', { mode: 'number' }).notNull(),
    outputTokens: bigint('output_tokens', { mode: 'number' }).notNull(),
    cost: numeric('cost', { mode: 'number' }).notNull(),
  },
  (t) => [
    primaryKey({ name: 'budget_uses_pkey', columns: [t.appName, t.userId, t.day, t.shard] }),
    index('budget_uses_day_idx').on(t.appName, t.day),
  ],
);

/** Prices of models for a million tokens, in the operator's currency. */
export const modelPrices = pgTable('model_prices', {
  model: identifier('model').primaryKey(),
  promptPrice: numeric('prompt_price', { mode: 'number' }).notNull(),
  outputPrice: numeric('output_price', { mode: 'number' }).notNull(),
  updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
});
