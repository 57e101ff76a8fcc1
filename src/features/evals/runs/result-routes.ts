import { z } from 'zod';
import { jsonObject } from '../../../core/content.ts';
import type { Database } from '../../../platform/db/database.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { appPath, evalResultPath } from '../../../platform/http/operation/parameters.ts';
import { compressedAnswer } from './compressed-answer.ts';
import { listMetrics, PLAIN_METRICS } from '../scoring/metrics-info.ts';
import { toResultId } from './result-document.ts';
import { readResult } from './results.ts';
import { listEvalRuns, listResultMoments } from './eval-run-store.ts';
import { requesterOf, area, DEV_APP_PATH, type EvalContext, idsSchema } from '../sets/context.ts';

const evalResultSchema = z
  .looseObject({
    evalSetResultId: z.string().describe('Unique within the application.'),
    evalSetResultName: z.string().nullish().describe('The id as a file name.'),
    evalSetId: z.string().nullish().describe('The set that was run.'),
    evalCaseResults: z.array(jsonObject).nullish().describe('One entry for each run of a case.'),
    creationTimestamp: z.number().nullish().describe('When the run began, Unix seconds.'),
  })
  .describe('What one run of an evaluation set gave.');

const metricSchema = z.looseObject({
  metricName: z.string().describe('What a run asks for it by.'),
  description: z.string().describe('What it measures.'),
  metricValueInfo: z
    .looseObject({
      interval: z
        .looseObject({
          minValue: z.number().describe('Smallest value.'),
          openAtMin: z.boolean().describe('True: the smallest value itself is never reached.'),
          maxValue: z.number().describe('Largest value.'),
          openAtMax: z.boolean().describe('True: the largest value itself is never reached.'),
        })
        .describe('Where its values lie.'),
    })
    .describe('What its values are like.'),
  requiresThreshold: z.boolean().describe('True: without a threshold it is not evaluated.'),
});
const metricsInfoSchema = z
  .looseObject({ metricsInfo: z.array(metricSchema).describe('One entry for each metric.') })
  .describe('The metrics of evaluations.');

const exampleResultIds = ['harness_agent_arithmetic_1767225800.5'];

const listEvalResults = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval-results`,
  operationId: 'listEvalResults',
  load: 'heavy',
  scope: 'develop',
  area,
  summary: 'List evaluation results',
  owner: 'caller',
  parameters: { path: appPath },
  success: {
    schema: z.looseObject({ evalResultIds: z.array(z.string()).describe('Oldest first.') }),
    description: 'The identifiers, in an object.',
    example: { evalResultIds: exampleResultIds },
  },
  handler: async ({ database }: EvalContext, { path, principal }) => ({
    kind: 'value',
    value: { evalResultIds: await listResultIds(database.reads, path.appName, principal) },
  }),
});

const listEvalResultIdsOperation = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval_results`,
  aliases: ['/apps/{app_name}/eval_results'],
  operationId: 'listEvalResultIds',
  scope: 'develop',
  area,
  summary: 'List evaluation results as a bare array',
  owner: 'caller',
  parameters: { path: appPath },
  success: { schema: idsSchema, description: 'The identifiers, oldest first.', example: exampleResultIds },
  handler: async ({ database }: EvalContext, { path, principal }) => ({
    kind: 'value',
    value: await listResultIds(database.reads, path.appName, principal),
  }),
});

const getEvalResult = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval-results/{eval_result_id}`,
  aliases: [`${DEV_APP_PATH}/eval_results/{eval_result_id}`, '/apps/{app_name}/eval_results/{eval_result_id}'],
  operationId: 'getEvalResult',
  load: 'heavy',
  scope: 'develop',
  area,
  summary: 'Get an evaluation result',
  owner: 'caller',
  parameters: { path: evalResultPath },
  success: {
    schema: evalResultSchema,
    description: 'The result.',
    example: {
      evalSetResultId: 'harness_agent_arithmetic_1767225800.5',
      evalSetResultName: 'harness_agent_arithmetic_1767225800.5',
      evalSetId: 'arithmetic',
      evalCaseResults: [],
      creationTimestamp: 1_767_225_800.5,
    },
  },
  errors: { 404: 'No such result.' },
  absent: ({ evalResultId }) => `Eval set result \`${evalResultId}\` not found.`,
  handler: async ({ database }: EvalContext, { path, principal, request, response, notFound }) => {
    const { appName, evalResultId } = path;
    const resultMicroseconds = microsecondsOf(evalResultId);
    if (resultMicroseconds === undefined) throw notFound();
    const filter = { appName, requestedBy: requesterOf(principal), resultMicroseconds };
    const [run] = await listEvalRuns(database.reads, filter);
    const named = run && toResultId(appName, run.evalSetId, resultMicroseconds);
    if (!run || ![named?.evalSetResultId, named?.evalSetResultName].includes(evalResultId)) throw notFound();
    return compressedAnswer(request, response, await readResult(database.reads, appName, run));
  },
});

const getMetricsInfo = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/metrics-info`,
  operationId: 'getMetricsInfo',
  scope: 'develop',
  area,
  summary: 'List the metrics of evaluations',
  owner: 'service',
  parameters: { path: appPath },
  success: {
    schema: metricsInfoSchema,
    description: 'Each metric with the interval of its values.',
    example: { metricsInfo: PLAIN_METRICS },
  },
  handler: async ({ agents }: EvalContext, { path }) => ({
    kind: 'value',
    value: { metricsInfo: await listMetrics(agents, path.appName) },
  }),
});

/** Evaluation results and metrics. */
export const evalResultOperations = [listEvalResults, listEvalResultIdsOperation, getEvalResult, getMetricsInfo];

async function listResultIds(db: Database, appName: string, principal: Principal): Promise<string[]> {
  const moments = await listResultMoments(db, { appName, requestedBy: requesterOf(principal) });
  return moments.map(
    ({ evalSetId, resultMicroseconds }) => toResultId(appName, evalSetId, resultMicroseconds).evalSetResultId,
  );
}

/** The moment at the end of the id of a result. */
function microsecondsOf(evalResultId: string): number | undefined {
  const [, seconds] = /_(\d{1,10}\.\d{1,6})$/.exec(evalResultId) ?? [];
  return seconds === undefined ? undefined : Math.round(Number(seconds) * 1_000_000);
}
