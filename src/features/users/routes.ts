import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { bodyText } from '../../core/members.ts';
import { InvalidError } from '../../core/errors.ts';
import { identifierSchema } from '../../core/session.ts';
import { findWebhook } from '../../invocations/webhooks/webhook-store.ts';
import { runAsSystem } from '../../platform/context.ts';
import { area } from '../../platform/http/operation/area.ts';
import { userPath } from '../../platform/http/operation/parameters.ts';
import { exportUser, type ExportContext, importLines } from './export-user.ts';
import { countExpired, type RetentionSettings, toRetention } from './retention.ts';
import { countUserData, type EraseContext, eraseUser } from './erase-user.ts';
import { type ListContext, listUsers } from './list-users.ts';
import { listUserApps } from './user-tables.ts';

export interface UserContext extends EraseContext, ExportContext, ListContext {
  config: RetentionSettings;
}

const room = area<UserContext>('Service and applications', {
  read: 'admin',
  write: 'admin',
  owner: 'path',
  isForKeys: true,
  load: 'heavy',
});

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

const eraseOne = room.operation({
  method: 'delete',
  path: USER_PATH,
  operationId: 'eraseUser',
  summary: 'Erase a user',
  description:
    'From every table and the object store, with what was copied from the sessions of the user. Running invocations ' +
    'are cancelled first; new data is refused with 409 until all is gone. Repeat it while `status` is `running`; ' +
    'erasing who is not there succeeds too.',
  parameters: {
    path: userPath,
    query: z.object({
      dryRun: z.boolean().default(false).describe('True: count and change nothing.'),
      webhookId: identifierSchema.optional().describe('A webhook of the application that is sent `user.erased`.'),
    }),
  },
  success: {
    schema: erasureSchema,
    description: 'What was deleted since the erasure began.',
    example: { status: 'done', counts: { events: 42, sessions: 3 } },
  },
  errors: { 400: 'The webhook is none of the application.', 409: 'Something of the user is on legal hold.' },
  handler: async (context, { path, query: { dryRun, webhookId } }) => {
    if (dryRun) return { kind: 'value', value: { status: 'dryRun', counts: await countUserData(context, path) } };
    const { db } = context.database;
    const webhook = webhookId && (await runAsSystem(() => findWebhook(db, webhookId, undefined)));
    if (webhookId && (!webhook || webhook.appName !== path.appName))
      throw new InvalidError(`Webhook not found: ${webhookId}`);
    return { kind: 'value', value: await eraseUser(context, path, webhookId) };
  },
});

const listApps = room.operation({
  method: 'get',
  path: '/users/{user_id}/apps',
  operationId: 'listAppsOfUser',
  summary: 'List the applications that hold data of a user',
  description: 'Also those that are served no more.',
  parameters: { path: userPath.pick({ userId: true }) },
  success: { schema: z.array(z.string()), description: 'By name.', example: ['harness_agent'] },
  handler: async (context, { path }) => ({
    kind: 'value',
    value: await listUserApps(context.database.reads, context.userTables, path.userId),
  }),
});

const exportOne = room.operation({
  method: 'get',
  path: `${USER_PATH}/export`,
  operationId: 'exportUser',
  summary: 'Export all data of a user',
  description:
    'As JSON Lines: a head, a line for each row with the names of table and columns, artifacts with their bytes in ' +
    'base64, an end with the number of lines. Secrets of webhooks are in it; answers kept for retries ' +
    'and budgets are not. `importUser` takes it.',
  parameters: { path: userPath },
  success: {
    schema: z.string(),
    description: 'The lines.',
    mediaType: 'application/x-ndjson',
    example: '{"table":"user_states","row":{"app_name":"harness_agent","user_id":"u1","state":{}}}\n',
  },
  handler: async (context, { path, response }) => {
    response.setHeader('content-type', 'application/x-ndjson');
    await pipeline(exportUser(context, path), response).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
    });
    return { kind: 'sent' };
  },
});

const importOne = room.operation({
  method: 'post',
  path: `${USER_PATH}/import`,
  operationId: 'importUser',
  summary: 'Import data of a user',
  description:
    'Lines of an export, as many as a body may have, in their order; request by request. What is there already stays ' +
    'as it is. Events are as brought by a request. Nothing that ran elsewhere goes on: invocations end as ' +
    '`interrupted`, cronjobs come disabled, deliveries of webhooks are not sent.',
  parameters: { path: userPath },
  demands: () => [{ scope: 'import', because: 'it brings events in the name of others.' }],
  body: {
    schema: bodyText.describe('Lines of an export.'),
    required: true,
    isText: true,
    example: '{"table":"user_states","row":{"app_name":"harness_agent","user_id":"u1","state":{}}}',
  },
  success: {
    schema: z
      .object({
        imported: z.int().describe('Rows that were inserted.'),
        present: z.int().describe('Rows that were there.'),
      })
      .describe('What an import did.'),
    description: 'How many rows.',
    example: { imported: 1, present: 0 },
  },
  errors: { 400: 'A line is none of an export.' },
  handler: async (context, { path, body, principal }) => ({
    kind: 'value',
    value: await importLines(context, path, body, principal.scopes.has('override')),
  }),
});

const retentionSchema = z
  .object({
    sessions: z.int().describe('Sessions that are not kept any more.'),
    artifactVersions: z.int().describe('Versions of artifacts beyond the newest ones.'),
  })
  .describe('What is not kept any more by the settings of retention.');

const showRetention = room.operation({
  method: 'get',
  path: '/retention',
  operationId: 'countUnretained',
  summary: 'Count what retention would delete now',
  description: 'A dry run: nothing is changed. What runs or is on legal hold is not counted.',
  owner: 'service',
  success: { schema: retentionSchema, description: 'The counts.', example: { sessions: 3, artifactVersions: 0 } },
  handler: async (context) => ({
    kind: 'value',
    value: await countExpired(context, toRetention(context.config)),
  }),
});

export const userOperations = [listUsers, eraseOne, listApps, exportOne, importOne, showRetention];
