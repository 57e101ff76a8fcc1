import { z } from 'zod';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import { identifierSchema } from '../../../core/session.ts';
import { evalRunPath, INT32_MAX, pageSize } from '../../../platform/http/operation/parameters.ts';
import { evalSetExists } from '../sets/eval-set-store.ts';
import { DEFAULT_JUDGE_TOKENS, DEFAULT_PARALLELISM, exampleRun, maxJudgeTokens, type NewEvalRun } from './eval-run.ts';
import { insertEvalRun } from './eval-run-store.ts';
import { listJudgeCounts, listTrend, listVerdicts, saveVerdict } from './judging-store.ts';
import { evalMetricSchema, exampleMetrics } from '../metrics/criteria.ts';
import { agreement, cohensKappa } from '../metrics/statistics.ts';
import { evalSet, getAuthor, getRequester, room } from '../sets/context.ts';
import { evalRun, toWire } from './routes.ts';
import { MAX_OPEN_RUNS } from './start-run.ts';
import { checkMetricName, checkMetrics } from '../scoring/score-case.ts';
import { checkMetricsSize, MAX_CASES, streamList } from '../sets/bounds.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { looseObject } from '../../../core/members.ts';

const judgeSchema = looseObject('How stored turns are to be judged.', {
  evalMetrics: z.array(evalMetricSchema).min(1).max(50).describe('What the turns are scored by.'),
  maxJudgeTokens,
});

const verdictSchema = looseObject('What a person says of a turn.', {
  evalId: identifierSchema.describe('The case.'),
  trial: z.int().min(1).max(1_000).default(1).describe('Its trial [1].'),
  turn: z.int().min(0).max(INT32_MAX).describe('The turn, from 0.'),
  metricName: identifierSchema.describe('The metric that the verdict stands beside.'),
  passed: z.boolean().describe('Whether the turn is good.'),
  comment: z.string().max(10_000).nullish().describe('Why, in words.'),
});
const exampleVerdict = { evalId: 'case1', turn: 0, metricName: 'final_response_match_v2', passed: true };

const verdict = room.resource({
  noun: 'verdict',
  id: 'EvalVerdict',
  path: `${evalRun.onePath}/verdicts`,
  within: evalRunPath,
  schema: verdictSchema.extend({ author: z.string().describe('Who said so.') }),
  example: { ...exampleVerdict, trial: 1, author: 'local' },
});

const count = (description: string) => z.int().describe(description);
const judgeCountsSchema = looseObject('A judge beside people.', {
  metricName: z.string().describe('The metric.'),
  judgeModel: z.string().describe('The model that judged.'),
  promptVersion: z.string().describe('Changes with the words of its prompts.'),
  bothPass: count('Turns that both find good.'),
  onlyJudgePasses: count('Turns that only the judge finds good.'),
  onlyHumanPasses: count('Turns that only a person finds good.'),
  bothFail: count('Turns that neither finds good.'),
  agreement: z.number().nullable().describe('Share of equal verdicts; null without any.'),
  kappa: z.number().nullable().describe("Cohen's κ: agreement beyond chance; null where chance explains all."),
});

const trendPointSchema = looseObject('What one run gave.', {
  runId: z.string().describe('The run.'),
  createTime: z.number().describe('When it was requested, Unix seconds.'),
  modelName: z.string().describe('Model of the agent.'),
  agentHash: z.string().describe('Hash of the agent.'),
  total: count('Its cases, each trial counted.'),
  passed: count('Those that passed.'),
  failed: count('Those that failed by a metric.'),
  notEvaluated: count('Those of which no metric says anything.'),
  errors: count('Those that could not be brought to an end.'),
  scores: z.looseObject({}).describe('The mean score of each metric; null where none gave one.'),
});

export const judgingOperations = [
  evalRun.action('judge')({
    operationId: 'judgeEvalRun',
    summary: 'Judge the stored turns of an evaluation run again',
    description:
      'A new run, whose `judgedRunId` names this one: the agent is not called, its turns are those that took place.',
    body: { schema: judgeSchema, example: { evalMetrics: exampleMetrics } },
    success: { description: 'The new run.', status: 202 },
    errors: { 400: 'The run is too large.', 409: 'Too many runs have not ended, or none of its cases was done.' },
    run: async (context, { path: { appName, runId }, body, principal }, judged) => {
      const { database, newId } = context;
      if (judged.counts.total > MAX_CASES)
        throw new InvalidError(`The run has ${judged.counts.total} cases; the maximum is ${MAX_CASES}.`);
      checkMetricsSize(body.evalMetrics);
      const metrics = withoutKnownNulls(judgeSchema, body).evalMetrics;
      checkMetrics(metrics, context.agents.get(appName));
      const judging: NewEvalRun = {
        ...judged,
        appName,
        runId: newId(),
        requestedBy: getRequester(principal),
        metrics,
        userSimulator: undefined,
        parallelism: DEFAULT_PARALLELISM,
        maxJudgeTokens: body.maxJudgeTokens ?? DEFAULT_JUDGE_TOKENS,
        cases: { judgedRunId: runId },
      };
      await insertEvalRun(database.db, judging, MAX_OPEN_RUNS);
      return toWire(appName, await evalRun.get(database.db, { path: judging, principal }));
    },
  }),
  verdict.save({
    summary: 'Say whether a turn is good',
    description: 'Beside the judges. Each caller has one verdict on a turn in a metric; a further one takes its place.',
    body: { schema: verdictSchema, example: exampleVerdict },
    errors: { 404: 'No such run, case or turn.' },
    absent: evalRun.absent,
    run: async (context, { path, body, principal }) => {
      const { db } = context.database;
      const run = await evalRun.get(db, { path, principal });
      const { evalId, trial = 1, turn, metricName, passed, comment = null } = body;
      // A verdict is also accepted for a metric of the run that the application no longer has.
      const isOfRun = run.metrics.some((metric) => metric.metricName === metricName);
      if (!isOfRun) checkMetricName(metricName, context.agents.get(path.appName), ['metricName']);
      const said = { evalId, trial, turn, metricName, passed, comment, author: getAuthor(principal) };
      if (await saveVerdict(db, path, said)) return;
      throw new NotFoundError(`The evaluation run has no turn ${turn} of trial ${trial} of eval case \`${evalId}\`.`);
    },
  }),
  verdict.list({
    summary: 'List what people say of the turns of a run',
    success: { description: 'The verdicts, in the order of the cases and turns.' },
    errors: { 404: 'No such run.' },
    absent: evalRun.absent,
    handler: async ({ database: { reads } }, { path, principal }) => {
      await evalRun.get(reads, { path, principal });
      return { kind: 'stream', text: await streamList(listVerdicts(reads, path)) };
    },
  }),
  evalSet.action('judges')({
    method: 'get',
    operationId: 'listEvalJudges',
    summary: 'Compare the judges of a set with people',
    description: 'On the turns that both judged, over all runs of the set, by metric, model and version of the prompt.',
    success: {
      schema: z.array(judgeCountsSchema),
      description: 'The judges.',
      example: [
        {
          metricName: 'final_response_match_v2',
          judgeModel: 'judge',
          promptVersion: '0f3c5a9d1e77',
          bothPass: 8,
          onlyJudgePasses: 1,
          onlyHumanPasses: 0,
          bothFail: 1,
          agreement: 0.9,
          kappa: 0.615,
        },
      ],
    },
    run: async ({ database }, { path, principal, notFound }) => {
      const requestedBy = getRequester(principal);
      if (!(await evalSetExists(database.reads, { ...path, ownerId: requestedBy }))) throw notFound();
      const judges = await listJudgeCounts(database.reads, path, requestedBy);
      return judges.map(({ verdicts, ...judge }) => ({
        ...judge,
        ...verdicts,
        agreement: agreement(verdicts),
        kappa: cohensKappa(verdicts),
      }));
    },
  }),
  evalSet.action('trend')({
    method: 'get',
    operationId: 'getEvalTrend',
    summary: 'Follow a set over its runs',
    query: z.object({ limit: pageSize('Maximum number of runs.').default(100) }),
    success: {
      schema: z.array(trendPointSchema),
      description: 'The last runs that were done, oldest first.',
      example: [
        {
          runId: exampleRun.runId,
          createTime: exampleRun.createTime,
          modelName: 'offline',
          agentHash: exampleRun.agentHash,
          total: 1,
          passed: 1,
          failed: 0,
          notEvaluated: 0,
          errors: 0,
          scores: { tool_trajectory_avg_score: 1 },
        },
      ],
    },
    run: async ({ database }, { path, query, principal, notFound }) => {
      const requestedBy = getRequester(principal);
      if (!(await evalSetExists(database.reads, { ...path, ownerId: requestedBy }))) throw notFound();
      return listTrend(database.reads, path, requestedBy, query.limit);
    },
  }),
];
