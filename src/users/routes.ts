import { z } from 'zod';
import { operation } from '../http/operation/operation.ts';
import { userPath } from '../http/operation/parameters.ts';
import { countUserData, type EraseContext, eraseUser, listUserApps } from './erase-user.ts';

const area = 'Service and applications';
const USER_PATH = '/apps/{app_name}/users/{user_id}';

const erasureSchema = z
  .object({
    status: z
      .enum(['done', 'running', 'dryRun'])
      .describe('`running`: not all is deleted yet; the same request goes on, and so does the service by itself.'),
    counts: z
      .record(z.string(), z.int())
      .describe('Rows by table, those without any left out; `objects`: of a bucket; `app_states`: keys.'),
  })
  .describe('What an erasure deleted.');

const eraseOne = operation({
  method: 'delete',
  path: USER_PATH,
  operationId: 'eraseUser',
  scope: 'admin',
  isForKeys: true,
  load: 'heavy',
  area,
  summary: 'Erase a user',
  description:
    'From every table and the object store, with what was copied from the sessions of the user. Running invocations ' +
    'are cancelled first; new data is refused with 409 until all is gone. Repeat it while `status` is `running`; ' +
    'erasing who is not there succeeds too.',
  owner: 'path',
  parameters: {
    path: userPath,
    query: z.object({ dryRun: z.boolean().default(false).describe('True: count and change nothing.') }),
  },
  success: {
    schema: erasureSchema,
    description: 'What was deleted since the erasure began.',
    example: { status: 'done', counts: { events: 42, sessions: 3 } },
  },
  errors: { 409: 'Something of the user is on legal hold.' },
  handler: async (context: EraseContext, { path, query }) => {
    if (query.dryRun) return { kind: 'value', value: { status: 'dryRun', counts: await countUserData(context, path) } };
    return { kind: 'value', value: await eraseUser(context, path) };
  },
});

const listApps = operation({
  method: 'get',
  path: '/users/{user_id}/apps',
  operationId: 'listAppsOfUser',
  scope: 'admin',
  isForKeys: true,
  load: 'heavy',
  area,
  summary: 'List the applications that hold data of a user',
  description: 'Also those that are served no more.',
  owner: 'path',
  parameters: { path: userPath.pick({ userId: true }) },
  success: { schema: z.array(z.string()), description: 'By name.', example: ['harness_agent'] },
  handler: async (context: EraseContext, { path, principal, notFound }) => {
    // Which applications there are is more than a key of some may know.
    if (principal.apps) throw notFound();
    return { kind: 'value', value: await listUserApps(context, path.userId) };
  },
});

/** What an operator with the scope `admin` does with all data of one user. */
export const userOperations = [eraseOne, listApps];
