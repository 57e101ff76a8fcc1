import { sql } from 'drizzle-orm';
import { check, index, pgTable } from 'drizzle-orm/pg-core';
import { timeOfChange } from './columns.ts';

/** Access decisions, without content. The serving role may insert and read; only one function may delete. */
export const auditLog = pgTable(
  'audit_log',
  (c) => ({
    id: c.bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    time: timeOfChange('time'),
    callerKind: c.text('caller_kind', { enum: ['unknown', 'anonymous', 'key', 'user'] }).notNull(),
    caller: c.text('caller'),
    address: c.text('address'),
    operation: c.text('operation'),
    resource: c.jsonb('resource').notNull(),
    decision: c.text('decision', { enum: ['allowed', 'refused'] }).notNull(),
    reason: c.text('reason'),
    requestId: c.text('request_id').notNull(),
    leftOut: c.integer('left_out').notNull().default(0),
  }),
  (t) => [
    index('audit_log_time_idx').on(t.time),
    check('audit_log_caller_kind_check', sql`caller_kind in ('unknown', 'anonymous', 'key', 'user')`),
    check('audit_log_decision_check', sql`decision in ('allowed', 'refused')`),
  ],
);

/** Usage per caller in the current minute. The column order is that of rate-limiter-flexible. */
export const rateLimits = pgTable('rate_limits', (c) => ({
  key: c.varchar('key', { length: 255 }).primaryKey(),
  points: c.integer('points').notNull().default(0),
  expire: c.bigint('expire', { mode: 'number' }),
}));
