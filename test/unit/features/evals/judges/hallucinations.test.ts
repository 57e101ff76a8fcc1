import { expect, test } from 'vitest';
import { hallucinations, readLabels } from '../../../../../src/features/evals/judges/hallucinations.ts';
import { readCriterion } from '../../../../../src/features/evals/metrics/criteria.ts';
import type { Turn } from '../../../../../src/features/evals/metrics/turn.ts';
import { checkAll, vectorsOf } from '../vectors.ts';
import { type Answer, content, scoresOf, type ScoredVector, scriptedJudge, toVector, turn } from './judge-vectors.ts';

type Vector = ScoredVector & {
  name: string;
  answersByTurn: Answer[][];
  callsLeft: number;
  intermediateTexts?: string[];
  finalText?: string;
  evaluateIntermediateNlResponses?: boolean;
};
const { hallucinations: vectors } = vectorsOf('judge') as { hallucinations: Vector[] };

const criterion = (threshold: number, evaluateIntermediateNlResponses = false) =>
  readCriterion(
    'hallucinations',
    { metricName: 'm', criterion: { threshold, evaluateIntermediateNlResponses } },
    { judgeModel: 'j' },
  );
const withSteps = (texts: string[], answered: string | null): Turn => ({
  ...turn('ASKED', answered),
  intermediateData: { invocationEvents: texts.map((text) => ({ author: 'a', content: content(text) })) },
});

test('the sentences of a turn are labelled in two calls', () =>
  checkAll('judge.hallucinations', vectors, async (vector) => {
    const { judge, left } = scriptedJudge(vector.answersByTurn.flat());
    const pairs = vector.answersByTurn.map((answers) => ({
      actual: withSteps(vector.intermediateTexts ?? [], answers.length === 0 ? null : (vector.finalText ?? 'ANSWER')),
    }));
    const read = criterion(vector.threshold ?? 0.5, vector.evaluateIntermediateNlResponses);
    expect(toVector(await hallucinations(pairs, read, judge), vector)).toEqual(scoresOf(vector));
    expect(left).toHaveLength(vector.callsLeft);
  }));

const sentences = '{"sentences": ["one", "two"]}';
const labels = (...given: string[]) => JSON.stringify({ labels: given.map((label) => ({ sentence: 's', label })) });

test('our own JSON is read first', () => {
  expect(
    readLabels(labels('Supported', 'not_applicable', 'unsupported', 'contradictory', 'disputed', 'dunno')),
  ).toEqual([1, 1, 0, 0, 0]);
});

test('texts before the answer count only where the criterion says so, each with what came before it', async () => {
  const answers = [sentences, labels('supported', 'supported'), sentences, labels('unsupported', 'unsupported')];
  const { judge, prompts } = scriptedJudge(answers);
  const pairs = [{ actual: withSteps(['EARLY'], 'LAST') }];
  expect(await hallucinations(pairs, criterion(0.5, true), judge)).toEqual({ score: 0.5, turns: [{ score: 0.5 }] });
  expect(prompts.map((prompt) => [prompt.includes('EARLY'), prompt.includes('LAST')])).toEqual([
    [true, false],
    [false, false],
    [false, true],
    [true, false],
  ]);
});

test('the judge sees the earlier turns and the results of tools', async () => {
  const { judge, prompts } = scriptedJudge([sentences, labels('supported'), sentences, labels('supported')]);
  const part = { functionResponse: { name: 'price', response: { eur: 5 } } };
  const asked: Turn = {
    ...turn('Q-1', 'A-1'),
    intermediateData: { invocationEvents: [{ content: { parts: [part] } }] },
  };
  await hallucinations([{ actual: asked }, { actual: turn('Q-2', 'A-2') }], criterion(0.5), judge);
  for (const said of ['Q-1', 'A-1', 'Q-2', '"eur": 5']) expect(prompts[3]).toContain(said);
});

test('a judge that is down, or says nothing to read, is named', async () => {
  const run = async (answers: Answer[]) =>
    (await hallucinations([{ actual: turn() }], criterion(0.5), scriptedJudge(answers).judge)).turns;
  expect(await run(['__error__'])).toEqual([{ score: null, explanation: 'the model is down' }]);
  expect(await run(['?'])).toEqual([{ score: null, explanation: 'The judge found no sentences in the text.' }]);
  expect(await run([sentences, '?'])).toEqual([
    { score: null, explanation: 'The labels of the judge could not be read.' },
  ]);
});
