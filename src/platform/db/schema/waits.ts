import { sql } from 'drizzle-orm';
import { check, foreignKey, index, primaryKey } from 'drizzle-orm/pg-core';
import {
  anyIdentifier,
  anyText,
  currentUser,
  emptyObject,
  identifier,
  json,
  ofSession,
  ofUserPolicy,
  time,
  timeOfChange,
} from './columns.ts';
import { sessionKey } from './conversation.ts';
import { invocations } from './invocations.ts';
import { table } from './table.ts';

export const tasks = table(
  'tasks',
  'Calls of paused invocations that wait for a person, a time or a signal, with their outcome.',
  (c) => ({
    ...ofSession(),
    id: identifier('id').notNull().comment('Task id.'),
    invocationId: identifier('invocation_id').notNull().comment('The invocation that waits.'),
    callId: anyIdentifier('call_id').notNull().comment('Id of the function call to answer.'),
    callName: anyText('call_name').notNull().comment('Name of that function.'),
    kind: c
      .text('kind', { enum: ['confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget', 'child'] })
      .notNull()
      .comment(
        'confirmation (of a call); effect (of a call that may have had effects); question; call (answered later by its tool); sleep; signal; budget; child (the agent of the call waits itself, in its own session).',
      ),
    state: c
      .text('state', { enum: ['open', 'answered', 'done', 'cancelled'] })
      .notNull()
      .default('open')
      .comment('open; answered: the invocation is not resumed yet; done: the invocation has the answer; cancelled.'),
    form: json('form')
      .notNull()
      .comment('Shown to the person who answers: tool, arguments, hint, JSON Schema of the answer.'),
    rules: json('rules')
      .notNull()
      .default(emptyObject)
      .comment(
        'Who must answer, and what happens otherwise: approvals, excludesRequester, remindAfter, escalateTo, defaultAnswer.',
      ),
    assignedUsers: c
      .text('assigned_users')
      .array()
      .notNull()
      .default([])
      .comment("Users who may see and answer it. Without assigned users and groups, the session's owner may."),
    assignedGroups: c
      .text('assigned_groups')
      .array()
      .notNull()
      .default([])
      .comment('Groups whose members may see and answer it.'),
    approvals: json('approvals').notNull().default(sql`'[]'::jsonb`).comment('Approvals so far, with times.'),
    comments: json('comments').notNull().default(sql`'[]'::jsonb`).comment('Comments by people.'),
    signalName: identifier('signal_name').comment('Name of the signal that answers it; null for other kinds.'),
    tokenHash: c.text('token_hash').comment('SHA-256 of the token in its public address; null if it has none.'),
    tokenExpireTime: time('token_expire_time').comment('When the public address expires.'),
    expireTime: time('expire_time').comment('Deadline; null for none.'),
    dueTime: time('due_time').comment(
      'Next action: a reminder, the deadline or, after the answer, resuming the invocation. Null: none.',
    ),
    reminders: c.smallint('reminders').notNull().default(0).comment('Number of reminders sent.'),
    answer: json('answer').comment(
      'Answer to the call; null if a message of the session contained it, except for confirmations.',
    ),
    decidedBy: c.text('decided_by').comment('Who answered; null for the deadline.'),
    decidedVia: c
      .text('decided_via', { enum: ['tasks', 'run', 'signal', 'deadline', 'child'] })
      .comment(
        'How it was answered: tasks (API), run (a message of the session), signal, deadline or child (the end of its invocation); null if imported.',
      ),
    decideTime: time('decide_time').comment('When it was answered.'),
    version: c.integer('version').notNull().default(1).comment('Change counter; used as ETag.'),
    createTime: timeOfChange('create_time').comment('When the invocation paused.'),
  }),
  (t) => [
    primaryKey({ name: 'tasks_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    check(
      'tasks_kind_check',
      sql`kind in ('confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget', 'child')`,
    ),
    check('tasks_state_check', sql`state in ('open', 'answered', 'done', 'cancelled')`),
    check('tasks_decided_via_check', sql`decided_via in ('tasks', 'run', 'signal', 'deadline', 'child')`),
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
    ofUserPolicy(sql`user_id = ${currentUser}
    or assigned_users @> array[${currentUser}]
    or assigned_groups && (select string_to_array(current_setting('agent_runtime.groups', true), E'\\x1f'))`),
  ],
);

export const signals = table(
  'signals',
  'Signals sent before any invocation waited for them.',
  (c) => ({
    ...ofSession(),
    id: identifier('id').notNull().comment('Row id.'),
    name: identifier('name').notNull().comment('Name of the signal.'),
    payload: json('payload').notNull().comment('Payload of the signal.'),
    senderGroups: c
      .text('sender_groups')
      .array()
      .comment("Groups of the sender, the owner of the session; null if sent with an operator's credential."),
    createTime: timeOfChange('create_time').comment('When it was received.'),
  }),
  (t) => [
    primaryKey({ name: 'signals_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    sessionKey('signals_session_fkey', t),
    ofUserPolicy(),
  ],
);
