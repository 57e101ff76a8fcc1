import { z } from 'zod';
import { ConflictError, InvalidError } from '../../../core/errors.ts';
import { appPath, evalRunPath, pageSize } from '../../../platform/http/operation/parameters.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { requestStopOfSteps } from '../../../invocations/invocation-store.ts';
import { EVALUATION_JOB, stopTopic } from '../../../core/names.ts';
import { sumOfCosts } from '../scoring/score.ts';
import {
  exampleCaseSummary,
  exampleRun,
  evalRunSchema,
  runSummarySchema,
  startRunSchema,
  CANCEL_TOPIC,
  type EvalRun,
} from './eval-run.ts';
import { toResultId } from './result-document.ts';
import { DEV_APP_PATH, getRequester, room } from '../sets/context.ts';
import { cancelEvalRun, listEvalRuns } from './eval-run-store.ts';
import { findRun, followRun, startRun } from './start-run.ts';
import { compareWith, summarizeRun } from './summary.ts';
import { exampleMetrics } from '../metrics/criteria.ts';

export const runErrors = {
  400: 'A case is of another application, or the run is too large.',
  404: 'No such set, or it has no such case.',
  409: 'Too many runs have not ended, or the run was cancelled.',
  503: 'This process stops; the run goes on in another one.',
};

export const evalRun = room.resource({
  noun: 'run',
  id: 'EvalRun',
  path: `${DEV_APP_PATH}/eval-runs`,
  within: appPath,
  key: evalRunPath,
  schema: evalRunSchema,
  example: exampleRun,
  absent: ({ runId }) => `Eval run \`${runId}\` not found.`,
  find: findRun,
});

export const evalRunOperations = [
  evalRun.create({
    operationId: 'startEvalRun',
    summary: 'Start an evaluation run',
    description: 'A client need not wait for it: it is stored, and survives the end of any process.',
    body: { schema: startRunSchema, example: { evalSetId: 'arithmetic', evalMetrics: exampleMetrics } },
    success: { status: 202 },
    errors: { 400: 'There is nothing to run, or too much.', 404: runErrors[404], 409: runErrors[409] },
    run: async (context, { path: { appName }, body, principal }) => {
      const runId = await startRun(context, { appName, evalSetId: body.evalSetId }, body, principal);
      if (runId === undefined) throw new InvalidError(`Eval set \`${body.evalSetId}\` has no cases.`);
      const path = { appName, runId };
      return toWire(appName, await evalRun.get(context.database.db, { path, principal }));
    },
  }),
  evalRun.list({
    summary: 'List evaluation runs',
    description: 'Newest first.',
    query: z.object({
      evalSetId: z.string().max(256).optional().describe('Only runs of this set.'),
      limit: pageSize('Maximum number of runs.').default(100),
    }),
    run: async ({ database }, { path: { appName }, query, principal }) => {
      const runs = await listEvalRuns(database.reads, { appName, requestedBy: getRequester(principal), ...query });
      return runs.map((run) => toWire(appName, run));
    },
  }),
  evalRun.read({
    summary: 'Get an evaluation run',
    run: async (_context, { path }, run) => toWire(path.appName, run),
  }),
  evalRun.action('stream')({
    method: 'get',
    operationId: 'streamEvalRun',
    summary: 'Follow an evaluation run',
    isStream: true,
    description: 'Server-sent events: the run as it stands, and again after each change until it has ended.',
    success: {
      schema: z.string(),
      description: 'Runs.',
      example: `data: ${JSON.stringify(exampleRun)}\n\n`,
      mediaType: 'text/event-stream',
    },
    handler: async (context, { path, principal, response }) => {
      const stream = openEventStream(response, { comments: true });
      const signal = AbortSignal.any([stream.signal, context.draining]);
      for await (const run of followRun(context, path, principal, signal)) {
        await stream.send(JSON.stringify(toWire(path.appName, run)));
      }
      stream.end();
      return { kind: 'sent' };
    },
  }),
  evalRun.remove({
    operationId: 'cancelEvalRun',
    summary: 'Cancel an evaluation run',
    description:
      'Cases that have not ended are cancelled, on whatever replica they run. One that has ended stays as it is.',
    success: {},
    run: async ({ database: { db }, notifications }, call) => {
      const openCases = await cancelEvalRun(db, call.path);
      notifications.publish(CANCEL_TOPIC);
      for (const invocationId of await requestStopOfSteps(db, EVALUATION_JOB, openCases))
        notifications.publish(stopTopic(invocationId));
      return toWire(call.path.appName, await evalRun.get(db, call));
    },
  }),
  evalRun.action('summary')({
    method: 'get',
    operationId: 'summarizeEvalRun',
    load: 'heavy',
    summary: 'Summarize an evaluation run',
    description: 'Pass rates of its cases over their trials, and what changed since an earlier run.',
    errors: { 409: 'One of two runs to compare has not ended.' },
    query: z.object({ baseline: z.string().max(256).optional().describe('An earlier run to compare with.') }),
    success: { schema: runSummarySchema, description: 'The summary.', example: { cases: [exampleCaseSummary] } },
    run: async ({ database: { reads } }, { path, query, principal }) => {
      const cases = await summarizeRun(reads, path);
      const cost = sumOfCosts(cases.map((one) => one.cost));
      const summary = { cases, ...(cost === undefined ? {} : { cost }) };
      if (query.baseline === undefined) return summary;
      const baseline = { appName: path.appName, runId: query.baseline };
      for (const key of [path, baseline]) {
        const { endTime } = await evalRun.get(reads, { path: key, principal });
        if (endTime === null)
          throw new ConflictError(`Eval run \`${key.runId}\` has not ended: compare it when it has.`);
      }
      return { ...summary, comparison: await compareWith(reads, path, baseline) };
    },
  }),
];

export function toWire(appName: string, found: EvalRun) {
  const { metrics, resultMicroseconds, userSimulator, endTime, judgedRunId, ...run } = found;
  return {
    ...run,
    evalMetrics: metrics,
    evalSetResultId: toResultId(appName, run.evalSetId, resultMicroseconds).evalSetResultId,
    ...(userSimulator == null ? {} : { userSimulatorConfig: userSimulator }),
    ...(endTime === null ? {} : { endTime }),
    ...(judgedRunId === null ? {} : { judgedRunId }),
  };
}
