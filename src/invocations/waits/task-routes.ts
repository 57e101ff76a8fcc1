import { z } from 'zod';
import { ForbiddenError, InvalidError, PreconditionFailedError } from '../../core/errors.ts';
import { ifMatch, toVersions } from '../../conversation/sessions/precondition.ts';
import { mayActFor, requireScope } from '../../platform/http/access/authorize.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { taskPath } from '../../platform/http/operation/parameters.ts';
import { type Principal, visibleTo } from '../../platform/http/operation/principal.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import {
  changeTaskSchema,
  checkAnswer,
  MAX_WAIT_SECONDS,
  TASK_EXAMPLE,
  TASK_KINDS,
  TASK_STATES,
  type Task,
  type TaskChange,
  taskSchema,
  toCallResponse,
} from './task.ts';
import { changeTask, findTask, listTasks, type Person, type TaskRow, TASKS_TOPIC, type Viewer } from './task-store.ts';

export interface TaskContext {
  database: DatabasePool;
  notifications: Notifications;
}

const filterText = (meaning: string) => z.string().min(1).max(256).optional().describe(meaning);
const etag = { ETag: 'Its version, for `If-Match`.' };
const success = { schema: taskSchema, description: 'The task.', example: TASK_EXAMPLE, headers: etag };

const listOperation = operation({
  method: 'get',
  path: '/tasks',
  operationId: 'listTasks',
  scope: 'read',
  owner: 'caller',
  summary: 'List tasks',
  description:
    'What waits for a person, a time or a signal, the next deadline first. A user sees the tasks of its own sessions ' +
    'and those that it, or a group of its token, is assigned to.',
  parameters: {
    query: pageQuery('tasks').extend({
      state: z.enum(TASK_STATES).default('open').describe('Their state.'),
      kind: z.enum(TASK_KINDS).optional().describe('Their kind [any].'),
      appName: filterText('Of this application [all].'),
      ownerId: filterText('Of the sessions of this user [all].'),
      sessionId: filterText('Of this session [all].'),
      assignee: filterText('Assigned to this user [any].'),
      group: filterText('Assigned to this group [any].'),
      olderThan: z.int().min(0).max(MAX_WAIT_SECONDS).optional().describe('Older than so many seconds [any].'),
      text: filterText('With this text in what is asked [any].'),
    }),
  },
  success: {
    schema: z.object({
      items: z.array(taskSchema).describe('The tasks.'),
      nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
    }),
    description: 'A page of them.',
    example: { items: [TASK_EXAMPLE] },
  },
  handler: async ({ database }: TaskContext, { query, principal }) => {
    const { limit, cursor, ...filter } = query;
    const found = await listTasks(database.reads, toViewer(principal), filter, limit + 1, toPlace(cursor));
    return { kind: 'value', value: toPage(found, limit, (task) => toWire(principal, task)) };
  },
});

const getOperation = operation({
  method: 'get',
  path: '/tasks/{task_id}',
  operationId: 'getTask',
  scope: 'read',
  owner: 'caller',
  summary: 'Get a task',
  parameters: { path: taskPath },
  success,
  errors: { 404: 'No such task.' },
  absent: ({ taskId }) => `Task not found: ${taskId}`,
  handler: async ({ database }: TaskContext, { path, principal, response, notFound }) => {
    const task = await findTask(database.reads, toViewer(principal), path.taskId);
    if (!task) throw notFound();
    response.setHeader('etag', toEtag(task));
    return { kind: 'value', value: toWire(principal, task) };
  },
});

const changeOperation = operation({
  method: 'patch',
  path: '/tasks/{task_id}',
  operationId: 'changeTask',
  scope: 'invoke',
  owner: 'caller',
  summary: 'Answer, reject, assign, comment or postpone a task',
  description:
    'Of several answers one counts: the others get 409 with who was first. Once nothing that its invocation ' +
    'waits for is open, that goes on in the background, on any replica. Assigned users and groups may answer; ' +
    'the user of the session may where there are none. All who see it may comment.',
  parameters: {
    path: taskPath,
    headers: z.object({ 'if-match': ifMatch.shape['if-match'].describe('`ETag`s of the task: 412 for another.') }),
  },
  body: { schema: changeTaskSchema, required: true, example: { action: 'answer' } },
  success,
  errors: {
    400: 'The answer does not fit, or something is missing.',
    403: 'Others have to answer.',
    404: 'No such task.',
    409: 'It was answered before, or changed at the same time.',
    412: 'It has another version.',
    413: 'The answer is too large.',
  },
  absent: ({ taskId }) => `Task not found: ${taskId}`,
  handler: async (context: TaskContext, { path, headers, body, principal, response, notFound }) => {
    const viewer = toViewer(principal);
    const task = await findTask(context.database.db, viewer, path.taskId);
    if (!task) throw notFound();
    // Budgets need the scope `admin`, for the requesting user too (`excludesRequester`).
    if (task.shown.kind === 'budget' && body.action !== 'comment')
      requireScope(principal, { scope: 'admin', because: 'the task is about a budget.' });
    const versions = toVersions(headers['if-match']);
    if (versions && !versions.includes(String(task.version))) throw new PreconditionFailedError(toEtag(task));
    const person = toPerson(principal, body.by, task);
    const change = await toChange(task, body);
    const version = versions ? task.version : undefined;
    await changeTask(context.database.db, task, person, version, body.action, change);
    context.notifications.publish(TASKS_TOPIC);
    const changed = (await findTask(context.database.db, viewer, path.taskId)) ?? task;
    response.setHeader('etag', toEtag(changed));
    return { kind: 'value', value: toWire(principal, changed) };
  },
});

export const taskOperations = [listOperation, getOperation, changeOperation];

const toEtag = ({ version }: TaskRow) => `"${version}"`;

/** Returns which tasks a caller may see. */
export const toViewer = (principal: Principal): Viewer => ({
  userId: visibleTo(principal),
  groups: (principal.kind === 'user' && principal.groups) || [],
});

/** Adds the session, invocation and call for callers who may read that session. */
const toWire = (principal: Principal, { userId, sessionId, invocationId, callId, shown }: TaskRow): Task =>
  mayActFor(principal, userId) ? { ...shown, sessionId, invocationId, callId } : shown;

/**
 * Returns who answers: a user answers for itself; a key, or an anonymous caller, for the person it names. A key that is
 * bound to users or applications answers as the user of the session.
 */
export function toPerson(
  principal: Principal,
  named: string | undefined,
  { userId }: Pick<TaskRow, 'userId'>,
): Person & { by: string } {
  const isBound = principal.kind === 'key' && (principal.users ?? principal.apps) !== undefined;
  const own = isBound ? userId : visibleTo(principal);
  if (own !== undefined && named !== undefined && named !== own) throw new ForbiddenError('`by` is another user.');
  return { by: own ?? named ?? userId, groups: toViewer(principal).groups, isVouchedFor: own === undefined };
}

/** Validates a change. @returns what is written @throws {InvalidError} if something is missing or does not match */
async function toChange(task: TaskRow, { action, answer, text, ...more }: TaskChange): Promise<object> {
  const { users = [], groups = [], seconds } = more;
  if (action === 'comment' && text === undefined) throw new InvalidError('A comment needs `text`.');
  if (action === 'postpone' && seconds === undefined) throw new InvalidError('To postpone needs `seconds`.');
  if (action === 'assign' && users.length + groups.length === 0)
    throw new InvalidError('To assign needs `users` or `groups`.');
  if (action !== 'answer' && action !== 'reject') return { text, users, groups, seconds };
  const isYes = action === 'answer';
  if (isYes) await checkAnswer(task, answer);
  return { response: toCallResponse({ ...task, kind: task.shown.kind }, isYes, answer, text), via: 'tasks' };
}
