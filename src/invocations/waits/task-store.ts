import { type SQL, and, desc, eq, ilike, inArray, isNotNull, isNull, sql } from 'drizzle-orm';
import { alias, type AnyPgColumn } from 'drizzle-orm/pg-core';
import type { TaskAnswers } from '../../agent/loop/run.ts';
import { getSession, isChildOf, isSession, type SessionRef } from '../../conversation/sessions/session-row.ts';
import { budgetText, type OverBudget } from '../../conversation/budgets/budget.ts';
import type { JsonObject } from '../../core/content.ts';
import { ConflictError, throwRefusal } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson, escapeText } from '../../platform/json-escape.ts';
import { invocations, tasks } from '../../platform/db/schema/schema.ts';
import { exactTime, fitsPage } from '../../platform/db/sql.ts';
import { callFunction } from '../../platform/db/statement.ts';
import type { Listed, ListPlace } from '../../platform/http/operation/cursor.ts';
import type { Bounds } from '../../platform/http/operation/principal.ts';
import type { Task, TaskChange } from './task.ts';

/** Channel that is notified when a task is due. The database function that stores tasks uses the same name. */
export const TASKS_TOPIC = 'tasks';

/** For whom tasks are listed: users with the groups of a token, in some applications. Without users, of all users. */
export interface Viewer extends Bounds {
  groups: readonly string[];
}

export interface TaskRow extends SessionKey {
  id: string;
  invocationId: string;
  callId: string;
  callName: string;
  version: number;
  /** The session of the user, of a task in a child session. */
  rootSessionId: string | null;
  /** The members of a task that every viewer may see. */
  shown: Task;
}

/** Sort key of lists: the deadline; tasks without a deadline come last. */
const deadline = sql`coalesce(${tasks.expireTime}, timestamptz '9999-12-31 00:00:00Z')`;
const seconds = (column: SQL | typeof tasks.createTime) => sql`extract(epoch from ${column})::float8`;

const shown = sql<Task>`jsonb_strip_nulls(jsonb_build_object(
  'id', ${tasks.id}, 'appName', ${tasks.appName}, 'requestedBy', ${tasks.userId}, 'kind', ${tasks.kind},
  'state', ${tasks.state}, 'form', ${tasks.form}, 'users', ${tasks.assignedUsers}, 'groups', ${tasks.assignedGroups},
  'approvals', ${tasks.approvals}, 'approvalsNeeded', coalesce((${tasks.rules} ->> 'approvals')::integer, 1),
  'comments', ${tasks.comments}, 'signal', ${tasks.signalName}, 'createTime', ${seconds(tasks.createTime)},
  'expireTime', ${seconds(sql`${tasks.expireTime}`)}, 'answer', ${tasks.answer}, 'decidedBy', ${tasks.decidedBy},
  'decidedVia', ${tasks.decidedVia}, 'decideTime', ${seconds(sql`${tasks.decideTime}`)}))`;

/** The session of a task, as a left join. */
const OF_TASK = getSession(tasks);

/** Columns of a task, whose session is joined. */
export const TASK_COLUMNS = {
  appName: tasks.appName,
  userId: tasks.userId,
  sessionId: tasks.sessionId,
  id: tasks.id,
  invocationId: tasks.invocationId,
  callId: tasks.callId,
  callName: tasks.callName,
  version: tasks.version,
  rootSessionId: OF_TASK.root,
  shown,
};

/** SQL condition: the viewer may see the task. Row-level security applies in addition. */
const isVisibleTo = ({ users, apps, groups }: Viewer): SQL | undefined =>
  and(
    apps && sql`${tasks.appName} = any(${sql.param(apps)}::text[])`,
    users &&
      sql`(${tasks.userId} = any(${sql.param(users)}::text[]) or ${tasks.assignedUsers} && ${sql.param(users)}::text[]
          or ${tasks.assignedGroups} && ${sql.param(groups)}::text[])`,
  );

export interface TaskFilter {
  appName?: string | undefined;
  ownerId?: string | undefined;
  sessionId?: string | undefined;
  /** One of these. */
  kind?: (typeof tasks.$inferSelect)['kind'][] | undefined;
  state: (typeof tasks.$inferSelect)['state'];
  assignee?: string | undefined;
  group?: string | undefined;
  olderThan?: number | undefined;
  text?: string | undefined;
}

/** A page of tasks that a viewer may see, the next deadline first, equal deadlines by id. */
export async function listTasks(
  db: Database,
  viewer: Viewer,
  filter: TaskFilter,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<TaskRow>[]> {
  const { appName, ownerId, sessionId, kind, state, assignee, group, olderThan, text } = filter;
  const pattern = text && `%${escapeText(text).replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
  // The interval makes the planner use a filter's index if it matches few tasks, instead of reading all by deadline.
  const isFew = [viewer.users, ownerId, sessionId, assignee, group].some((each) => each !== undefined);
  const order = sql`${deadline} ${isFew ? sql`+ interval '0'` : sql``}, ${tasks.id}`;
  return db
    .select({
      ...TASK_COLUMNS,
      place: { time: exactTime(deadline), id: tasks.id },
      fits: fitsPage(order, tasks.form, tasks.comments, tasks.answer),
    })
    .from(tasks)
    .leftJoin(OF_TASK.table, getSession(tasks, ownerId).on)
    .where(
      and(
        isVisibleTo(viewer),
        eq(tasks.state, state),
        appName === undefined ? undefined : eq(tasks.appName, appName),
        ownerId === undefined ? undefined : eq(tasks.userId, ownerId),
        sessionId === undefined
          ? undefined
          : sql`(${tasks.sessionId} = ${sessionId} or ${OF_TASK.root} = ${sessionId})`,
        kind ? inArray(tasks.kind, kind) : sql`${tasks.kind} <> 'child'`,
        assignee === undefined ? undefined : sql`${tasks.assignedUsers} @> ${sql.param([assignee])}::text[]`,
        group === undefined ? undefined : sql`${tasks.assignedGroups} @> ${sql.param([group])}::text[]`,
        olderThan === undefined
          ? undefined
          : sql`${tasks.createTime} < statement_timestamp() - ${olderThan} * interval '1 second'`,
        pattern === undefined ? undefined : ilike(sql`${tasks.form}::text`, pattern),
        after && sql`(${deadline}, ${tasks.id}) > (${after.time}::timestamptz, ${after.id})`,
      ),
    )
    .orderBy(order)
    .limit(limit);
}

export async function findTask(db: Database, viewer: Viewer, id: string): Promise<TaskRow | undefined> {
  const [row] = await db
    .select(TASK_COLUMNS)
    .from(tasks)
    .leftJoin(OF_TASK.table, OF_TASK.on)
    .where(and(eq(tasks.id, id), isVisibleTo(viewer)))
    .limit(1);
  return row;
}

/** Finds the newest task that belongs to a function call. */
export async function findTaskOfCall(
  db: Database,
  key: SessionKey,
  invocationId: string,
  callId: string,
): Promise<TaskRow | undefined> {
  const [row] = await db
    .select(TASK_COLUMNS)
    .from(tasks)
    .leftJoin(OF_TASK.table, getSession(tasks, key.userId).on)
    .where(and(isSession(key, tasks), eq(tasks.invocationId, invocationId), eq(tasks.callId, callId)))
    .orderBy(desc(tasks.createTime))
    .limit(1);
  return row;
}

export interface Person {
  /** Name of the person. `undefined`: anybody who has the public address of the task. */
  by: string | undefined;
  groups: readonly string[];
  /** True if a credential of the operator vouches for the person's name. */
  isVouchedFor: boolean;
}

/** Tells whether a person may answer a task. {@link changeTask} checks this again in its statement. */
export async function mayAnswer(db: Database, task: TaskRow, { by, groups, isVouchedFor }: Person): Promise<boolean> {
  if (isVouchedFor) return true;
  const { userId, rules, assignedUsers, assignedGroups } = tasks;
  const [row] = await db
    .select({
      may: sql<boolean>`may_answer(${userId}, ${rules}, ${assignedUsers}, ${assignedGroups}, ${by}::text,
                                   ${sql.param(groups)}::text[])`,
    })
    .from(tasks)
    .where(and(isSession(task, tasks), eq(tasks.id, task.id)));
  return row?.may === true;
}

/**
 * Compare-and-set on the task's `version`. @throws {ConflictError} if the task was answered before
 * @throws {ForbiddenError} if only other people may answer the task
 */
export async function changeTask(
  db: Database,
  { appName, userId, sessionId, id }: Pick<TaskRow, 'appName' | 'userId' | 'sessionId' | 'id'>,
  { by, groups, isVouchedFor }: Person,
  version: number | undefined,
  action: TaskChange['action'] | 'address' | 'settle',
  change: object,
): Promise<void> {
  const call = callFunction(db, 'change_task', {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    p_id: id,
    p_by: by === undefined ? null : escapeText(by),
    p_groups: groups,
    p_vouched: isVouchedFor,
    p_version: version,
    p_action: action,
    p_change: escapeJson(change),
  });
  await call.catch(throwRefusal);
}

/**
 * The paused invocation resumes when the budget's period ends, or when a person who may change budgets answers.
 * @throws an error that {@link sizeRefusal} recognizes, if the user has too many tasks
 */
export async function openBudgetTask(
  tx: Database,
  { key: { appName, userId, sessionId }, invocationId }: { key: SessionKey; invocationId: string },
  over: OverBudget,
): Promise<void> {
  const form = {
    tool: 'budget',
    hint: `${budgetText(over)} Yes: it goes on before that, if more may be used by then.`,
  };
  const rules = { excludesRequester: true };
  const task = { callId: 'budget', callName: 'budget', kind: 'budget', form, rules, expiresAfter: over.seconds };
  await callFunction(tx, 'open_tasks', {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    p_invocation: invocationId,
    p_tasks: escapeJson([task]),
    p_max: tx.limits.maxOpenTasks,
  });
}

/** One parameter for all ids, because each number of parameters would be a statement of its own. */
const isOneOf = (callIds: string[]): SQL => sql`${tasks.callId} = any(${sql.param(callIds.map(escapeText))}::text[])`;

/** People's answers to a session's questions, by call id. Imported tasks have no `decidedVia` and are left out. */
export async function listTaskAnswers(db: Database, key: SessionKey, callIds: string[]): Promise<TaskAnswers> {
  if (callIds.length === 0) return new Map();
  const { callId, invocationId, answer, state, decidedVia, createTime } = tasks;
  const rows = await db
    .selectDistinctOn([callId], { callId, invocationId, answer })
    .from(tasks)
    .where(and(isSession(key, tasks), isOneOf(callIds), eq(state, 'done'), isNotNull(decidedVia)))
    .orderBy(callId, desc(createTime));
  return new Map(
    rows.map((row) => [row.callId, { invocationId: row.invocationId, response: (row.answer ?? {}) as JsonObject }]),
  );
}

/** @throws {ConflictError} with the first answer, if one of the calls has already been answered */
export async function refuseAnswered(db: Database, key: SessionKey, callIds: string[]): Promise<void> {
  const { id, state, decidedBy, decidedVia, decideTime } = tasks;
  const answerText = sql<string>`answered_text(${id}, ${state}, ${decidedBy}, ${decidedVia}, ${decideTime})`;
  const newest = db
    .selectDistinctOn([tasks.callId], { state, text: answerText.as('text') })
    .from(tasks)
    .where(and(isSession(key, tasks), isOneOf(callIds)))
    .orderBy(tasks.callId, sql`${tasks.createTime} desc`)
    .as('newest');
  const [row] = await db.select({ text: newest.text }).from(newest).where(sql`${newest.state} <> 'open'`).limit(1);
  if (row) throw new ConflictError(row.text);
}

/** A task whose reminder, deadline or answer must be processed at a certain time. */
export interface DueTask extends SessionKey {
  id: string;
  kind: Task['kind'];
  /** Milliseconds until the task is due; negative if the task is overdue. */
  inMs: number;
}

/** SQL condition: the session, or a child session below it, has a task with a due time. */
export const hasYetToWake = ({ appName, userId, sessionId }: Record<keyof SessionKey, SQL>): SQL => sql`exists (
  select 1 from ${tasks} left join ${OF_TASK.table} on ${OF_TASK.on}
  where ${tasks.appName} = ${appName} and ${tasks.userId} = ${userId}
    and (${tasks.sessionId} = ${sessionId} or ${OF_TASK.root} = ${sessionId}) and ${tasks.dueTime} is not null)`;

/** A left join of a row's tasks that resume it: those that are open, or still have to wake it. `isNone`: it has none. */
export const getResuming = (session: SessionRef, invocationId: AnyPgColumn) => ({
  table: tasks,
  on: sql`${isSession(session, tasks)} and ${tasks.invocationId} = ${invocationId}
    and (${tasks.state} = 'open' or ${tasks.dueTime} is not null)`,
  isNone: sql`${tasks.id} is null`,
});

export const listDueTasks = (db: Database, limit: number): Promise<DueTask[]> =>
  db
    .select({
      appName: tasks.appName,
      userId: tasks.userId,
      sessionId: tasks.sessionId,
      id: tasks.id,
      kind: tasks.kind,
      inMs: sql`ceil(1000 * extract(epoch from ${tasks.dueTime} - statement_timestamp()))`.mapWith(Number),
    })
    .from(tasks)
    .where(sql`${tasks.dueTime} is not null`)
    .orderBy(tasks.dueTime)
    .limit(limit);

/** Processes due tasks in one statement. @returns true if at least one invocation was queued */
export async function wakeDueTasks(db: Database, due: DueTask[]): Promise<boolean> {
  const column = (name: 'appName' | 'userId' | 'sessionId' | 'id') =>
    sql`${sql.param(due.map((task) => task[name]))}::text[]`;
  const { rows } = await db.execute<{ woke: boolean }>(sql`
    select bool_or(woke) as woke
    from unnest(${column('appName')}, ${column('userId')}, ${column('sessionId')}, ${column('id')}) as due(a, u, s, i)
    cross join lateral wake_task(a, u, s, i) as woke`);
  return rows[0]?.woke === true;
}

/**
 * Makes an answered task due again if its invocation is paused without an open task: nothing else would resume it.
 * Harmless if another process resumes it at the same time. @returns the number of tasks
 */
export async function wakeForgotten(db: Database): Promise<number> {
  const other = alias(tasks, 'other');
  const isSame = (row: typeof other | typeof invocations, id: AnyPgColumn) => sql`${row.appName} = ${tasks.appName}
    and ${row.userId} = ${tasks.userId} and ${row.sessionId} = ${tasks.sessionId} and ${id} = ${tasks.invocationId}`;
  const { rowCount } = await db
    .update(tasks)
    .set({ dueTime: sql`statement_timestamp()` })
    .where(
      and(
        eq(tasks.state, 'answered'),
        isNull(tasks.dueTime),
        // Citus refuses `exists` with a subquery that selects no column.
        sql`not exists (select 1 from ${tasks} ${other}
          where ${isSame(other, other.invocationId)} and ${other.state} = 'open')`,
        sql`exists (select 1 from ${invocations}
          where ${isSame(invocations, invocations.id)} and ${invocations.status} = 'paused')`,
      ),
    );
  return rowCount ?? 0;
}

/**
 * Answers tasks that wait for an agent which has ended: its end found no task where a client cancelled it in the moment in
 * which its parent paused. @returns the number of tasks
 */
export async function answerForgottenChildren(db: Database): Promise<number> {
  const { appName, userId, sessionId, invocationId, callId, version } = tasks;
  const now = sql`statement_timestamp()`;
  const open = await db
    .select({ appName, userId, sessionId, id: tasks.id })
    .from(tasks)
    .where(
      and(
        eq(tasks.kind, 'child'),
        eq(tasks.state, 'open'),
        sql`not exists (
          select 1 from ${invocations}
          where ${invocations.appName} = ${appName} and ${invocations.userId} = ${userId}
            and ${invocations.status} in ('queued', 'running', 'paused')
            and ${isChildOf({ appName, userId, sessionId, invocationId, callId }, invocations)})`,
      ),
    );
  for (const { id, ...key } of open)
    await db
      .update(tasks)
      .set({
        state: 'answered',
        answer: {},
        decidedVia: 'child',
        decideTime: now,
        dueTime: now,
        version: sql`${version} + 1`,
      })
      .where(and(isSession(key, tasks), eq(tasks.id, id), eq(tasks.state, 'open')));
  return open.length;
}

/** Removes a user's name from other users' tasks: assignees, answers, approvals and comments. @returns their number */
export async function forgetInTasks(db: Database, { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>) {
  const byUser = sql`jsonb_build_array(jsonb_build_object('by', ${userId}::text))`;
  const without = (list: typeof tasks.comments | typeof tasks.approvals) => sql`(
    select coalesce(jsonb_agg(entry order by place), '[]')
    from jsonb_array_elements(${list}) with ordinality as of_list (entry, place) where entry ->> 'by' <> ${userId})`;
  const { rowCount } = await db
    .update(tasks)
    .set({
      assignedUsers: sql`array_remove(${tasks.assignedUsers}, ${userId})`,
      decidedBy: sql`nullif(${tasks.decidedBy}, ${userId})`,
      approvals: without(tasks.approvals),
      comments: without(tasks.comments),
    })
    .where(
      and(
        eq(tasks.appName, appName),
        sql`(${tasks.assignedUsers} @> array[${userId}::text] or ${tasks.decidedBy} = ${userId}
          or ${tasks.approvals} @> ${byUser} or ${tasks.comments} @> ${byUser})`,
      ),
    );
  return rowCount ?? 0;
}
