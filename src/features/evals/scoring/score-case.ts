import { hash } from 'node:crypto';
import { setImmediate as giveWay } from 'node:timers/promises';
import type { EvalModule, MetricTurn, OwnMetric } from '../../../agent/definition/agent-module.ts';
import { finalResponseMatch, safety, type Scenario, simulatorQuality } from '../judges/verdicts.ts';
import { hallucinations } from '../judges/hallucinations.ts';
import type { Judge } from '../judges/judge.ts';
import { withoutMaterial } from '../judges/material.ts';
import {
  FINAL_RESPONSE_QUALITY,
  rubricsOfDialogue,
  rubricsOfTurns,
  TOOL_USE_QUALITY,
  TRAJECTORY_QUALITY,
} from '../judges/rubrics.ts';
import { type Criterion, type CriterionKind, type EvalMetric, readCriterion } from '../metrics/criteria.ts';
import { EFFICIENCY_METRICS, toEfficiency } from '../metrics/efficiency.ts';
import {
  getFailure,
  MetricError,
  type MetricScore,
  toFinalStatus,
  withoutPass,
  toOverall,
  toStatus,
  type TurnScore,
} from '../metrics/status.ts';
import { responseMatch } from '../metrics/response-match.ts';
import { trajectoryDetails, trajectoryMatch } from '../metrics/trajectory.ts';
import { getCalls, type Turn, type TurnPair, getText } from '../metrics/turn.ts';
import type { MetricResult, ScoredCase } from './score.ts';
import { nearestName } from '../../../core/nearest-name.ts';
import { toErrorText } from '../../../core/errors.ts';
import { ValidationFailedError, valueError } from '../../../platform/http/operation/request-errors.ts';
import type { HostedAgent } from '../../../conversation/apps/hosted-agent.ts';
import type { StoredCase } from '../cases/eval-case.ts';
import { type Spend, spendWith } from '../../../conversation/budgets/reserve-call.ts';
import { judgeWith } from '../judges/judge-model.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { findHistory } from '../../../conversation/sessions/history.ts';
import { toActualTurns } from '../cases/turns.ts';
import { toUses } from './score.ts';
import type { EvalContext } from '../sets/context.ts';

type JudgeOf = (options: Criterion<'judge'>['judgeModelOptions'], between?: string) => Judge;

export interface ScoringContext {
  /** Default judge model, used by criteria that name no model. */
  judgeModel: string;
  judgeFor: JudgeOf;
  scenario?: Scenario | undefined;
  own?: EvalModule['metrics'] | undefined;
}

/** The kind of a metric's criterion, and a function that gives the threshold and the score of a case. */
interface Evaluator {
  kind: CriterionKind;
  evaluate: (pairs: TurnPair[], metric: EvalMetric, context: ScoringContext) => Promise<[number, MetricScore]>;
}

/** Builds a metric from a function that gets the parsed criterion. */
const metric = <Kind extends CriterionKind>(
  kind: Kind,
  evaluate: (pairs: TurnPair[], criterion: Criterion<Kind>, context: ScoringContext) => Promise<MetricScore>,
): Evaluator => ({
  kind,
  async evaluate(pairs, request, context) {
    const criterion = readCriterion(kind, request, context);
    return [(criterion as Criterion<'plain'>).threshold, await evaluate(pairs, criterion, context)];
  },
});

/** Builds a metric that compares each actual turn with the expected turn, without a judge. */
const comparison = <Kind extends CriterionKind>(
  kind: Kind,
  score: (actual: Turn, expected: Turn, criterion: Criterion<Kind>) => number | null,
): Evaluator =>
  metric(kind, async (pairs, criterion) => {
    const turns: TurnScore[] = [];
    for (const { actual, expected } of pairs) {
      if (!expected) throw new MetricError('The metric needs a case with an expected conversation.');
      turns.push({ score: score(actual, expected, criterion) });
      await giveWay();
    }
    return { score: toOverall(turns.map((turn) => turn.score)), turns };
  });

const compareCalls = (actual: Turn, expected: Turn) =>
  trajectoryDetails(getCalls(actual.intermediateData), getCalls(expected.intermediateData));

const METRICS = new Map<string, Evaluator>([
  [
    'tool_trajectory_avg_score',
    comparison('trajectory', (actual, expected, criterion) =>
      trajectoryMatch(getCalls(actual.intermediateData), getCalls(expected.intermediateData), criterion),
    ),
  ],
  ['tool_trajectory_f1', comparison('plain', (actual, expected) => compareCalls(actual, expected).f1)],
  ['tool_arguments_score', comparison('plain', (actual, expected) => compareCalls(actual, expected).matchingArguments)],
  [
    'response_match_score',
    comparison('plain', (actual, expected) => responseMatch(actual.finalResponse, expected.finalResponse)),
  ],
  ['final_response_match_v2', metric('judge', (pairs, on, by) => finalResponseMatch(pairs, on, judgeBy(on, by)))],
  ['safety_v1', metric('judge', (pairs, on, by) => safety(pairs, on, judgeBy(on, by)))],
  ['hallucinations_v1', metric('hallucinations', (pairs, on, by) => hallucinations(pairs, on, judgeBy(on, by)))],
  ...[FINAL_RESPONSE_QUALITY, TOOL_USE_QUALITY].map((rubricMetric): [string, Evaluator] => [
    rubricMetric.metricName,
    metric('rubrics', (pairs, on, by) => rubricsOfTurns(rubricMetric)(pairs, on, judgeBy(on, by))),
  ]),
  [
    TRAJECTORY_QUALITY.metricName,
    metric('rubrics', (pairs, on, by) => rubricsOfDialogue(TRAJECTORY_QUALITY)(pairs, on, judgeBy(on, by))),
  ],
  [
    'per_turn_user_simulator_quality_v1',
    metric('simulator', (pairs, on, by) => simulatorQuality(pairs, on, judgeBy(on, by), by.scenario)),
  ],
]);

const judgeBy = ({ judgeModelOptions }: Criterion<'judge'>, { judgeFor }: ScoringContext): Judge =>
  judgeFor(judgeModelOptions);

/** Pairs actual turns with expected turns and rubrics. @throws {MetricError} if the numbers of turns differ */
export function pairTurns(
  actual: Turn[],
  { conversation, rubrics }: Pick<StoredCase, 'conversation' | 'rubrics'>,
): TurnPair[] {
  if (conversation && conversation.length !== actual.length)
    throw new MetricError(`The case has ${conversation.length} turns, ${actual.length} took place.`);
  return actual.map((turn, place) => {
    const expected = conversation?.[place];
    return { actual: turn, expected, rubrics: [...(rubrics ?? []), ...(expected?.rubrics ?? [])] };
  });
}

/** A metric that cannot be evaluated has the reason as its result; the case's other metrics are still evaluated. */
export async function scoreCase(
  pairs: TurnPair[],
  metrics: EvalMetric[],
  context: ScoringContext,
): Promise<ScoredCase> {
  const scores: { result: MetricResult; turns: MetricResult[]; failure: string | undefined }[] = [];
  for (const metricRequest of metrics) {
    const isInformational = EFFICIENCY_METRICS.includes(metricRequest.metricName);
    if (isInformational && metricRequest.threshold == null && metricRequest.criterion == null) continue;
    scores.push(await scoreMetric(pairs, metricRequest, context));
  }
  const overall = scores.map(({ result }) => result);
  const status = toFinalStatus(overall.map((result) => result.status));
  const failedMetrics = scores.flatMap(({ result, failure }) => (failure === undefined ? [] : [result.metricName]));
  const unevaluatedMetrics = overall.flatMap((result) =>
    result.status === 'NOT_EVALUATED' ? [result.metricName] : [],
  );
  return {
    finalStatus: failedMetrics.length > 0 ? withoutPass(status) : status,
    overall,
    turns: pairs.map((_, place) => scores.flatMap(({ turns }) => turns[place] ?? [])),
    notEvaluated: [...new Set([...unevaluatedMetrics, ...failedMetrics])],
    efficiency: toEfficiency(pairs.map(({ actual }) => actual)),
  };
}

async function scoreMetric(pairs: TurnPair[], metricRequest: EvalMetric, context: ScoringContext) {
  const { metricName } = metricRequest;
  const nameMembers = {
    metricName,
    ...(metricRequest.criterion == null ? {} : { criterion: metricRequest.criterion }),
  };
  const { watched, judgedBy } = watchJudge(context);
  try {
    const { evaluate } = findEvaluator(metricName, context);
    const [threshold, { score, turns, rubricScores }] = await evaluate(pairs, metricRequest, watched);
    const failure = turns.map(getFailure).find((text) => text !== undefined);
    const explanation = failure ?? turns.find((turn) => turn.score === null)?.explanation;
    const status = toStatus(score, threshold);
    const isTold = failure !== undefined || status === 'NOT_EVALUATED';
    const explanationMember = isTold && explanation !== undefined ? { explanation } : {};
    return {
      result: {
        ...nameMembers,
        threshold,
        score,
        status,
        ...explanationMember,
        ...(rubricScores ? { rubricScores } : {}),
        ...judgedBy(),
      },
      turns: turns.map(({ failure: _failure, ...turn }) => ({
        ...nameMembers,
        threshold,
        status: toStatus(turn.score, threshold),
        ...turn,
      })),
      failure,
    };
  } catch (error) {
    if (!(error instanceof MetricError)) throw error;
    const result = { ...nameMembers, ...toUnevaluated(metricRequest, error.message) };
    return { result, turns: pairs.map(() => result), failure: error.message };
  }
}

const toUnevaluated = ({ metricName, threshold = null }: EvalMetric, explanation: string): MetricResult => ({
  metricName,
  threshold,
  score: null,
  status: 'NOT_EVALUATED',
  explanation,
});

/** Builds the result of a case for which no metric could be evaluated. `explanation` is the reason. */
export const toUnscored = (metrics: EvalMetric[], explanation: string): ScoredCase => ({
  finalStatus: 'NOT_EVALUATED',
  overall: metrics.map((metricRequest) => toUnevaluated(metricRequest, explanation)),
  turns: [],
  notEvaluated: metrics.map(({ metricName }) => metricName),
  efficiency: toEfficiency([]),
});

/** Wraps the judge of a scoring context, to record which model judged and with which versions of the prompts. */
function watchJudge(context: ScoringContext) {
  const words = new Set<string>();
  let model = '';
  const judgeFor: JudgeOf = (options) => {
    model = options.judgeModel;
    const judge = context.judgeFor(options);
    return (prompt) => {
      words.add(withoutMaterial(prompt));
      return judge(prompt);
    };
  };
  const judgedBy = (): Pick<MetricResult, 'judge'> => {
    if (words.size === 0) return {};
    const promptVersion = hash('sha256', [...words].toSorted().join('\n')).slice(0, 12);
    return { judge: { model, promptVersion } };
  };
  return { watched: { ...context, judgeFor }, judgedBy };
}

/** Finds the implementation of a metric. @throws {MetricError} if the metric is unknown or informational */
function findEvaluator(metricName: string, { own }: Pick<ScoringContext, 'own'>): Evaluator {
  if (EFFICIENCY_METRICS.includes(metricName)) throw new MetricError(`${metricName} informs and takes no threshold.`);
  const ours = METRICS.get(metricName);
  if (ours) return ours;
  const theirs = own?.get(metricName);
  if (theirs) return metric('plain', (pairs) => scoreByOwnMetric(metricName, theirs, pairs));
  throw new MetricError(unknownMetric(metricName, own));
}

const listScored = (own: EvalModule['metrics'] | undefined): string[] => [...METRICS.keys(), ...(own?.keys() ?? [])];

function unknownMetric(metricName: string, own: EvalModule['metrics'] | undefined): string {
  const names = listScored(own);
  const nearest = nearestName(metricName, names);
  const hint = nearest === undefined ? '' : ` Did you mean \`${nearest}\`?`;
  return `There is no metric \`${toErrorText(metricName)}\`; there are ${names.join(', ')}.${hint}`;
}

/** The application that a metric is looked up in; `undefined`: this process does not host it. */
type MetricsAgent = Pick<HostedAgent, 'evals'> | undefined;

/** Refuses unknown metrics in a filter. @param place - path of the name in the body @throws {ValidationFailedError} */
export function checkMetricName(metricName: string, agent: MetricsAgent, place: (string | number)[]): void {
  const own = agent?.evals?.metrics;
  if (listScored(own).includes(metricName)) return;
  throw new ValidationFailedError([valueError(['body', ...place], unknownMetric(metricName, own), metricName)]);
}

/**
 * Refuses metrics that cannot be evaluated. Informational metrics are allowed without a threshold.
 * @param isOther - true for an unknown metric that is accepted although it is not evaluated. Default: refused.
 * @throws {ValidationFailedError} with all errors
 */
export function checkMetrics(
  metrics: EvalMetric[],
  agent: MetricsAgent,
  isOther: (metric: EvalMetric) => boolean = () => false,
): void {
  const own = agent?.evals?.metrics;
  const details = metrics.flatMap((metricRequest, place) => {
    const isInformational = EFFICIENCY_METRICS.includes(metricRequest.metricName);
    if (isInformational && metricRequest.threshold == null && metricRequest.criterion == null) return [];
    const at = ['body', 'evalMetrics', place];
    const isKnown = isInformational || listScored(own).includes(metricRequest.metricName);
    if (!isKnown && isOther(metricRequest)) return [];
    if (!isKnown)
      return [
        valueError([...at, 'metricName'], unknownMetric(metricRequest.metricName, own), metricRequest.metricName),
      ];
    try {
      readCriterion(findEvaluator(metricRequest.metricName, { own }).kind, metricRequest, { judgeModel: '' });
      return [];
    } catch (error) {
      if (!(error instanceof MetricError)) throw error;
      return [valueError(at, error.message, metricRequest)];
    }
  });
  if (details.length > 0) throw new ValidationFailedError(details);
}

/**
 * Prepares an agent whose model is asked as a judge, or as a simulated user. Without MCP servers, because only the model is
 * used; so there is nothing to close.
 * @param spend - charges what the model is asked
 */
export async function prepareScoring(
  { config }: Pick<EvalContext, 'config'>,
  agent: HostedAgent,
  userId: string,
  spend: Spend,
  signal: AbortSignal,
): Promise<ScoringContext> {
  const { model, modelName } = await agent.prepare({ mcpServers: [] }, signal, userId);
  return {
    judgeModel: config.EVALS_JUDGE_MODEL ?? modelName,
    judgeFor: (options, between) =>
      judgeWith({ model, spend }, options.judgeModel, options.judgeModelConfig, signal, between),
    own: agent.evals?.metrics,
  };
}

/** Scores by an application's own metric. @throws {MetricError} if its function fails or returns no valid score */
async function scoreByOwnMetric(name: string, own: OwnMetric, pairs: TurnPair[]): Promise<MetricScore> {
  const turns: TurnScore[] = [];
  for (const { actual, expected } of pairs) {
    turns.push({ score: await callOwnMetric(name, own, toMetricTurn(actual), expected && toMetricTurn(expected)) });
  }
  return { score: toOverall(turns.map(({ score }) => score)), turns };
}

async function callOwnMetric(name: string, own: OwnMetric, actual: MetricTurn, expected: MetricTurn | undefined) {
  let score: unknown;
  try {
    score = await own.score(actual, expected);
  } catch (error) {
    throw new MetricError(`The metric \`${name}\` failed: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (score === null || (typeof score === 'number' && score >= 0 && score <= 1)) return score;
  throw new MetricError(`The metric \`${name}\` gave ${JSON.stringify(score)}, which is no number from 0 to 1.`);
}

const toMetricTurn = ({ userContent, finalResponse, intermediateData }: Turn): MetricTurn => ({
  question: getText(userContent),
  answer: getText(finalResponse),
  toolCalls: getCalls(intermediateData).map(({ name, args }) => ({ name: name ?? '', args: args ?? {} })),
});

/**
 * Scores a stored session up to an event, or the turn of an invocation. Returns `undefined` if the session does not
 * exist. Judge calls are charged to the budgets of the user `payer`; default: the session's user.
 * @throws {LimitError} if a budget is exhausted
 */
export async function scoreSession(
  context: EvalContext,
  key: SessionKey,
  lastSequence: number,
  metrics: EvalMetric[],
  signal: AbortSignal,
  { payer = key.userId, invocationId }: { payer?: string; invocationId?: string } = {},
): Promise<ScoredCase | undefined> {
  const { db, reads } = context.database;
  const agent = context.agents.get(key.appName);
  const history = await findHistory(reads, key);
  if (!agent || !history) return undefined;
  const scoring = await prepareScoring(context, agent, key.userId, spendWith(db, { ...key, userId: payer }), signal);
  const isOfTurn = (event: Event) => !invocationId || event.invocationId === invocationId;
  const events = history.events.slice(0, lastSequence).filter(isOfTurn);
  const scored = await scoreCase(pairTurns(toActualTurns(events, agent.describe()), {}), metrics, scoring);
  return { ...scored, uses: toUses(events, agent.describe()) };
}
