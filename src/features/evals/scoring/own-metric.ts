import type { MetricTurn, OwnMetric } from '../../../agent/definition/eval-module.ts';
import { MetricError, type MetricScore, toOverall, type TurnScore } from '../metrics/status.ts';
import { callsOf, textOf, type Turn, type TurnPair } from '../metrics/turn.ts';

/**
 * A metric of the application's own over a conversation: the mean of its turns.
 * @throws {MetricError} where it fails, or gives something else than a number from 0 to 1 or null.
 */
export async function ownMetric(name: string, own: OwnMetric, pairs: TurnPair[]): Promise<MetricScore> {
  const turns: TurnScore[] = [];
  for (const { actual, expected } of pairs) {
    turns.push({ score: await scoreOf(name, own, toMetricTurn(actual), expected && toMetricTurn(expected)) });
  }
  return { score: toOverall(turns.map(({ score }) => score)), turns };
}

async function scoreOf(name: string, own: OwnMetric, actual: MetricTurn, expected: MetricTurn | undefined) {
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
  question: textOf(userContent),
  answer: textOf(finalResponse),
  toolCalls: callsOf(intermediateData).map(({ name, args }) => ({ name: name ?? '', args: args ?? {} })),
});
