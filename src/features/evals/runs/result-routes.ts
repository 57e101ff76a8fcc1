import { z } from 'zod';
import { jsonObject } from '../../../core/content.ts';
import type { Database } from '../../../platform/db/database.ts';
import { NEXT_CURSOR_HEADER, nextCursorHeader, pageQuery, readPage } from '../../../platform/http/operation/cursor.ts';
import { appPath, evalResultPath, type evalSetPath } from '../../../platform/http/operation/parameters.ts';
import { toResultId, readResult } from './result-document.ts';
import { listEvalRuns, listResultMoments } from './eval-run-store.ts';
import { DEV_APP_PATH, type EvalContext, evalSet, getRequester, room, toDisconnectSignal } from '../sets/context.ts';
import type { Response, Request } from 'express';
import { idempotencyHeaders, once } from '../../../conversation/idempotency/idempotency.ts';
import type { Call, Answer } from '../../../platform/http/operation/operation.ts';
import { exampleCaseResult, runEvalSchema, runResultsSchema } from './eval-run.ts';
import { runErrors } from './routes.ts';
import { type EvalMetric, exampleMetrics } from '../metrics/criteria.ts';
import { startRun, waitForRun } from './start-run.ts';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip } from 'node:zlib';
import type { JsonStream } from '../../../platform/json-stream.ts';
import { streamList } from '../sets/bounds.ts';
import { looseObject } from '../../../core/members.ts';

const evalResultSchema = looseObject('What one run of an evaluation set gave.', {
  evalSetResultId: z.string().describe('Unique within the application.'),
  evalSetResultName: z.string().nullish().describe('The id as a file name.'),
  evalSetId: z.string().nullish().describe('The set that was run.'),
  evalCaseResults: z.array(jsonObject).nullish().describe('One entry for each run of a case.'),
  creationTimestamp: z.number().nullish().describe('When the run began, Unix seconds.'),
});

export const exampleResultIds = ['harness_agent_arithmetic_1767225800.5'];

export const evalResult = room.resource({
  noun: 'result',
  id: 'EvalResult',
  path: `${DEV_APP_PATH}/eval-results`,
  within: appPath,
  key: evalResultPath,
  schema: evalResultSchema,
  example: {
    evalSetResultId: 'harness_agent_arithmetic_1767225800.5',
    evalSetResultName: 'harness_agent_arithmetic_1767225800.5',
    evalSetId: 'arithmetic',
    evalCaseResults: [],
    creationTimestamp: 1_767_225_800.5,
  },
  absent: ({ evalResultId }) => `Eval set result \`${evalResultId}\` not found.`,
});

const resultsQuery = pageQuery('results');
export const ofResultList = {
  description:
    'Newest last. The clients of ADK, of which its Web UI then reads each one, get the last 100; the header ' +
    '`X-Next-Cursor` is the `cursor` of those before.',
  query: resultsQuery,
};

type ListCall = Call<z.output<typeof appPath>, z.output<typeof resultsQuery>, unknown, unknown>;

/** Reads a page with the ids of the caller's results. */
export async function readResultIds(
  db: Database,
  { path: { appName }, query, principal, response }: ListCall,
): Promise<string[]> {
  const requestedBy = getRequester(principal);
  const { items, nextCursor } = await readPage(
    query,
    (limit, after) => listResultMoments(db, { appName, requestedBy, after, limit }),
    ({ evalSetId, resultMicroseconds }) => toResultId(appName, evalSetId, resultMicroseconds).evalSetResultId,
  );
  if (nextCursor) response.setHeader(NEXT_CURSOR_HEADER, nextCursor);
  return items.toReversed();
}

/** Parses the time at the end of a result's id. */
function parseMoment(evalResultId: string): number | undefined {
  const [, seconds] = /_(\d{1,10}\.\d{1,6})$/.exec(evalResultId) ?? [];
  return seconds === undefined ? undefined : Math.round(Number(seconds) * 1_000_000);
}

export const ofAwaitedRun = {
  headers: idempotencyHeaders,
  body: { schema: runEvalSchema, example: { evalMetrics: exampleMetrics } },
  errors: runErrors,
};

/** Evaluation results, and the operation that responds at the end of a run, as ADK's clients expect. */
export const evalResultOperations = [
  evalSet.action('run')({
    ...ofAwaitedRun,
    operationId: 'runEvalSet',
    wire: 'ADK',
    summary: 'Run an evaluation set',
    description: 'Answers when all cases have ended. The run goes on where the client goes away.',
    success: {
      schema: runResultsSchema,
      description: 'The results, in an object.',
      example: { runEvalResults: [exampleCaseResult] },
    },
    handler: async (context, call) =>
      sendCompressed(
        call.request,
        call.response,
        await streamList(await runAndRead(context, 'runEvalSet', call), '{"runEvalResults":[', ']}'),
      ),
  }),
  evalResult.list({
    wire: 'ADK',
    load: 'heavy',
    summary: 'List evaluation results',
    ...ofResultList,
    success: {
      schema: z.looseObject({ evalResultIds: z.array(z.string()).describe('Newest last.') }),
      description: 'The identifiers, in an object.',
      example: { evalResultIds: exampleResultIds },
      headers: nextCursorHeader,
    },
    run: async ({ database }, call) => ({ evalResultIds: await readResultIds(database.reads, call) }),
  }),
  evalResult.read({
    wire: 'ADK',
    load: 'heavy',
    summary: 'Get an evaluation result',
    handler: async ({ database }, { path, principal, request, response, notFound }) => {
      const { appName, evalResultId } = path;
      const resultMicroseconds = parseMoment(evalResultId);
      if (resultMicroseconds === undefined) throw notFound();
      const filter = { appName, requestedBy: getRequester(principal), resultMicroseconds };
      const [run] = await listEvalRuns(database.reads, filter);
      const named = run && toResultId(appName, run.evalSetId, resultMicroseconds);
      if (!run || !named || ![named.evalSetResultId, named.evalSetResultName].includes(evalResultId)) throw notFound();
      const { evalSetResultId, evalSetResultName, creationTimestamp } = named;
      const head = { evalSetResultId, evalSetResultName, creationTimestamp, evalSetId: run.evalSetId };
      const cases = readResult(database.reads, { appName, ...run });
      const text = await streamList(cases, `${JSON.stringify(head).slice(0, -1)},"evalCaseResults":[`, ']}');
      return sendCompressed(request, response, text);
    },
  }),
];

type RunCall = Call<
  z.output<typeof evalSetPath>,
  unknown,
  z.output<typeof idempotencyHeaders>,
  z.input<typeof runEvalSchema>
>;

/**
 * A set without cases has no results. A retry with the same `Idempotency-Key` starts no other run. The run is inserted
 * in a transaction of its own, because workers see it only after the commit.
 */
export async function runAndRead(
  context: EvalContext,
  operationId: string,
  call: RunCall,
): Promise<AsyncGenerator<string[]>> {
  const { path, principal, response } = call;
  let isNew = false;
  const start = async (inside: EvalContext) => {
    isNew = true;
    return (await startRun(inside, path, call.body, principal, isOfAdk)) ?? '';
  };
  const run = { ...path, runId: await once(context, { operationId }, call, start) };
  const first = run.runId === '' ? undefined : await waitForRun(context, run, isNew, toDisconnectSignal(response));
  return first ? readResult(context.database.reads, run, first) : noPages();
}

/**
 * A metric that is a Python function of ADK's client: accepted, but not evaluated, because it cannot be called here.
 */
const isOfAdk = ({ customFunctionPath }: EvalMetric): boolean => customFunctionPath != null;

async function* noPages(): AsyncGenerator<string[]> {}

/** Characters below which compressing a response takes more time than it saves. */
const MIN_LENGTH = 32_768;

/** Compresses a long response, because results repeat property names and texts for each case. */
export async function sendCompressed(request: Request, response: Response, text: JsonStream): Promise<Answer> {
  response.vary('Accept-Encoding');
  const isShort = !text.rest && text.first.reduce((sum, { length }) => sum + length, 0) < MIN_LENGTH;
  if (isShort || request.acceptsEncodings('gzip', 'identity') !== 'gzip') return { kind: 'stream', text: text };
  const pieces = async function* () {
    yield* text.first.splice(0);
    for await (const further of text.rest ?? []) yield* further;
  };
  response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
  try {
    await pipeline(Readable.from(pieces()), createGzip({ level: constants.Z_BEST_SPEED }), response);
  } catch (error) {
    // If the client disconnects before the end, no error is reported.
    if ((error as { code?: string }).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
  return { kind: 'sent' };
}
