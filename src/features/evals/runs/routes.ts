import { z } from 'zod';
import { ConflictError, InvalidError, NotFoundError } from '../../../core/errors.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { appPath, evalRunPath, pageSize } from '../../../platform/http/operation/parameters.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { sumOfCosts } from '../scoring/cost.ts';
import {
  exampleCaseSummary,
  exampleRun,
  evalRunSchema,
  runSummarySchema,
  startRunSchema,
  CANCEL_TOPIC,
  runTopic,
  type EvalRun,
  type EvalRunKey,
} from './eval-run.ts';
import { toResultId } from './result-document.ts';
import { evalOperation, DEV_APP_PATH, type EvalContext, getRequester } from '../sets/context.ts';
import { cancelEvalRun, listEvalRuns } from './eval-run-store.ts';
import { findRun, followRun, startRun } from './start-run.ts';
import { compareWith, summarizeRun } from './summary.ts';
import { exampleMetrics } from '../metrics/criteria.ts';

const RUNS_PATH = `${DEV_APP_PATH}/eval-runs`;
export const RUN_PATH = `${RUNS_PATH}/{run_id}`;

export const runErrors = {
  400: 'A case is of another application, or the run is too large.',
  404: 'No such set, or it has no such case.',
  409: 'Too many runs have not ended, or the run was cancelled.',
  503: 'This process stops; the run goes on in another one.',
};
const oneRun = { schema: evalRunSchema, description: 'The run.', example: exampleRun };
const runNotFound = ({ runId }: { runId: string }) => `Eval run \`${runId}\` not found.`;

export const ofRun = {
  parameters: { path: evalRunPath },
  errors: { 404: 'No such run.' },
  absent: runNotFound,
};

const startEvalRun = evalOperation({
  method: 'post',
  path: RUNS_PATH,
  operationId: 'startEvalRun',
  summary: 'Start an evaluation run',
  description: 'A client need not wait for it: it is stored, and survives the end of any process.',
  parameters: { path: appPath },
  body: { schema: startRunSchema, required: true, example: { evalSetId: 'arithmetic', evalMetrics: exampleMetrics } },
  success: { ...oneRun, status: 202 },
  errors: { 400: 'There is nothing to run, or too much.', 404: runErrors[404], 409: runErrors[409] },
  handler: async (context, { path: { appName }, body, principal }) => {
    const runId = await startRun(context, { appName, evalSetId: body.evalSetId }, body, principal);
    if (runId === undefined) throw new InvalidError(`Eval set \`${body.evalSetId}\` has no cases.`);
    const run = await existing(context, { appName, runId }, principal);
    return { kind: 'value', status: 202, value: toWire(appName, run) };
  },
});

const listAll = evalOperation({
  method: 'get',
  path: RUNS_PATH,
  operationId: 'listEvalRuns',
  summary: 'List evaluation runs',
  description: 'Newest first.',
  parameters: {
    path: appPath,
    query: z.object({
      evalSetId: z.string().max(256).optional().describe('Only runs of this set.'),
      limit: pageSize('Maximum number of runs.').default(100),
    }),
  },
  success: { schema: z.array(evalRunSchema), description: 'The runs.', example: [exampleRun] },
  handler: async ({ database }, { path: { appName }, query, principal }) => {
    const runs = await listEvalRuns(database.reads, { appName, requestedBy: getRequester(principal), ...query });
    return { kind: 'value', value: runs.map((run) => toWire(appName, run)) };
  },
});

const getOne = evalOperation({
  method: 'get',
  path: RUN_PATH,
  operationId: 'getEvalRun',
  summary: 'Get an evaluation run',
  ...ofRun,
  success: oneRun,
  handler: async (context, { path, principal }) => ({
    kind: 'value',
    value: toWire(path.appName, await existing(context, path, principal)),
  }),
});

const followOne = evalOperation({
  method: 'get',
  path: `${RUN_PATH}/stream`,
  operationId: 'streamEvalRun',
  summary: 'Follow an evaluation run',
  isStream: true,
  description: 'Server-sent events: the run as it stands, and again after each change until it has ended.',
  ...ofRun,
  success: {
    schema: z.string(),
    description: 'Runs.',
    example: `data: ${JSON.stringify(exampleRun)}\n\n`,
    mediaType: 'text/event-stream',
  },
  handler: async (context, { path, principal, response }) => {
    await existing(context, path, principal);
    const stream = openEventStream(response, { comments: true });
    const signal = AbortSignal.any([stream.signal, context.draining]);
    for await (const run of followRun(context, path, principal, signal)) {
      await stream.send(JSON.stringify(toWire(path.appName, run)));
    }
    stream.end();
    return { kind: 'sent' };
  },
});

const cancelOne = evalOperation({
  method: 'delete',
  path: RUN_PATH,
  operationId: 'cancelEvalRun',
  summary: 'Cancel an evaluation run',
  description:
    'Cases that have not ended are cancelled, on whatever replica they run. One that has ended stays as it is.',
  ...ofRun,
  success: oneRun,
  handler: async (context, { path, principal }) => {
    await existing(context, path, principal);
    await cancelEvalRun(context.database.db, path);
    context.notifications.publish(CANCEL_TOPIC);
    context.notifications.publish(runTopic(path.runId));
    return { kind: 'value', value: toWire(path.appName, await existing(context, path, principal)) };
  },
});

const summarizeOne = evalOperation({
  method: 'get',
  path: `${RUN_PATH}/summary`,
  operationId: 'summarizeEvalRun',
  load: 'heavy',
  summary: 'Summarize an evaluation run',
  description: 'Pass rates of its cases over their trials, and what changed since an earlier run.',
  ...ofRun,
  errors: { ...ofRun.errors, 409: 'One of two runs to compare has not ended.' },
  parameters: {
    path: evalRunPath,
    query: z.object({ baseline: z.string().max(256).optional().describe('An earlier run to compare with.') }),
  },
  success: { schema: runSummarySchema, description: 'The summary.', example: { cases: [exampleCaseSummary] } },
  handler: async (context, { path, query, principal }) => {
    const { reads } = context.database;
    await existing(context, path, principal);
    const cases = await summarizeRun(reads, path);
    const cost = sumOfCosts(cases.map((one) => one.cost));
    const summary = { cases, ...(cost === undefined ? {} : { cost }) };
    if (query.baseline === undefined) return { kind: 'value', value: summary };
    const baseline = { appName: path.appName, runId: query.baseline };
    for (const key of [path, baseline]) {
      const { endTime } = await existing(context, key, principal);
      if (endTime === null) throw new ConflictError(`Eval run \`${key.runId}\` has not ended: compare it when it has.`);
    }
    return { kind: 'value', value: { ...summary, comparison: await compareWith(reads, path, baseline) } };
  },
});

export const evalRunOperations = [startEvalRun, listAll, getOne, followOne, cancelOne, summarizeOne];

/** @throws {NotFoundError} if the run does not exist or the caller may not see it. */
export async function existing(context: EvalContext, key: EvalRunKey, principal: Principal): Promise<EvalRun> {
  const run = await findRun(context, key, principal);
  if (!run) throw new NotFoundError(runNotFound(key));
  return run;
}

export function toWire(appName: string, evalRun: EvalRun) {
  const { metrics, resultMicroseconds, userSimulator, endTime, judgedRunId, ...run } = evalRun;
  return {
    ...run,
    evalMetrics: metrics,
    evalSetResultId: toResultId(appName, run.evalSetId, resultMicroseconds).evalSetResultId,
    ...(userSimulator == null ? {} : { userSimulatorConfig: userSimulator }),
    ...(endTime === null ? {} : { endTime }),
    ...(judgedRunId === null ? {} : { judgedRunId }),
  };
}
