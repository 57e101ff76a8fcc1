import { sql } from 'drizzle-orm';
import { check, index } from 'drizzle-orm/pg-core';
import { json, timeOfChange } from './columns.ts';
import { table } from './table.ts';

export const auditLog = table(
  'audit_log',
  'Access decisions, without content. The service may insert and read but not change them.',
  (c) => ({
    id: c
      .bigint('id', { mode: 'number' })
      .primaryKey()
      .generatedAlwaysAsIdentity()
      .comment('Order of the entries; has gaps.'),
    time: timeOfChange('time').comment(
      'When the entry was stored: before the request for an allowed change, within a second otherwise.',
    ),
    callerKind: c
      .text('caller_kind', { enum: ['unknown', 'anonymous', 'key', 'user'] })
      .notNull()
      .comment('user: token; key: API key; anonymous: local mode; unknown: refused before authentication.'),
    caller: c
      .text('caller')
      .comment('User of the token or id of the key; null for keys of RUNTIME_API_KEYS, which have no id.'),
    address: c.text('address').comment('Address of the client, determined with TRUSTED_PROXIES.'),
    operation: c.text('operation').comment('operationId of the OpenAPI document; null if refused before routing.'),
    resource: json('resource').notNull().comment('Names in the path, and the user and application in the body.'),
    decision: c
      .text('decision', { enum: ['allowed', 'refused'] })
      .notNull()
      .comment('allowed (the request was executed, with any result) or refused.'),
    reason: c.text('reason').comment('Why it was refused.'),
    requestId: c.text('request_id').notNull().comment('X-Request-Id of the answer.'),
    leftOut: c
      .integer('left_out')
      .notNull()
      .default(0)
      .comment('Refusals of the same caller that were not logged before this entry.'),
  }),
  (t) => [
    index('audit_log_time_idx').on(t.time),
    check('audit_log_caller_kind_check', sql`caller_kind in ('unknown', 'anonymous', 'key', 'user')`),
    check('audit_log_decision_check', sql`decision in ('allowed', 'refused')`),
  ],
);

/** The column order is that of rate-limiter-flexible. */
export const rateLimits = table(
  'rate_limits',
  'Requests per caller and class of operations in the current minute, and failed logins. May be truncated at any time.',
  (c) => ({
    key: c.varchar('key', { length: 255 }).primaryKey().comment('Class of operations, and a digest of the caller.'),
    points: c.integer('points').notNull().default(0).comment('Points used in the window.'),
    expire: c.bigint('expire', { mode: 'number' }).comment('End of the window, Unix time in milliseconds.'),
  }),
);
