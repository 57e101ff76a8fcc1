import { sql } from 'drizzle-orm';
import { boolean, check, index, pgTable, primaryKey } from 'drizzle-orm/pg-core';
import { identifier, ofUser, time, timeOfChange } from './columns.ts';

/** Jobs that wait or run; an ended job has no row. `migrations/functions/jobs.sql` claims and ends them. */
export const jobs = pgTable(
  'jobs',
  (c) => ({
    ...ofUser(),
    kind: identifier('kind').notNull(),
    id: identifier('id').notNull(),
    lane: identifier('lane').notNull(),
    dueTime: time('due_time').notNull(),
    attempt: c.integer('attempt').notNull().default(0),
    losses: c.smallint('losses').notNull().default(0),
    leaseToken: c.uuid('lease_token'),
    leaseExpireTime: time('lease_expire_time'),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'jobs_pkey', columns: [t.appName, t.userId, t.kind, t.id] }),
    check('jobs_lease_check', sql`(lease_token is null) = (lease_expire_time is null)`),
    index('jobs_lane_idx').on(t.kind, t.appName, t.userId, t.lane, t.dueTime, t.id).where(sql`lease_token is null`),
    index('jobs_due_idx').on(t.kind, t.dueTime).where(sql`lease_token is null`),
    index('jobs_running_idx').on(t.kind, t.leaseExpireTime).where(sql`lease_token is not null`),
  ],
);

/** Lanes that have waiting jobs. The lanes of a kind take turns. */
export const jobLanes = pgTable(
  'job_lanes',
  {
    ...ofUser(),
    kind: identifier('kind').notNull(),
    lane: identifier('lane').notNull(),
    turnTime: time('turn_time').notNull(),
    blockedBy: identifier('blocked_by'),
    halfOpen: boolean('half_open').notNull().default(false),
  },
  (t) => [
    primaryKey({ name: 'job_lanes_pkey', columns: [t.appName, t.userId, t.kind, t.lane] }),
    index('job_lanes_turn_idx').on(t.kind, t.appName, t.turnTime).where(sql`blocked_by is null`),
    index('job_lanes_blocked_idx').on(t.kind, t.blockedBy, t.turnTime).where(sql`blocked_by is not null`),
  ],
);
