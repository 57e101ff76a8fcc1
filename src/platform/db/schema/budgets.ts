import { sql } from 'drizzle-orm';
import { check, index, pgTable, primaryKey } from 'drizzle-orm/pg-core';
import { identifier, ofUser, time, timeOfChange } from './columns.ts';

/** Limits on an application's use per day or month. */
export const budgets = pgTable(
  'budgets',
  (c) => ({
    ...ofUser(),
    appliesTo: c.text('applies_to', { enum: ['app', 'users', 'user'] }).notNull(),
    period: c.text('period', { enum: ['day', 'month'] }).notNull(),
    maxInvocations: c.bigint('max_invocations', { mode: 'number' }),
    maxTokens: c.bigint('max_tokens', { mode: 'number' }),
    maxCost: c.numeric('max_cost', { mode: 'number' }),
    webhookId: c.text('webhook_id'),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [
    primaryKey({ name: 'budgets_pkey', columns: [t.appName, t.userId, t.appliesTo, t.period] }),
    check('budgets_applies_to_check', sql`applies_to in ('app', 'users', 'user')`),
    check('budgets_period_check', sql`period in ('day', 'month')`),
    check('budgets_user_id_check', sql`(applies_to = 'user') = (user_id <> '')`),
  ],
);

/** Usage by user and UTC day, in several shards per day, so that a user's invocations do not block each other. */
export const budgetUses = pgTable(
  'budget_uses',
  (c) => ({
    ...ofUser(),
    day: c.date('day').notNull(),
    shard: c.smallint('shard').notNull(),
    invocations: c.bigint('invocations', { mode: 'number' }).notNull(),
    promptTokens: c.bigint('prompt_tokens', { mode: 'number' }).notNull(),
    outputTokens: c.bigint('output_tokens', { mode: 'number' }).notNull(),
    cost: c.numeric('cost', { mode: 'number' }).notNull(),
  }),
  (t) => [
    primaryKey({ name: 'budget_uses_pkey', columns: [t.appName, t.userId, t.day, t.shard] }),
    check('budget_uses_counts_check', sql`least(invocations, prompt_tokens, output_tokens, cost) >= 0`),
    index('budget_uses_day_idx').on(t.appName, t.day),
  ],
);

/** Usage of all users since a UTC day: today, or the first of the month. In shards like {@link budgetUses}. */
export const budgetTotals = pgTable(
  'budget_totals',
  (c) => ({
    appName: identifier('app_name').notNull(),
    since: c.date('since').notNull(),
    shard: c.smallint('shard').notNull(),
    invocations: c.bigint('invocations', { mode: 'number' }).notNull(),
    tokens: c.bigint('tokens', { mode: 'number' }).notNull(),
    cost: c.numeric('cost', { mode: 'number' }).notNull(),
  }),
  (t) => [primaryKey({ name: 'budget_totals_pkey', columns: [t.appName, t.since, t.shard] })],
);

/** Upper bounds of running calls' tokens and cost; removed when the use is counted, or when they expire. */
export const budgetReservations = pgTable(
  'budget_reservations',
  (c) => ({
    ...ofUser(),
    id: c.uuid('id').notNull(),
    tokens: c.bigint('tokens', { mode: 'number' }).notNull(),
    cost: c.numeric('cost', { mode: 'number' }).notNull(),
    expireTime: time('expire_time').notNull(),
  }),
  (t) => [primaryKey({ name: 'budget_reservations_pkey', columns: [t.appName, t.userId, t.id] })],
);

/** The level (percent of the budget) that was last reported to the budget's webhook. */
export const budgetAlerts = pgTable(
  'budget_alerts',
  (c) => ({
    ...ofUser(),
    appliesTo: c.text('applies_to').notNull(),
    period: c.text('period').notNull(),
    since: c.date('since').notNull(),
    level: c.smallint('level').notNull(),
  }),
  (t) => [primaryKey({ name: 'budget_alerts_pkey', columns: [t.appName, t.userId, t.appliesTo, t.period] })],
);

/** Model prices per million tokens, in the operator's currency. */
export const modelPrices = pgTable('model_prices', (c) => ({
  model: identifier('model').primaryKey(),
  promptPrice: c.numeric('prompt_price', { mode: 'number' }).notNull(),
  outputPrice: c.numeric('output_price', { mode: 'number' }).notNull(),
  updateTime: timeOfChange('update_time'),
}));
