import { sql } from 'drizzle-orm';
import { check, index, primaryKey } from 'drizzle-orm/pg-core';
import { identifier, ofUser, ofUserPolicy, time, timeOfChange } from './columns.ts';
import { table } from './table.ts';

/** `migrations/repeatable/functions/jobs.sql` claims and ends them. */
export const jobs = table(
  'jobs',
  'Jobs that wait or run: work that the processes share. An ended job has no row.',
  (c) => ({
    ...ofUser(),
    kind: identifier('kind').notNull().comment('delivery.'),
    id: identifier('id').notNull().comment('What the job is about, unique within its kind; the delivery.'),
    lane: identifier('lane').notNull().comment('Name of its lane.'),
    dueTime: time('due_time').notNull().comment('Earliest time of the next attempt.'),
    attempt: c.integer('attempt').notNull().default(0).comment('Number of attempts.'),
    losses: c
      .smallint('losses')
      .notNull()
      .default(0)
      .comment('Number of processes that crashed while holding it; given up after two.'),
    leaseToken: c.uuid('lease_token').comment('Lease token of the process that runs it; null while it waits.'),
    leaseExpireTime: time('lease_expire_time').comment('Lease expiry.'),
    createTime: timeOfChange('create_time').comment('Creation.'),
  }),
  (t) => [
    primaryKey({ name: 'jobs_pkey', columns: [t.appName, t.userId, t.kind, t.id] }),
    check('jobs_lease_check', sql`(lease_token is null) = (lease_expire_time is null)`),
    index('jobs_lane_idx').on(t.kind, t.appName, t.userId, t.lane, t.dueTime, t.id).where(sql`lease_token is null`),
    index('jobs_due_idx').on(t.kind, t.dueTime).where(sql`lease_token is null`),
    index('jobs_running_idx').on(t.kind, t.leaseExpireTime).where(sql`lease_token is not null`),
    ofUserPolicy(),
  ],
);

export const jobLanes = table(
  'job_lanes',
  "Lanes that have waiting jobs: a lane is the queue of a user's jobs of one kind that take turns with those of other lanes.",
  (c) => ({
    ...ofUser(),
    kind: identifier('kind').notNull().comment('Kind of the jobs.'),
    lane: identifier('lane').notNull().comment('Name of the lane; the host of a delivery.'),
    turnTime: time('turn_time').notNull().comment('When the lane has its next turn.'),
    blockedBy: identifier('blocked_by').comment('Full limit that the lane waits behind: user:…, lane:… or pair:….'),
    halfOpen: c
      .boolean('half_open')
      .notNull()
      .default(false)
      .comment('The last job got no answer; one job runs at a time.'),
  }),
  (t) => [
    primaryKey({ name: 'job_lanes_pkey', columns: [t.appName, t.userId, t.kind, t.lane] }),
    index('job_lanes_turn_idx').on(t.kind, t.appName, t.turnTime).where(sql`blocked_by is null`),
    index('job_lanes_blocked_idx').on(t.kind, t.blockedBy, t.turnTime).where(sql`blocked_by is not null`),
    ofUserPolicy(),
  ],
);
