import { bigint, integer, pgTable, varchar } from 'drizzle-orm/pg-core';

/** What callers did in the running minute; the columns are those of rate-limiter-flexible, which reads by position. */
export const rateLimits = pgTable('rate_limits', {
  key: varchar('key', { length: 255 }).primaryKey(),
  points: integer('points').notNull().default(0),
  expire: bigint('expire', { mode: 'number' }),
});
