import { z } from 'zod';
import { freeForm, jsonObject } from '../../../core/content.ts';
import { bodyList, texts, looseObject } from '../../../core/members.ts';
import { runModes, type ExecutionModes } from '../sets/eval-set.ts';
import type { ScoredCase } from '../scoring/score.ts';
import { evalMetricSchema, type EvalMetric } from '../metrics/criteria.ts';

/** Default number of concurrent cases of a run, over all processes. */
export const DEFAULT_PARALLELISM = 4;
/** Maximum number of concurrent cases of a run. A process runs as many turns and judges as many cases at once. */
export const MAX_PARALLELISM = 16;

/** Default maximum number of tokens that judges may use in a run, enough to judge about 10,000 long answers. */
export const DEFAULT_JUDGE_TOKENS = 10_000_000;

export const maxJudgeTokens = z
  .int()
  .min(1)
  .max(1_000_000_000)
  .nullish()
  .describe(`Tokens that its judges and simulated users may use [${DEFAULT_JUDGE_TOKENS}].`);

const runMembers = {
  evalCaseIds: texts('Cases to run; without any all of the set.'),
  evalIds: texts('Older name of `evalCaseIds`.'),
  evalMetrics: bodyList(evalMetricSchema).describe('What the turns are scored by; may be empty.'),
  ...runModes,
  userSimulatorConfig: freeForm('How a simulated user speaks in cases with a scenario.'),
  trials: z.int().min(1).max(1_000).nullish().describe('How often each case is run [1].'),
  parallelism: z
    .int()
    .min(1)
    .nullish()
    .describe(`Cases at once, in all processes; at most ${MAX_PARALLELISM} [${DEFAULT_PARALLELISM}].`),
  maxJudgeTokens,
};

export const runEvalSchema = z.looseObject(runMembers).describe('Which cases to run and what to score them by.');

export const startRunSchema = looseObject('A run of an evaluation set.', {
  evalSetId: z.string().max(256).describe('The set to run.'),
  ...runMembers,
});

export const evalRunSchema = looseObject('A run of an evaluation set.', {
  runId: z.string().describe('Identifier of the run.'),
  evalSetId: z.string().describe('The set that is run.'),
  status: z.enum(['queued', 'running', 'done', 'cancelled']).describe('How it stands; the last two have ended.'),
  evalSetResultId: z.string().describe('Identifier of its result, which is complete when the run is done.'),
  evalMetrics: z.array(evalMetricSchema).describe('What the turns are scored by.'),
  trials: z.int().describe('How often each case is run.'),
  parallelism: z.int().describe('Maximum number of its cases at once.'),
  maxJudgeTokens: z.int().describe('Tokens that judges and simulated users may use.'),
  judgeTokens: z.int().describe('Tokens that they have used, with what calls under way may use.'),
  modelExecutionMode: z.enum(['live', 'stored']).describe('`stored`: the model says what the cases say.'),
  toolExecutionMode: z.enum(['live', 'stored']).describe('`stored`: tools answer what the cases say.'),
  agentHash: z.string().describe('Version of the agent that was deployed when the run was requested.'),
  modelName: z.string().describe('Model of that agent.'),
  judgedRunId: z.string().optional().describe('The run whose stored turns it judges; absent for a run of its own.'),
  createTime: z.number().describe('When it was requested, Unix seconds.'),
  endTime: z.number().optional().describe('When it ended, Unix seconds; absent until then.'),
  counts: looseObject('How its cases stand.', {
    total: z.int().describe('All, each trial counted.'),
    waiting: z.int().describe('Not begun.'),
    running: z.int().describe('Begun.'),
    passed: z.int().describe('Ended, and passed.'),
    failed: z.int().describe('Ended, and failed by a metric.'),
    notEvaluated: z.int().describe('Ended, and no metric says anything.'),
    errors: z.int().describe('Could not be brought to an end.'),
    cancelled: z.int().describe('Cancelled before they ended.'),
  }),
});

export const evalCaseResultSchema = jsonObject.describe(
  'One case: status, scores, and each turn beside the expected one.',
);

export const caseResultsSchema = z.array(evalCaseResultSchema);
export const runResultsSchema = looseObject('What a run gave.', {
  runEvalResults: z.array(evalCaseResultSchema).describe('One entry for each case, in the order of the set.'),
});

export const runSummarySchema = looseObject('What a run says.', {
  cases: z
    .array(
      z.looseObject({
        evalId: z.string().describe('The case.'),
        trials: z.int().describe('Trials that passed or failed.'),
        passed: z.int().describe('Those of them that passed.'),
        notEvaluated: z.int().describe('Trials of which no metric says anything.'),
        errors: z.int().describe('Trials that could not be brought to an end.'),
        unfinished: z.int().describe('Trials that were cancelled, or have not ended yet.'),
        passRate: z.number().nullable().describe('Share of the trials that passed; null without any.'),
        interval: z.array(z.number()).describe("Wilson's 95 % interval of that rate: two numbers."),
        passAll: z.number().nullable().describe('The estimate that as many trials as were made all pass.'),
        flaky: z.boolean().describe('True where it passes sometimes.'),
        scores: jsonObject.describe('The mean score of each metric; null where none gave one.'),
        reason: z.string().optional().describe('Why the first trial that did not pass did not.'),
        cost: z
          .number()
          .optional()
          .describe('What the models of its trials cost by the present prices; absent where none is known.'),
      }),
    )
    .describe('One entry for each case, in the order of the set.'),
  cost: z.number().optional().describe('What all cases cost together; absent where no cost is known.'),
  comparison: z
    .looseObject({
      compared: z.int().describe('Number of cases that both runs have a verdict on.'),
      missing: z.array(z.string()).describe('Cases with a verdict before and none now: they say nothing.'),
      added: z.array(z.string()).describe('Cases with a verdict now and none before.'),
      missingMetrics: z.array(z.string()).describe('Metrics that gave verdicts before and give none now.'),
      won: z.array(z.string()).describe('Cases that pass now and did not before.'),
      lost: z.array(z.string()).describe('Cases that passed before and do not now.'),
      pTwoSided: z.number().describe('Exact two-sided sign test on those.'),
      worse: z.array(z.string()).describe('Cases whose interval lies wholly below that of before.'),
      regression: z.boolean().describe('True for more lost than won beyond chance, and for any case that is worse.'),
      differences: z.array(jsonObject).describe('Of won and lost cases the first event that differs, and where.'),
    })
    .optional()
    .describe('Against the `baseline`; absent without one.'),
});

export const exampleRun = {
  runId: '7d444840-9dc0-41d1-b245-5ffdce74fad2',
  evalSetId: 'arithmetic',
  status: 'done',
  evalSetResultId: 'harness_agent_arithmetic_1767225800.5',
  evalMetrics: [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }],
  trials: 1,
  parallelism: 4,
  maxJudgeTokens: 10_000_000,
  judgeTokens: 0,
  modelExecutionMode: 'live',
  toolExecutionMode: 'live',
  agentHash: '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae',
  modelName: 'offline',
  createTime: 1_767_225_800.5,
  endTime: 1_767_225_801.5,
  counts: { total: 1, waiting: 0, running: 0, passed: 1, failed: 0, notEvaluated: 0, errors: 0, cancelled: 0 },
} satisfies z.input<typeof evalRunSchema>;

export const exampleCaseResult = {
  evalSetFile: 'arithmetic',
  evalSetId: 'arithmetic',
  evalId: 'case1',
  finalEvalStatus: 1,
  evalMetricResults: [],
  overallEvalMetricResults: [{ metricName: 'tool_trajectory_avg_score', threshold: 1, score: 1, evalStatus: 1 }],
  evalMetricResultPerInvocation: [],
  sessionId: 'adk-eval-session-0d3f0e5e-7a54-4c0d-9b5e-0b8f3a5d1c11',
  userId: 'u1',
};

export const exampleCaseSummary = {
  evalId: 'case1',
  trials: 1,
  passed: 1,
  notEvaluated: 0,
  errors: 0,
  unfinished: 0,
  passRate: 1,
  interval: [0.206549314, 1],
  passAll: 1,
  flaky: false,
  scores: { tool_trajectory_avg_score: 1 },
};

export const CANCEL_TOPIC = 'evaluation:cancel';

/** Topic of the notifications that a case of a run ended. */
export const runTopic = (runId: string) => `eval:${runId}`;

export type EvalRunKey = Pick<NewEvalRun, 'appName' | 'runId'>;

export interface NewEvalRun extends ExecutionModes {
  appName: string;
  runId: string;
  evalSetId: string;
  /** The token's user id, or the name of the API key bound to users; undefined for a caller acting for all users. */
  requestedBy: string | undefined;
  metrics: EvalMetric[];
  userSimulator: unknown;
  trials: number;
  parallelism: number;
  maxJudgeTokens: number;
  agentHash: string;
  modelName: string;
  /** Cases in the result's order. With `judgedRunId` the run judges another run's completed cases in their sessions. */
  cases: { evalId: string; version: number; userId: string }[] | { judgedRunId: string };
}

export interface EvalRun extends Omit<NewEvalRun, 'appName' | 'requestedBy' | 'cases'> {
  status: 'queued' | 'running' | 'done' | 'cancelled';
  /** Id of the run whose stored turns this run judges; null if this run calls the agent. */
  judgedRunId: string | null;
  judgeTokens: number;
  /** Time of the result in microseconds since 1970. The time is part of the result's name. */
  resultMicroseconds: number;
  /** Unix time in seconds. */
  createTime: number;
  endTime: number | null;
  /** Numbers of cases by status. The last three properties are the results of completed cases. */
  counts: Record<
    'total' | 'waiting' | 'running' | 'errors' | 'cancelled' | 'passed' | 'failed' | 'notEvaluated',
    number
  >;
}

export interface RunFilter {
  appName: string;
  /** Lists only runs of this requester; `undefined` for a caller who may see all runs. */
  requestedBy: string | undefined;
  runId?: string | undefined;
  /** Time of the result in microseconds since 1970. */
  resultMicroseconds?: number | undefined;
  evalSetId?: string | undefined;
  limit?: number | undefined;
}

export interface RunCase {
  place: number;
  trial: number;
  evalId: string;
  userId: string;
  sessionId: string | null;
  status: 'waiting' | 'running' | 'done' | 'error' | 'cancelled';
  lastSequence: number | null;
  failedTurn: number | null;
  error: string | null;
}

export interface Outcome extends Pick<ScoredCase, 'finalStatus' | 'overall'> {
  /** What the models cost at present prices; null if that is not known. */
  cost: number | null;
}

/** A case of a run that ended with a result or an error. */
export interface EndedCase extends Omit<RunCase, 'status'> {
  sessionId: string;
  /** The case at the time of the request. */
  evalCase: unknown;
  scored: ScoredCase | null;
  /** What the models cost at present prices; null if that is not known. */
  cost: number | null;
}
