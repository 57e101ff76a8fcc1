import { z } from 'zod';
import { ConflictError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { Database } from '../../platform/db/database.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { requireScope } from '../../platform/http/access/authorize.ts';
import { overrideDemands } from '../../platform/http/operation/demands.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { type Principal, requireOwner } from '../../platform/http/operation/principal.ts';
import {
  changeCronjob,
  checkSchedule,
  disableCronjob,
  enableCronjob,
  toNewCronjob,
  toUntil,
} from './change-cronjob.ts';
import {
  createCronjobSchema,
  CRONJOB_EXAMPLE,
  cronjobPageSchema,
  cronjobSchema,
  previewResultSchema,
  previewSchema,
  updateCronjobSchema,
} from './cronjob.ts';
import { type CronjobRow, deleteCronjob, findTime, insertCronjob, listCronjobs } from './cronjob-store.ts';
import { type CronjobContext, getCronjob, getLockedCronjob, toCronjobWire, toHarness } from './cronjob-view.ts';
import { CRONJOB_PATH, cronjobRunOperations, ofCronjob } from './run-routes.ts';
import { withAnchor, getNextTimes } from './schedule.ts';
import { requireWebhook } from '../../invocations/webhooks/address.ts';

const LIST_PATH = '/harness/cronjobs';
const PREVIEWED_TIMES = 10;

const oneCronjob = { schema: cronjobSchema, description: 'The cronjob.', example: CRONJOB_EXAMPLE };
const absent = { 404: 'No such cronjob.' };

/** The body with the address of its webhook as that is registered. @throws {ValidationFailedError} where it is not. */
async function withWebhook<Body extends { webhookUrl?: string | null | undefined }>(
  tx: Database,
  { config }: CronjobContext,
  user: { appName: string; userId: string },
  body: Body,
): Promise<Body> {
  const webhookUrl = await requireWebhook(tx, config, user, body.webhookUrl);
  return webhookUrl === undefined ? body : { ...body, webhookUrl };
}

const createCronjob = operation({
  method: 'post',
  path: LIST_PATH,
  operationId: 'createCronjob',
  demands: ({ body }) => overrideDemands(body.harness),
  scope: 'invoke',
  summary: 'Create a cronjob',
  owner: 'caller',
  description: 'It is its owner’s: it runs until it is disabled or deleted, also where the key that made it is gone.',
  body: {
    schema: createCronjobSchema,
    required: true,
    aliases: { userId: 'ownerId', user_id: 'ownerId' },
    example: {
      ownerId: 'u1',
      name: CRONJOB_EXAMPLE.name ?? '',
      prompt: CRONJOB_EXAMPLE.prompt ?? '',
      schedule: { type: 'daily', time: '08:00', timezone: 'Europe/Berlin' },
    },
  },
  success: { ...oneCronjob, status: 201 },
  errors: { 404: 'No such application.', 409: 'The user has as many cronjobs as CRONJOBS_MAX_PER_USER allows.' },
  handler: async (context: CronjobContext, { body, principal }) => {
    const userId = requireOwner(principal, body.ownerId, 'body');
    const appName = body.appName ?? HARNESS_APP;
    const cronjob = await context.database.transaction(async (tx) => {
      const made = { id: context.newId(), userId, now: await findTime(tx) };
      const given = await withWebhook(tx, context, { appName, userId }, body);
      return insertCronjob(tx, toNewCronjob(given, made, context.config), context.config.CRONJOBS_MAX_PER_USER);
    });
    return { kind: 'value', value: toCronjobWire({ cronjob, latestRun: null }) };
  },
});

const cronjobsQuery = pageQuery('cronjobs');
const onePage = { schema: cronjobPageSchema, description: 'The cronjobs.', example: { items: [CRONJOB_EXAMPLE] } };

/** Answers with a page of the cronjobs of a user, or of all. */
async function answerPage(
  { database }: CronjobContext,
  userId: string | undefined,
  query: z.output<typeof cronjobsQuery>,
) {
  const found = await listCronjobs(database.reads, userId, query.limit + 1, toPlace(query.cursor));
  return { kind: 'value', value: toPage(found, query.limit, toCronjobWire) } as const;
}

const listOfOwner = operation({
  method: 'get',
  path: LIST_PATH,
  operationId: 'listCronjobs',
  load: 'heavy',
  scope: 'read',
  summary: 'List cronjobs',
  description: 'Of one user, over all applications, newest first; fewer where texts are large.',
  owner: 'caller',
  parameters: {
    query: cronjobsQuery.extend({
      ownerId: z.string().max(256).optional().describe('Whose they are. Needed where no user is logged in.'),
    }),
  },
  success: onePage,
  handler: (context: CronjobContext, { query, principal }) =>
    answerPage(context, requireOwner(principal, query.ownerId, 'query'), query),
});

const listAll = operation({
  method: 'get',
  path: '/cronjobs',
  operationId: 'listAllCronjobs',
  scope: 'admin',
  isForKeys: true,
  load: 'heavy',
  summary: 'List the cronjobs of all users',
  description: 'Over all applications, in the order of their ids; fewer where texts are large. For operators.',
  owner: 'service',
  parameters: { query: cronjobsQuery },
  success: onePage,
  handler: (context: CronjobContext, { query }) => answerPage(context, undefined, query),
});

const getOne = operation({
  method: 'get',
  path: CRONJOB_PATH,
  operationId: 'getCronjob',
  scope: 'read',
  summary: 'Get a cronjob',
  ...ofCronjob,
  success: oneCronjob,
  errors: absent,
  handler: async ({ database }: CronjobContext, { path, principal }) => ({
    kind: 'value',
    value: toCronjobWire(await getCronjob(database.reads, principal, path.jobId)),
  }),
});

/** Does something to a locked cronjob and answers with what it is then. */
async function change(
  { database }: CronjobContext,
  principal: Principal,
  jobId: string,
  work: (tx: Database, cronjob: CronjobRow) => Promise<void>,
) {
  const changed = await database.transaction(async (tx) => {
    await work(tx, await getLockedCronjob(tx, principal, jobId));
    return getCronjob(tx, principal, jobId);
  });
  return { kind: 'value', value: toCronjobWire(changed) } as const;
}

const updateOne = operation({
  method: 'patch',
  path: CRONJOB_PATH,
  operationId: 'updateCronjob',
  demands: ({ body }) => overrideDemands(body.harness),
  scope: 'invoke',
  summary: 'Change a cronjob',
  description: 'One that changes the deployed agent needs the scope `override`, until `harness` is null.',
  ...ofCronjob,
  body: { schema: updateCronjobSchema, required: true, example: { name: 'Evening sums', expectedRevision: 1 } },
  success: oneCronjob,
  errors: { ...absent, 409: 'It has another revision by now.' },
  handler: (context: CronjobContext, { path, body, principal }) =>
    change(context, principal, path.jobId, async (tx, cronjob) => {
      // Another prompt for a changed agent is a changed agent too.
      const kept = body.harness === undefined ? overrideDemands(toHarness(cronjob)) : [];
      for (const demand of kept) requireScope(principal, demand);
      await changeCronjob(tx, cronjob, await withWebhook(tx, context, cronjob, body), context.config);
    }),
});

const deleteOne = operation({
  method: 'delete',
  path: CRONJOB_PATH,
  operationId: 'deleteCronjob',
  scope: 'write',
  summary: 'Delete a cronjob',
  description: 'With its runs; their sessions stay.',
  ...ofCronjob,
  errors: { ...absent, 409: 'A run of it goes on.' },
  handler: async ({ database }: CronjobContext, { path, principal }) => {
    await database.transaction(async (tx) => {
      const cronjob = await getLockedCronjob(tx, principal, path.jobId);
      if (await deleteCronjob(tx, cronjob)) return;
      throw new ConflictError('Stop the active run before deleting this cronjob.');
    });
  },
});

const enableOne = operation({
  method: 'post',
  path: `${CRONJOB_PATH}/enable`,
  operationId: 'enableCronjob',
  scope: 'invoke',
  summary: 'Enable a cronjob',
  description: 'It fires from now on, and its failures are forgotten. One that is enabled stays as it is.',
  ...ofCronjob,
  success: oneCronjob,
  errors: { ...absent, 409: 'It would never fire, or an import brought it with settings that are not allowed.' },
  handler: (context: CronjobContext, { path, principal }) =>
    change(context, principal, path.jobId, (tx, cronjob) => enableCronjob(tx, cronjob, context.config)),
});

const disableOne = operation({
  method: 'post',
  path: `${CRONJOB_PATH}/disable`,
  operationId: 'disableCronjob',
  scope: 'write',
  summary: 'Disable a cronjob',
  description: 'Runs that wait are left out; one that goes on may end. One that is disabled stays as it is.',
  ...ofCronjob,
  success: oneCronjob,
  errors: absent,
  handler: (context: CronjobContext, { path, principal }) => change(context, principal, path.jobId, disableCronjob),
});

const preview = operation({
  method: 'post',
  path: `${LIST_PATH}/preview`,
  operationId: 'previewSchedule',
  scope: 'read',
  summary: 'Preview a schedule',
  description: `Its next ${PREVIEWED_TIMES} times; nothing is stored.`,
  owner: 'caller',
  body: {
    schema: previewSchema,
    required: true,
    example: { schedule: { type: 'cron', cron: '0 8 * * MON#1', timezone: 'Europe/Berlin' } },
  },
  success: {
    schema: previewResultSchema,
    description: 'The times.',
    example: { times: ['2026-01-05T07:00:00.000Z', '2026-02-02T07:00:00.000Z'] },
  },
  handler: async (context: CronjobContext, { body }) => {
    const now = await findTime(context.database.reads);
    const schedule = withAnchor(body.schedule, now);
    const until = toUntil(body.until, schedule);
    checkSchedule(schedule, now, until, context.config);
    const times = getNextTimes(schedule, now, PREVIEWED_TIMES).filter((time) => !until || time < until);
    return { kind: 'value', value: { times: times.map((time) => time.toISOString()) } };
  },
});

/** Cronjobs: create, list, get, change, delete, enable, disable, preview a schedule; and their runs. */
export const cronjobOperations = [
  createCronjob,
  listOfOwner,
  listAll,
  preview,
  getOne,
  updateOne,
  deleteOne,
  enableOne,
  disableOne,
  ...cronjobRunOperations,
];
