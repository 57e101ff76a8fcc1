import { z } from 'zod';
import type { Config } from '../../config/config.ts';
import { ForbiddenError, InvalidError, PreconditionFailedError } from '../../core/errors.ts';
import { ifMatch, toVersions } from '../../conversation/sessions/precondition.ts';
import { mayActFor, requireScope } from '../../platform/http/access/authorize.ts';
import { area } from '../../platform/http/operation/area.ts';
import { pageQuery, readPage } from '../../platform/http/operation/cursor.ts';
import { filterText, taskPath } from '../../platform/http/operation/parameters.ts';
import { boundsOf, type Principal } from '../../platform/http/operation/principal.ts';
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

const room = area<TaskContext & { config: Pick<Config, 'PUBLIC_URL'> }>('Agent execution', {
  read: 'read',
  write: 'invoke',
  owner: 'caller',
  servesBoundKeys: true,
});

export const tasks = room.resource({
  noun: 'task',
  path: '/tasks',
  key: taskPath,
  schema: taskSchema,
  example: TASK_EXAMPLE,
  find: (db, { taskId }, principal) => findTask(db, toViewer(principal), taskId),
});

const success = { headers: { ETag: 'Its version, for `If-Match`.' } };

export const taskOperations = [
  tasks.list({
    description:
      'What waits for a person, a time or a signal, the next deadline first. A user sees the tasks of its own sessions ' +
      'and those that it, or a group of its token, is assigned to; a key that is bound to users or applications those of ' +
      'its users in its applications.',
    query: pageQuery('tasks').extend({
      state: z.enum(TASK_STATES).default('open').describe('Their state.'),
      kind: z
        .array(z.enum(TASK_KINDS))
        .max(TASK_KINDS.length)
        .optional()
        .describe('Their kind [any but `child`]; several: one of them.'),
      appName: filterText('Of this application [all].'),
      ownerId: filterText('Of the sessions of this user [all].'),
      sessionId: filterText('Of this session, or of an agent that it called like a tool [all].'),
      assignee: filterText('Assigned to this user [any].'),
      group: filterText('Assigned to this group [any].'),
      olderThan: z.int().min(0).max(MAX_WAIT_SECONDS).optional().describe('Older than so many seconds [any].'),
      text: filterText('With this text in what is asked [any].'),
    }),
    success: {
      schema: z.object({
        items: z.array(taskSchema).describe('The tasks.'),
        nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
      }),
      description: 'A page of them.',
      example: { items: [TASK_EXAMPLE] },
    },
    run: ({ database }, { query: { limit, cursor, ...filter }, principal }) =>
      readPage(
        { limit, cursor },
        (most, after) => listTasks(database.reads, toViewer(principal), filter, most, after),
        (row) => toWire(principal, row),
      ),
  }),
  tasks.read({
    success,
    run: async (_context, { principal, response }, row) => {
      response.setHeader('etag', toEtag(row));
      return toWire(principal, row);
    },
  }),
  tasks.change({
    operationId: 'changeTask',
    isIdempotent: true,
    summary: 'Answer, reject, assign, comment or postpone a task',
    description:
      'Of several answers one counts: the others get 409 with who was first. Once nothing that its invocation ' +
      'waits for is open, that goes on in the background, on any replica. Assigned users and groups may answer; ' +
      'the user of the session may where there are none. All who see it may comment.',
    headers: z.object({ 'if-match': ifMatch.shape['if-match'].describe('`ETag`s of the task: 412 for another.') }),
    body: { schema: changeTaskSchema, example: { action: 'answer' } },
    success,
    errors: {
      400: 'The answer does not fit, or something is missing.',
      403: 'Others have to answer.',
      409: 'It was answered before, or changed at the same time.',
      412: 'It has another version.',
      413: 'The answer is too large.',
    },
    run: async ({ database: { db }, notifications }, { path, headers, body, principal, response }, row) => {
      // Budget tasks need the scope `admin`, even for the user who started the invocation (`excludesRequester`).
      if (row.shown.kind === 'budget' && body.action !== 'comment')
        requireScope(principal, { scope: 'admin', because: 'the task is about a budget.' });
      const versions = toVersions(headers['if-match']);
      if (versions && !versions.includes(String(row.version))) throw new PreconditionFailedError(toEtag(row));
      const person = toPerson(principal, body.by, row);
      const change = await toChange(row, body);
      await changeTask(db, row, person, versions ? row.version : undefined, body.action, change);
      notifications.publish(TASKS_TOPIC);
      const changed = (await findTask(db, toViewer(principal), path.taskId)) ?? row;
      response.setHeader('etag', toEtag(changed));
      return toWire(principal, changed);
    },
  }),
];

const toEtag = ({ version }: TaskRow) => `"${version}"`;

const toViewer = (principal: Principal): Viewer => ({
  ...boundsOf(principal),
  groups: (principal.kind === 'user' && principal.groups) || [],
});

/** Returns the task as JSON. Adds the ids of session, invocation and call for callers who may read that session. */
const toWire = (
  principal: Principal,
  { userId, sessionId, rootSessionId, invocationId, callId, shown }: TaskRow,
): Task =>
  mayActFor(principal, userId)
    ? { ...shown, sessionId, ...(rootSessionId !== null && { rootSessionId }), invocationId, callId }
    : shown;

/**
 * Returns the person who answers a task. A user answers for itself. An API key or an anonymous caller answers for the
 * person whom the request names. A key that is bound answers as one of its users, by default as the one of the session
 * or the only one that is assigned; without users of its own, as the user of the session. It vouches for nobody.
 */
export function toPerson(
  principal: Principal,
  by: string | undefined,
  { userId, shown }: Pick<TaskRow, 'userId'> & Partial<Pick<TaskRow, 'shown'>>,
): Person & { by: string } {
  const { groups, users, apps } = toViewer(principal);
  if (!users && !apps) return { by: by ?? userId, groups, isVouchedFor: true };
  const own = users ?? [userId];
  if (by !== undefined && !own.includes(by)) throw new ForbiddenError('`by` is another user.');
  const [only, ...others] = own.length === 1 ? own : own.filter((each) => shown?.users.includes(each));
  const person = by ?? (own.includes(userId) ? userId : others.length === 0 ? only : undefined);
  if (person === undefined)
    throw new InvalidError('The key is bound to several users: `by` says which of them answers.');
  return { by: person, groups, isVouchedFor: false };
}

/** Column values of a change to a task. @throws {InvalidError} if a member is missing or does not match the task */
async function toChange(task: TaskRow, { action, answer, text, ...more }: TaskChange): Promise<object> {
  const { users = [], groups = [], seconds } = more;
  if (action === 'comment' && text === undefined) throw new InvalidError('A comment needs `text`.');
  if (action === 'postpone' && seconds === undefined) throw new InvalidError('To postpone needs `seconds`.');
  if (action === 'assign' && users.length + groups.length === 0)
    throw new InvalidError('To assign needs `users` or `groups`.');
  if (action !== 'answer' && action !== 'reject') return { text, users, groups, seconds };
  const isYes = action === 'answer';
  if (isYes) await checkAnswer(task, answer);
  const response = toCallResponse({ ...task, kind: task.shown.kind }, isYes, answer, text);
  return { response, via: 'tasks', ...(!isYes && text && { text }) };
}
