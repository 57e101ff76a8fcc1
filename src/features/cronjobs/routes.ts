import type { z } from 'zod';
import { ConflictError } from '../../core/errors.ts';
import { refuseChildSession } from '../../conversation/sessions/session-row.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { Database } from '../../platform/db/database.ts';
import { requireScope } from '../../platform/http/access/authorize.ts';
import { area } from '../../platform/http/operation/area.ts';
import { pageQuery, readPage } from '../../platform/http/operation/cursor.ts';
import { overrideDemands } from '../../platform/http/operation/demands.ts';
import { ownerQuery } from '../../platform/http/operation/parameters.ts';
import { type Principal, requireOwner } from '../../platform/http/operation/principal.ts';
import { changeCronjob, disableCronjob, enableCronjob, requireTimes, toNewCronjob, toUntil } from './change-cronjob.ts';
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
import { cronjob, cronjobRunOperations, room } from './run-routes.ts';
import { withAnchor } from './schedule.ts';
import { requireWebhook } from '../../invocations/webhooks/address.ts';

const PREVIEWED_TIMES = 10;

/** Operations on all users' cronjobs are separate, because they require the scope `admin`. */
const everyCronjob = area<CronjobContext>('Harness cronjobs', {
  read: 'admin',
  write: 'admin',
  owner: 'service',
  isForKeys: true,
}).resource({
  noun: 'cronjob',
  id: 'AllCronjob',
  path: '/cronjobs',
  schema: cronjobSchema,
  example: CRONJOB_EXAMPLE,
});

/** Replaces a webhook's URL by its registered spelling. @throws {ValidationFailedError} if none is registered */
async function withWebhook<Body extends { webhookUrl?: string | null | undefined }>(
  tx: Database,
  { config }: CronjobContext,
  user: { appName: string; userId: string },
  body: Body,
): Promise<Body> {
  const webhookUrl = await requireWebhook(tx, config, user, body.webhookUrl);
  return webhookUrl === undefined ? body : { ...body, webhookUrl };
}

const cronjobsQuery = pageQuery('cronjobs');
const onePage = { schema: cronjobPageSchema, example: { items: [CRONJOB_EXAMPLE] } };

const listPage = ({ database }: CronjobContext, userId: string | undefined, query: z.output<typeof cronjobsQuery>) =>
  readPage(query, (limit, after) => listCronjobs(database.reads, userId, limit, after), toCronjobWire);

async function change(
  { database }: CronjobContext,
  { principal, path: { jobId } }: { principal: Principal; path: { jobId: string } },
  work: (tx: Database, row: CronjobRow) => Promise<void>,
) {
  const changed = await database.transaction(async (tx) => {
    await work(tx, await getLockedCronjob(tx, principal, jobId));
    return getCronjob(tx, principal, jobId);
  });
  return toCronjobWire(changed);
}

const preview = room.operation({
  method: 'post',
  path: '/harness/cronjobs/preview',
  operationId: 'previewSchedule',
  scope: 'read',
  summary: 'Preview a schedule',
  description: `Its next ${PREVIEWED_TIMES} times; nothing is stored.`,
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
  handler: async (context, { body }) => {
    const now = await findTime(context.database.reads);
    const schedule = withAnchor(body.schedule, now);
    const until = toUntil(body.until, schedule);
    const next = requireTimes(schedule, now, until, context.config).slice(0, PREVIEWED_TIMES);
    const times = next.filter((time) => !until || time < until);
    return { kind: 'value', value: { times: times.map((time) => time.toISOString()) } };
  },
});

export const cronjobOperations = [
  cronjob.create({
    scope: 'invoke',
    description: 'It is its owner’s: it runs until it is disabled or deleted, also where the key that made it is gone.',
    demands: ({ body }) => overrideDemands(body.harness),
    body: {
      schema: createCronjobSchema,
      aliases: { userId: 'ownerId', user_id: 'ownerId' },
      example: {
        ownerId: 'u1',
        name: CRONJOB_EXAMPLE.name ?? '',
        prompt: CRONJOB_EXAMPLE.prompt ?? '',
        schedule: { type: 'daily', time: '08:00', timezone: 'Europe/Berlin' },
      },
    },
    errors: { 404: 'No such application.', 409: 'The user has as many cronjobs as CRONJOBS_MAX_PER_USER allows.' },
    run: async (context, { body, principal }) => {
      const userId = requireOwner(principal, body.ownerId, 'body');
      const appName = body.appName ?? HARNESS_APP;
      const newCronjob = await context.database.transaction(async (tx) => {
        const key = { id: context.newId(), userId, now: await findTime(tx) };
        const settings = await withWebhook(tx, context, { appName, userId }, body);
        const made = toNewCronjob(settings, key, context.config);
        const { sessionId } = made;
        if (sessionId != null) await refuseChildSession(tx, { appName, userId, sessionId });
        return insertCronjob(tx, made, context.config.CRONJOBS_MAX_PER_USER);
      });
      return toCronjobWire({ cronjob: newCronjob, latestRun: null });
    },
  }),
  cronjob.list({
    load: 'heavy',
    description: 'Of one user, over all applications, newest first; fewer where texts are large.',
    query: cronjobsQuery.extend(ownerQuery.shape),
    success: onePage,
    run: (context, { query, principal }) => listPage(context, requireOwner(principal, query.ownerId, 'query'), query),
  }),
  everyCronjob.list({
    load: 'heavy',
    summary: 'List the cronjobs of all users',
    description: 'Over all applications, in the order of their ids; fewer where texts are large. For operators.',
    query: cronjobsQuery,
    success: onePage,
    run: (context, { query }) => listPage(context, undefined, query),
  }),
  preview,
  cronjob.read({
    run: async ({ database }, { path, principal }) =>
      toCronjobWire(await getCronjob(database.reads, principal, path.jobId)),
  }),
  cronjob.change({
    scope: 'invoke',
    description: 'One that changes the deployed agent needs the scope `override`, until `harness` is null.',
    demands: ({ body }) => overrideDemands(body.harness),
    body: { schema: updateCronjobSchema, example: { name: 'Evening sums', expectedRevision: 1 } },
    errors: { 409: 'It has another revision by now.' },
    run: (context, call) =>
      change(context, call, async (tx, row) => {
        // The prompt of a cronjob that overrides the agent may be changed only with the scopes of these overrides.
        const demands = call.body.harness === undefined ? overrideDemands(toHarness(row)) : [];
        for (const demand of demands) requireScope(call.principal, demand);
        await changeCronjob(tx, row, await withWebhook(tx, context, row, call.body), context.config);
      }),
  }),
  cronjob.remove({
    description: 'With its runs; their sessions stay.',
    errors: { 409: 'A run of it goes on.' },
    run: ({ database }, { path, principal }) =>
      database.transaction(async (tx) => {
        if (await deleteCronjob(tx, await getLockedCronjob(tx, principal, path.jobId))) return;
        throw new ConflictError('Stop the active run before deleting this cronjob.');
      }),
  }),
  cronjob.action('enable')({
    operationId: 'enableCronjob',
    scope: 'invoke',
    summary: 'Enable a cronjob',
    description: 'It fires from now on, and its failures are forgotten. One that is enabled stays as it is.',
    errors: { 409: 'It would never fire, or an import brought it with settings that are not allowed.' },
    run: (context, call) => change(context, call, (tx, row) => enableCronjob(tx, row, context.config)),
  }),
  cronjob.action('disable')({
    operationId: 'disableCronjob',
    summary: 'Disable a cronjob',
    description: 'Runs that wait are left out; one that goes on may end. One that is disabled stays as it is.',
    run: (context, call) => change(context, call, disableCronjob),
  }),
  ...cronjobRunOperations,
];
