import { z } from 'zod';
import { InvalidError } from '../../core/errors.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { readableUsers, requireScope } from '../../platform/http/access/authorize.ts';
import { area } from '../../platform/http/operation/area.ts';
import { pageQuery, toCursor, toPlace } from '../../platform/http/operation/cursor.ts';
import { appPath, filterText } from '../../platform/http/operation/parameters.ts';
import { invocationSchema, STATUSES } from '../invocation.ts';
import { boundsOf, type Principal } from '../../platform/http/operation/principal.ts';
import { listInvocationPage, MAX_LOOKED_AT } from '../list-invocations.ts';

/** A statement is sent for each user of each application. */
const MAX_STATEMENTS = 20;

const seconds = (which: string) => z.number().optional().describe(`Only those requested ${which} this Unix time.`);

export const listedInvocationSchema = invocationSchema
  .extend({
    agent: z
      .string()
      .optional()
      .describe(
        'The agent that made its last event: it answered, or was at work when it failed. Absent until it ends.',
      ),
    firstText: z
      .string()
      .optional()
      .describe('Beginning of the text of its prompt, at most 200 characters; absent where it has none.'),
  })
  .describe('An invocation as lists over sessions show it.');

const room = area<{ database: DatabasePool; agents: ReadonlyMap<string, unknown> }>('Agent execution', {
  read: 'read',
  write: 'invoke',
  owner: 'service',
  load: 'heavy',
});

const filters = pageQuery('invocations').extend({
  userId: filterText('Only those of this user.'),
  sessionId: filterText('Only those of the session with this id.'),
  status: z.array(z.enum(STATUSES)).max(STATUSES.length).optional().describe('Only those with one of these.'),
  errorCode: filterText('Only those that ended with this `error.code`.'),
  failedToolCalls: z.boolean().default(false).describe('Only those with `failedToolCalls`.'),
  stranded: z
    .boolean()
    .default(false)
    .describe('Only paused ones that nothing will resume: they wait for tasks, and none is open or due.'),
  agent: filterText('Only those whose last event is by this agent.'),
  version: filterText('Only those with this `agentVersion`.'),
  createdAfter: seconds('after'),
  createdBefore: seconds('before'),
  text: filterText('Only those with this in their `firstText`, in any case, or whose own or session id it is.'),
});
const WHOSE =
  'Of all users, for which the scope `admin` is needed too, or of the user of `userId`; a token lists those of its ' +
  'user, a key those of the users that it is bound to. The newest first. Of filters only those on users, times, failures, ' +
  'failed tool calls and what nothing will resume have an index: ';

const success = {
  schema: z
    .object({
      items: z.array(listedInvocationSchema).describe('Those of this page, the newest first.'),
      nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
      isCut: z
        .boolean()
        .describe(
          'True: the page ended because it had looked at so many; the next one may have more, or be empty too.',
        ),
    })
    .describe('A page of invocations.'),
  description: 'The invocations.',
  example: {
    items: [
      {
        id: 'e-4b1c8f3e',
        appName: 'harness_agent',
        userId: 'u1',
        sessionId: 's1',
        status: 'failed' as const,
        createTime: 1_767_225_600.25,
        startTime: 1_767_225_600.25,
        endTime: 1_767_225_601.5,
        llmCalls: 1,
        toolCalls: 0,
        promptTokens: 206,
        outputTokens: 0,
        error: { code: 'model_timeout', message: 'The model provider sent nothing for 60 s.' },
        agent: 'harness_agent',
        firstText: 'Where is my parcel?',
      },
    ],
    isCut: false,
  },
};

type Filters = z.output<typeof filters>;

async function list(db: DatabasePool, appNames: readonly string[], query: Filters, principal: Principal) {
  const { limit, cursor, userId, status: statuses, ...filter } = query;
  const users = readableUsers(principal, userId === undefined ? undefined : [userId]);
  if (!users) requireScope(principal, { scope: 'admin', because: 'it lists the invocations of all users.' });
  if ((users?.length ?? 1) * appNames.length > MAX_STATEMENTS)
    throw new InvalidError(
      users && users.length > 1
        ? `The key is bound to more than ${MAX_STATEMENTS} users: name one of them with \`userId\`.`
        : `There are more than ${MAX_STATEMENTS} applications: list those of one.`,
    );
  const page = { ...filter, statuses };
  const { texts, next, isCut } = await listInvocationPage(db.reads, appNames, users, page, limit, toPlace(cursor));
  const nextCursor = next ? `"nextCursor":"${toCursor(next)}",` : '';
  return { kind: 'json' as const, text: `{"items":[${texts.join(',')}],${nextCursor}"isCut":${isCut}}` };
}

export const listAppInvocations = room.operation({
  method: 'get',
  path: '/apps/{app_name}/invocations',
  operationId: 'listAppInvocations',
  summary: 'List the invocations of an application',
  description:
    `${WHOSE}a page looks at ${MAX_LOOKED_AT} invocations at most, and says so with \`isCut\`. ` +
    'Those of one session of one user are all looked at.',
  parameters: { path: appPath, query: filters },
  success,
  errors: { 400: 'The key is bound to many users, and `userId` names none.', 404: 'Another user than the own.' },
  handler: ({ database }, { path, query, principal }) => list(database, [path.appName], query, principal),
});

export const listAllInvocations = room.operation({
  method: 'get',
  path: '/invocations',
  operationId: 'listAllInvocations',
  summary: 'List the invocations of all applications',
  servesBoundKeys: true,
  description:
    'Of those that this service serves; a key that is bound to some lists those of them. ' +
    `${WHOSE}a page looks at ${MAX_LOOKED_AT} invocations of each application at most, and says so with \`isCut\`.`,
  parameters: { query: filters },
  success,
  errors: {
    400: `There are more than ${MAX_STATEMENTS} applications, or users that the key is bound to.`,
    404: 'Another user than the own.',
  },
  handler: ({ database, agents }, { query, principal }) =>
    list(database, boundsOf(principal).apps ?? [...agents.keys()], query, principal),
});
