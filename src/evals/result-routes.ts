import { z } from 'zod';
import { jsonObject } from '../core/content.ts';
import { operation } from '../http/operation/operation.ts';
import { appPath, evalResultPath } from '../http/operation/parameters.ts';
import { METRICS_INFO } from './eval-set.ts';
import { findEvalResultText, listEvalResultIds } from './eval-store.ts';
import { area, DEV_APP_PATH, type EvalContext, idsSchema } from './routes-context.ts';

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
});
const metricsInfoSchema = z
  .looseObject({ metricsInfo: z.array(metricSchema).describe('One entry for each metric.') })
  .describe('The metrics of evaluations.');

const exampleResultIds = ['harness_agent_arithmetic_1767225800.5'];

const listEvalResults = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval-results`,
  operationId: 'listEvalResults',
  area,
  summary: 'List evaluation results',
  owner: 'service',
  parameters: { path: appPath },
  success: {
    schema: z.looseObject({ evalResultIds: z.array(z.string()).describe('Sorted by code point.') }),
    description: 'The identifiers, in an object.',
    example: { evalResultIds: exampleResultIds },
  },
  handler: async ({ database }: EvalContext, { path }) => ({
    kind: 'value',
    value: { evalResultIds: await listEvalResultIds(database.reads, path.appName) },
  }),
});

const listEvalResultIdsOperation = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval_results`,
  aliases: ['/apps/{app_name}/eval_results'],
  operationId: 'listEvalResultIds',
  area,
  summary: 'List evaluation results as a bare array',
  owner: 'service',
  parameters: { path: appPath },
  success: { schema: idsSchema, description: 'The identifiers, sorted by code point.', example: exampleResultIds },
  handler: async ({ database }: EvalContext, { path }) => ({
    kind: 'value',
    value: await listEvalResultIds(database.reads, path.appName),
  }),
});

const getEvalResult = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/eval-results/{eval_result_id}`,
  aliases: [`${DEV_APP_PATH}/eval_results/{eval_result_id}`, '/apps/{app_name}/eval_results/{eval_result_id}'],
  operationId: 'getEvalResult',
  area,
  summary: 'Get an evaluation result',
  owner: 'service',
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
  absent: ({ evalResultId }) => `Eval result \`${evalResultId}\` not found.`,
  handler: async ({ database }: EvalContext, { path, notFound }) => {
    const text = await findEvalResultText(database.reads, path.appName, path.evalResultId);
    if (text === undefined) throw notFound();
    return { kind: 'json', text };
  },
});

const getMetricsInfo = operation({
  method: 'get',
  path: `${DEV_APP_PATH}/metrics-info`,
  operationId: 'getMetricsInfo',
  area,
  summary: 'List the metrics of evaluations',
  owner: 'service',
  parameters: { path: appPath },
  success: {
    schema: metricsInfoSchema,
    description: 'Each metric with the interval of its values.',
    example: METRICS_INFO,
  },
  handler: async () => ({ kind: 'value', value: METRICS_INFO }),
});

/** Evaluation results and metrics. */
export const evalResultOperations = [listEvalResults, listEvalResultIdsOperation, getEvalResult, getMetricsInfo];
