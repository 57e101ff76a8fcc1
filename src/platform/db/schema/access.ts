import { sql } from 'drizzle-orm';
import { bigint, check, index, integer, jsonb, pgTable, text, varchar } from 'drizzle-orm/pg-core';
import { time } from './columns.ts';

/**
 * Decisions on access, without content. The serving role can only insert; a trigger refuses changes by all roles but
 * for `delete_old_audit_entries`.
 */
export const auditLog = pgTable(
  'audit_log',
  {
    id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    time: time('time').notNull().default(sql`clock_timestamp()`),
    callerKind: text('caller_kind', { enum: ['unknown', 'anonymous', 'key', 'user'] }).notNull(),
    caller: text('caller'),
    address: text('address'),
    operation: text('operation'),
    resource: jsonb('resource').notNull(),
    decision: text('decision', { enum: ['allowed', 'refused'] }).notNull(),
    reason: text('reason'),
    requestId: text('request_id').notNull(),
    leftOut: integer('left_out').notNull().default(0),
  },
  (t) => [
    index('audit_log_time_idx').on(t.time),
    check('audit_log_caller_kind_check', sql`caller_kind in ('unknown', 'anonymous', 'key', 'user')`),
    check('audit_log_decision_check', sql`decision in ('allowed', 'refused')`),
  ],
);

/** Use by callers in the running minute; the columns are those of rate-limiter-flexible, which reads by position. */
export const rateLimits = pgTable('rate_limits', {
  key: varchar('key', { length: 255 }).primaryKey(),
  points: integer('points').notNull().default(0),
  expire: bigint('expire', { mode: 'number' }),
});
