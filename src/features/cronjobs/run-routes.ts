import { ConflictError } from '../../core/errors.ts';
import { area } from '../../platform/http/operation/area.ts';
import { pageQuery, readPage } from '../../platform/http/operation/cursor.ts';
import { cronjobPath, cronjobRunPath } from '../../platform/http/operation/parameters.ts';
import { visibleTo } from '../../platform/http/operation/principal.ts';
import { CRONJOB_EXAMPLE, cronjobRunPageSchema, cronjobRunSchema, cronjobSchema, RUN_EXAMPLE } from './cronjob.ts';
import { type CronjobContext, cronjobNotFound, getCronjob, toRunWire } from './cronjob-view.ts';
import { requestCancelOfRun } from '../../invocations/cancel.ts';
import { findRun, listRuns, queueManualRun } from './run-store.ts';

/** Number of open runs of a cronjob at which a manual run is refused. */
const MAX_OPEN_RUNS = 100;

export const room = area<CronjobContext>('Harness cronjobs', {
  read: 'read',
  write: 'write',
  owner: 'caller',
  isIdempotent: true,
});

/**
 * The resource has no `find` (loading before the handler), because each change finds and locks the row in its
 * transaction.
 */
export const cronjob = room.resource({
  noun: 'cronjob',
  path: '/harness/cronjobs',
  key: cronjobPath,
  schema: cronjobSchema,
  example: CRONJOB_EXAMPLE,
});

// The resource has no `find` (loading before the handler), because a cancellation finds the cronjob in its transaction.
const run = room.resource({
  noun: 'cronjob run',
  plural: 'runs',
  id: 'CronjobRun',
  path: `${cronjob.onePath}/runs`,
  within: cronjobPath,
  key: cronjobRunPath,
  schema: cronjobRunSchema,
  example: RUN_EXAMPLE,
});

const errors = { 404: 'No such cronjob or run.' };

export const cronjobRunOperations = [
  cronjob.action('run')({
    operationId: 'runCronjob',
    scope: 'invoke',
    summary: 'Run a cronjob now',
    description: 'Its schedule stays. The run waits for one that goes on, whatever `overlap` says.',
    success: { schema: cronjobRunSchema, description: 'The run.', example: RUN_EXAMPLE, status: 202 },
    errors: { 409: 'It is disabled, or too many of its runs wait.' },
    run: async ({ database: { db }, newId }, { path, principal }) => {
      const userId = visibleTo(principal);
      const { refusal, run: manualRun } = await queueManualRun(db, path.jobId, userId, newId(), MAX_OPEN_RUNS);
      if (refusal === 'absent') throw cronjobNotFound(path.jobId);
      if (refusal === 'disabled') throw new ConflictError('Enable this cronjob before running it.');
      if (refusal === 'full') throw new ConflictError(`${MAX_OPEN_RUNS} runs of this cronjob wait already.`);
      if (refusal === 'taken')
        throw new ConflictError('Another run was requested in this very millisecond. Try again.');
      return toRunWire(manualRun);
    },
  }),
  run.list({
    load: 'heavy',
    summary: 'List the runs of a cronjob',
    description: 'Newest due time first; fewer where outputs are large.',
    query: pageQuery('runs'),
    success: { schema: cronjobRunPageSchema, example: { items: [RUN_EXAMPLE] } },
    errors: { 404: 'No such cronjob.' },
    run: async ({ database: { reads } }, { path, query, principal }) => {
      const { cronjob: row } = await getCronjob(reads, principal, path.jobId);
      return readPage(query, (limit, after) => listRuns(reads, row, limit, after), toRunWire);
    },
  }),
  run.read({
    summary: 'Get a run of a cronjob',
    success: { description: 'The run.' },
    errors,
    run: async ({ database: { reads } }, { path, principal, notFound }) => {
      const { cronjob: row } = await getCronjob(reads, principal, path.jobId);
      const runRow = await findRun(reads, row, path.runId);
      if (!runRow) throw notFound();
      return toRunWire(runRow);
    },
  }),
  run.action('cancel')({
    operationId: 'cancelCronjobRun',
    scope: 'invoke',
    summary: 'Cancel a run of a cronjob',
    description: 'On whatever replica it goes on. One that has ended stays as it is; its agents in the background end.',
    success: { description: 'The run; one that goes on may take a moment to end.' },
    errors,
    run: async ({ database, notifications }, { path, principal, notFound }) => {
      const { cronjob: row } = await getCronjob(database.db, principal, path.jobId);
      await requestCancelOfRun({ database, notifications }, row, path.runId);
      const cancelled = await findRun(database.db, row, path.runId);
      if (!cancelled) throw notFound();
      return toRunWire(cancelled);
    },
  }),
];
