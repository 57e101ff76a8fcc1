import { ConflictError, NotFoundError } from '../../core/errors.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { cronjobPath, cronjobRunPath } from '../../platform/http/operation/parameters.ts';
import { cronjobRunPageSchema, cronjobRunSchema, RUN_EXAMPLE } from './cronjob.ts';
import { findTime } from './cronjob-store.ts';
import { type CronjobContext, getCronjob, getLockedCronjob, toRunWire } from './cronjob-view.ts';
import { cancelRun, countActiveRuns, findRun, insertManualRun, listRuns } from './run-store.ts';

/** The path of one cronjob. */
export const CRONJOB_PATH = '/harness/cronjobs/{job_id}';
const LIST_PATH = `${CRONJOB_PATH}/runs`;
const ONE_PATH = `${LIST_PATH}/{run_id}`;
/** Members of every operation on one cronjob. */
export const ofCronjob = { owner: 'caller', parameters: { path: cronjobPath } } as const;
/** Runs of one cronjob that may wait when another one is asked for. */
const MAX_ACTIVE_RUNS = 100;

const oneRun = { schema: cronjobRunSchema, description: 'The run.', example: RUN_EXAMPLE };
const runNotFound = (runId: string) => new NotFoundError(`Cronjob run not found: ${runId}`);

const runNow = operation({
  method: 'post',
  path: `${CRONJOB_PATH}/run`,
  operationId: 'runCronjob',
  scope: 'invoke',
  summary: 'Run a cronjob now',
  description: 'Its schedule stays. The run waits for one that goes on, whatever `overlap` says.',
  ...ofCronjob,
  success: { ...oneRun, status: 202 },
  errors: { 404: 'No such cronjob.', 409: 'It is disabled, or too many of its runs wait.' },
  handler: async ({ database, newId }: CronjobContext, { path, principal }) => {
    const run = await database.transaction(async (tx) => {
      const cronjob = await getLockedCronjob(tx, principal, path.jobId);
      if (!cronjob.enabled) throw new ConflictError('Enable this cronjob before running it.');
      if ((await countActiveRuns(tx, cronjob)) >= MAX_ACTIVE_RUNS)
        throw new ConflictError(`${MAX_ACTIVE_RUNS} runs of this cronjob wait already.`);
      return insertManualRun(tx, cronjob, newId(), await findTime(tx));
    });
    if (!run) throw new ConflictError('Another run was requested in this very millisecond. Try again.');
    return { kind: 'value', value: toRunWire(run) };
  },
});

const listAll = operation({
  method: 'get',
  path: LIST_PATH,
  operationId: 'listCronjobRuns',
  load: 'heavy',
  scope: 'read',
  summary: 'List the runs of a cronjob',
  description: 'Newest due time first; fewer where outputs are large.',
  owner: 'caller',
  parameters: { path: cronjobPath, query: pageQuery('runs') },
  success: { schema: cronjobRunPageSchema, description: 'The runs.', example: { items: [RUN_EXAMPLE] } },
  errors: { 404: 'No such cronjob.' },
  handler: async ({ database }: CronjobContext, { path, query, principal }) => {
    const { cronjob } = await getCronjob(database.reads, principal, path.jobId);
    const found = await listRuns(database.reads, cronjob, query.limit + 1, toPlace(query.cursor));
    return { kind: 'value', value: toPage(found, query.limit, toRunWire) };
  },
});

const getOne = operation({
  method: 'get',
  path: ONE_PATH,
  operationId: 'getCronjobRun',
  scope: 'read',
  summary: 'Get a run of a cronjob',
  owner: 'caller',
  parameters: { path: cronjobRunPath },
  success: oneRun,
  errors: { 404: 'No such cronjob or run.' },
  handler: async ({ database }: CronjobContext, { path, principal }) => {
    const { cronjob } = await getCronjob(database.reads, principal, path.jobId);
    const run = await findRun(database.reads, cronjob, path.runId);
    if (!run) throw runNotFound(path.runId);
    return { kind: 'value', value: toRunWire(run) };
  },
});

const cancelOne = operation({
  method: 'post',
  path: `${ONE_PATH}/cancel`,
  operationId: 'cancelCronjobRun',
  scope: 'invoke',
  summary: 'Cancel a run of a cronjob',
  description: 'On whatever replica it goes on. One that has ended stays as it is.',
  owner: 'caller',
  parameters: { path: cronjobRunPath },
  success: { ...oneRun, description: 'The run; one that goes on may take a moment to end.' },
  errors: { 404: 'No such cronjob or run.' },
  handler: async ({ database }: CronjobContext, { path, principal }) => {
    const run = await database.transaction(async (tx) => {
      const { cronjob } = await getCronjob(tx, principal, path.jobId);
      await cancelRun(tx, cronjob, path.runId);
      return findRun(tx, cronjob, path.runId);
    });
    if (!run) throw runNotFound(path.runId);
    return { kind: 'value', value: toRunWire(run) };
  },
});

/** The runs of cronjobs: run now, list, get, cancel. */
export const cronjobRunOperations = [runNow, listAll, getOne, cancelOne];
