import type { Criterion, RUBRIC_TYPES } from '../metrics/criteria.ts';
import { MetricError, type MetricScore, type RubricScore, toOverall, type TurnScore } from '../metrics/status.ts';
import type { Rubric, TurnPair } from '../metrics/turn.ts';
import { type Judge, majority, takeSamples, toTurnScore, toObjects, readJsonAnswer, toWord } from './judge.ts';
import { toPrompt, toTranscript } from './material.ts';

/** A metric whose judge confirms or denies rubrics. A turn's rubric is judged only by the metric of its `type`. */
interface RubricMetric {
  metricName: string;
  type: (typeof RUBRIC_TYPES)[number];
  task: string;
}

const RULES = `Answer each property on its own: yes when the material shows that it holds, no when it does not. Judge by
what stands in the material only. A property that speaks of something that did not come up holds.`;

export const FINAL_RESPONSE_QUALITY: RubricMetric = {
  metricName: 'rubric_based_final_response_quality_v1',
  type: 'FINAL_RESPONSE_QUALITY',
  task: `You check properties of the final answer of an agent. The steps before it are there to compare with.
${RULES}`,
};
export const TOOL_USE_QUALITY: RubricMetric = {
  metricName: 'rubric_based_tool_use_quality_v1',
  type: 'TOOL_USE_QUALITY',
  task: `You check properties of the way an agent used its tools: calls, arguments, order, and what was missing.
${RULES}`,
};
export const TRAJECTORY_QUALITY: RubricMetric = {
  metricName: 'rubric_based_multi_turn_trajectory_quality_v1',
  type: 'TRAJECTORY_QUALITY',
  task: `You check properties of a whole dialogue between a user and an agent.
${RULES}`,
};

const FORM = '{"verdicts": [{"id": "<id of the property>", "reason": "<one sentence>", "verdict": "yes" | "no"}, …]}';

/** The rubrics of criterion, case and turn. @throws {MetricError} without a rubric, or if two have the same id */
function rubricsInForce(metric: RubricMetric, criterion: Criterion<'rubrics'>, pair: TurnPair | undefined): Rubric[] {
  const turnRubrics = (pair?.rubrics ?? []).filter(({ type }) => type === metric.type);
  const rubrics = [...criterion.rubrics, ...turnRubrics];
  const twice = rubrics.find(({ rubricId }, place) => rubrics.findIndex((each) => each.rubricId === rubricId) < place);
  if (twice) throw new MetricError(`${metric.metricName} has the rubric \`${twice.rubricId}\` twice.`);
  if (rubrics.length > 0) return rubrics;
  throw new MetricError(`${metric.metricName} needs rubrics: in its criterion, or of type ${metric.type} in the case.`);
}

async function judgeRubrics(
  task: string,
  rubrics: Rubric[],
  material: object,
  { judgeModelOptions }: Criterion<'rubrics'>,
  judge: Judge,
): Promise<TurnScore> {
  const properties = rubrics.map(({ rubricId, rubricContent }) => ({
    id: rubricId,
    property: rubricContent.textProperty,
  }));
  const prompt = toPrompt(task, { properties, ...material }, FORM);
  const samples = await takeSamples(judge, prompt, judgeModelOptions, (answer) => readRubricAnswer(answer, rubrics));
  const turn = toTurnScore(samples, decideRubrics);
  if (turn.score === null) return turn;
  const decidedIds = new Set(turn.rubricScores?.flatMap(({ rubricId, score }) => (score === null ? [] : [rubricId])));
  const undecided = rubrics.flatMap(({ rubricId }) => (decidedIds.has(rubricId) ? [] : [`\`${rubricId}\``]));
  return undecided.length === 0 ? turn : { ...turn, failure: `The judge gave no verdict on ${undecided.join(', ')}.` };
}

/** Decides each rubric by the majority of the samples. The turn's score is the mean over the rubrics. */
function decideRubrics(samples: RubricScore[][]): TurnScore {
  const votes = Map.groupBy(samples.flat(), ({ rubricId }) => rubricId);
  const rubricScores = [...votes].map(([rubricId, verdicts]): RubricScore => {
    const scores = verdicts.flatMap(({ score }) => (score === null ? [] : [score]));
    const score = scores.length === 0 ? null : majority(scores);
    const rationale = verdicts.find((vote) => vote.score === score)?.rationale;
    return { rubricId, score, ...(rationale === undefined ? {} : { rationale }) };
  });
  return { score: toOverall(rubricScores.map(({ score }) => score)), rubricScores };
}

/**
 * Combines the scores of turns. The total score is the mean of all verdicts, and not the mean of the turns' scores. A
 * rubric's score is the mean over the turns in which it was judged.
 */
function toMetricScore(turns: TurnScore[]): MetricScore {
  const all = turns.flatMap(({ rubricScores }) => rubricScores ?? []);
  const byRubric = Map.groupBy(all, ({ rubricId }) => rubricId);
  const mean = (scores: RubricScore[]) => toOverall(scores.map(({ score }) => score));
  const rubricScores = [...byRubric].map(([rubricId, scores]) => ({ rubricId, score: mean(scores) }));
  return { score: mean(all), turns, rubricScores };
}

/** Builds a metric that judges each turn separately, with the rubrics of that turn. */
export const rubricsOfTurns =
  (metric: RubricMetric) =>
  async (pairs: TurnPair[], criterion: Criterion<'rubrics'>, judge: Judge): Promise<MetricScore> => {
    const inForce = pairs.map((pair) => ({ pair, rubrics: rubricsInForce(metric, criterion, pair) }));
    const turns: TurnScore[] = [];
    for (const { pair, rubrics } of inForce) {
      const { appDetails } = pair.actual;
      const material = {
        ...toTranscript(pair.actual, criterion.includeIntermediateResponsesInFinal),
        ...(appDetails ? { given: appDetails } : {}),
      };
      turns.push(await judgeRubrics(metric.task, rubrics, material, criterion, judge));
    }
    return toMetricScore(turns);
  };

/** A metric of the whole dialogue: the last turn gets the score; the other turns have none. */
export const rubricsOfDialogue =
  (metric: RubricMetric) =>
  async (pairs: TurnPair[], criterion: Criterion<'rubrics'>, judge: Judge): Promise<MetricScore> => {
    if (pairs.length === 0) return { score: null, turns: [], rubricScores: [] };
    const rubrics = rubricsInForce(metric, criterion, pairs.at(-1));
    const dialogue = pairs.map(({ actual }) => toTranscript(actual, criterion.includeIntermediateResponsesInFinal));
    const last = await judgeRubrics(metric.task, rubrics, { dialogue }, criterion, judge);
    return toMetricScore(pairs.map((_, place): TurnScore => (place === pairs.length - 1 ? last : { score: null })));
  };

/** Verdicts from this service's JSON or ADK's text blocks; `undefined` if the answer contains none. */
export function readRubricAnswer(answer: string, rubrics: Rubric[]): RubricScore[] | undefined {
  const json = toObjects(readJsonAnswer(answer)?.['verdicts']);
  const scores = json ? fromJson(json, rubrics) : fromBlocks(answer, rubrics);
  return scores.length > 0 ? scores : undefined;
}

function fromJson(verdicts: Record<string, unknown>[], rubrics: Rubric[]): RubricScore[] {
  return verdicts.flatMap(({ id, verdict, reason }) => {
    const rubric = rubrics.find(({ rubricId }) => rubricId === id);
    if (!rubric) return [];
    const word = toWord(verdict);
    const score = word === 'yes' || word === 'true' ? 1 : word === 'no' || word === 'false' ? 0 : null;
    return [{ rubricId: rubric.rubricId, score, ...(typeof reason === 'string' ? { rationale: reason } : {}) }];
  });
}

const PROPERTY = /^[^\S\n]*Property: ([^\n]*)/gm;

const ID = /^[^\S\n]*ID: ([^\n]*)/gm;

/** Matches a verdict's rationale. An answer with more matches than verdicts (in quoted text) is unreadable. */
const RATIONALE = /Rationale: ([^\n]*)/g;

const VERDICT = /Verdict: ([^\n]*)/g;

function fromBlocks(answer: string, rubrics: Rubric[]): RubricScore[] {
  const properties = [...answer.matchAll(PROPERTY)];
  const rationales = [...answer.matchAll(RATIONALE)].map(([, text = '']) => text.trim());
  const verdicts = [...answer.matchAll(VERDICT)].map(([, text = '']) => text.toLowerCase());
  if (rationales.length !== properties.length || verdicts.length !== properties.length) return [];
  const ids = [...answer.matchAll(ID)];
  return properties.flatMap(({ 1: property = '', index }, place) => {
    const previous = place === 0 ? -1 : (properties[place - 1]?.index ?? -1);
    const id = ids.findLast((match) => match.index > previous && match.index < index)?.[1]?.trim();
    const rubric =
      rubrics.find(({ rubricId }) => rubricId === id) ??
      rubrics.find(({ rubricContent }) => plain(rubricContent.textProperty ?? '') === plain(property));
    const verdict = verdicts[place] ?? '';
    const score = verdict.includes('yes') ? 1 : verdict.includes('no') ? 0 : null;
    return rubric ? [{ rubricId: rubric.rubricId, score, rationale: rationales[place] }] : [];
  });
}

const MARK = /[*_`#>\-•"' ]/;

/** Removes quotes and other marks at both ends without a regular expression, which would take quadratic time. */
function withoutMarks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && MARK.test(text.charAt(start))) start += 1;
  while (end > start && MARK.test(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/** Ignores what models change when they repeat a rubric: quotes, dashes, whitespace, list marks and upper case. */
const plain = (text: string): string =>
  withoutMarks(
    text
      .normalize('NFKC')
      .replaceAll(/[‘’‚‛]/g, "'")
      .replaceAll(/[“”„‟]/g, '"')
      .replaceAll(/[‐‑‒–—―−]/g, '-')
      .replaceAll(/\s+/g, ' '),
  ).toLowerCase();
