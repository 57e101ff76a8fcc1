import type { Response } from 'express';
import type { z } from 'zod';
import { idempotencyHeaders } from '../../../conversation/idempotency/key.ts';
import { once } from '../../../conversation/idempotency/operations.ts';
import { type Call, operation } from '../../../platform/http/operation/operation.ts';
import { evalSetPath } from '../../../platform/http/operation/parameters.ts';
import { compressedAnswer } from './compressed-answer.ts';
import { evalSetNotFound } from '../sets/eval-set-store.ts';
import { exampleCaseResult, caseResultsSchema, runEvalSchema, runResultsSchema } from './eval-run.ts';
import { readResult } from './results.ts';
import { area, DEV_APP_PATH, OLD_SET_PATHS, SET_PATH, type EvalRunContext } from '../sets/context.ts';
import { runErrors, toRunRequest } from './routes.ts';
import { exampleMetrics } from '../metrics/criteria.ts';
import { startRun, waitForRun } from './start-run.ts';

const parameters = { path: evalSetPath, headers: idempotencyHeaders };
const body = { schema: runEvalSchema, required: true, example: { evalMetrics: exampleMetrics } };

const runEvalSet = operation({
  method: 'post',
  path: `${SET_PATH}/run`,
  operationId: 'runEvalSet',
  scope: 'develop',
  area,
  summary: 'Run an evaluation set',
  description: 'Answers when all cases have ended. The run goes on where the client goes away.',
  owner: 'caller',
  parameters,
  body,
  success: {
    schema: runResultsSchema,
    description: 'The results, in an object.',
    example: { runEvalResults: [exampleCaseResult] },
  },
  errors: runErrors,
  absent: evalSetNotFound,
  handler: async (context: EvalRunContext, call) =>
    compressedAnswer(call.request, call.response, {
      runEvalResults: await runAndRead(context, 'runEvalSet', call),
    }),
});

const runEvalSetAsList = operation({
  method: 'post',
  path: `${DEV_APP_PATH}/eval_sets/{eval_set_id}/run_eval`,
  aliases: OLD_SET_PATHS.slice(1).map((path) => `${path}/run_eval`),
  operationId: 'runEvalSetAsList',
  scope: 'develop',
  area,
  summary: 'Run an evaluation set, the answer a bare array',
  owner: 'caller',
  parameters,
  body,
  success: { schema: caseResultsSchema, description: 'The results.', example: [exampleCaseResult] },
  errors: runErrors,
  absent: evalSetNotFound,
  handler: async (context: EvalRunContext, call) =>
    compressedAnswer(call.request, call.response, await runAndRead(context, 'runEvalSetAsList', call)),
});

/** The calls that run a set and wait for the end, as the clients of ADK do. */
export const waitingRunOperations = [runEvalSet, runEvalSetAsList];

type RunCall = Call<
  z.output<typeof evalSetPath>,
  unknown,
  z.output<typeof idempotencyHeaders>,
  z.input<typeof runEvalSchema>
>;

/**
 * Starts a run, waits for its end and reads its results; none for a set without cases. Started once per
 * `Idempotency-Key`, in a transaction of its own: the workers see the run only when that has ended.
 */
async function runAndRead(context: EvalRunContext, operationId: string, call: RunCall): Promise<object[]> {
  const { path, principal, response } = call;
  const start = async (inside: EvalRunContext) =>
    (await startRun(inside, path, toRunRequest(call.body), principal)) ?? '';
  const runId = await once(context, { operationId }, call, start);
  if (runId === '') return [];
  const run = await waitForRun(context, { appName: path.appName, runId }, principal, goneSignal(response));
  return run ? (await readResult(context.database.reads, path.appName, run)).evalCaseResults : [];
}

/** Aborted when the client has gone. */
function goneSignal(response: Response): AbortSignal {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  return gone.signal;
}
