import { sql } from 'drizzle-orm';
import { check, foreignKey, index, pgTable, primaryKey } from 'drizzle-orm/pg-core';
import { emptyObject, identifier, ofSession, time, timeOfChange } from './columns.ts';
import { sessionKey } from './conversation.ts';
import { invocations } from './invocations.ts';

/** Open calls of paused invocations, one row per call that waits for a person, a time or a signal. */
export const tasks = pgTable(
  'tasks',
  (c) => ({
    ...ofSession(),
    id: identifier('id').notNull(),
    invocationId: identifier('invocation_id').notNull(),
    callId: identifier('call_id').notNull(),
    callName: c.text('call_name').notNull(),
    kind: c
      .text('kind', { enum: ['confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget'] })
      .notNull(),
    state: c
      .text('state', { enum: ['open', 'answered', 'done', 'cancelled'] })
      .notNull()
      .default('open'),
    form: c.jsonb('form').notNull(),
    rules: c.jsonb('rules').notNull().default(emptyObject),
    assignedUsers: c.text('assigned_users').array().notNull().default([]),
    assignedGroups: c.text('assigned_groups').array().notNull().default([]),
    approvals: c.jsonb('approvals').notNull().default(sql`'[]'::jsonb`),
    comments: c.jsonb('comments').notNull().default(sql`'[]'::jsonb`),
    signalName: identifier('signal_name'),
    tokenHash: c.text('token_hash'),
    tokenExpireTime: time('token_expire_time'),
    expireTime: time('expire_time'),
    dueTime: time('due_time'),
    reminders: c.smallint('reminders').notNull().default(0),
    answer: c.jsonb('answer'),
    decidedBy: c.text('decided_by'),
    decidedVia: c.text('decided_via', { enum: ['tasks', 'run', 'signal', 'deadline'] }),
    decideTime: time('decide_time'),
    version: c.integer('version').notNull().default(1),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'tasks_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    check('tasks_kind_check', sql`kind in ('confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget')`),
    check('tasks_state_check', sql`state in ('open', 'answered', 'done', 'cancelled')`),
    check('tasks_decided_via_check', sql`decided_via in ('tasks', 'run', 'signal', 'deadline')`),
    check('tasks_decided_check', sql`(state in ('answered', 'done')) = (decide_time is not null)`),
    index('tasks_id_idx').on(t.id),
    index('tasks_invocation_idx').on(t.appName, t.userId, t.sessionId, t.invocationId, t.callId),
    index('tasks_user_idx').on(t.userId, t.appName, t.state),
    // Index in the order of task lists: tasks without a deadline come last.
    index('tasks_list_idx').on(t.state, sql`coalesce(expire_time, timestamptz '9999-12-31 00:00:00Z')`, t.id),
    index('tasks_due_idx').on(t.dueTime).where(sql`due_time is not null`),
    index('tasks_people_idx').using(
      'gin',
      t.assignedUsers,
      t.assignedGroups,
      t.approvals.op('jsonb_path_ops'),
      t.comments.op('jsonb_path_ops'),
    ),
    index('tasks_decided_idx').on(t.decidedBy).where(sql`decided_by is not null`),
    index('tasks_token_idx').on(t.tokenHash).where(sql`token_hash is not null`),
    foreignKey({
      name: 'tasks_invocation_fkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId],
      foreignColumns: [invocations.appName, invocations.userId, invocations.sessionId, invocations.id],
    }).onDelete('cascade'),
  ],
);

/** Signals sent before any invocation waited for them. */
export const signals = pgTable(
  'signals',
  (c) => ({
    ...ofSession(),
    id: identifier('id').notNull(),
    name: identifier('name').notNull(),
    payload: c.jsonb('payload').notNull(),
    senderGroups: c.text('sender_groups').array(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'signals_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    sessionKey('signals_session_fkey', t),
  ],
);
