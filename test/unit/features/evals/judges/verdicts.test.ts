import { expect, test } from 'vitest';
import {
  finalResponseMatch,
  finalResponsePrompt,
  readFinalResponseVerdict,
  readValidity,
  safety,
  simulatorQuality,
} from '../../../../../src/features/evals/judges/verdicts.ts';
import { type CriterionKind, readCriterion } from '../../../../../src/features/evals/metrics/criteria.ts';
import type { Turn } from '../../../../../src/features/evals/metrics/turn.ts';
import { checkAll, vectorsOf } from '../vectors.ts';
import { type Answer, content, scoresOf, type ScoredVector, scriptedJudge, toVector, turn } from './judge-vectors.ts';

type SampleVector = ScoredVector & { name: string; numSamples: number; threshold: number; answersByTurn: Answer[][] };
type SimulatorVector = ScoredVector & { startingPrompt: string; userTexts: string[]; answers: Answer[] };
const vectors = vectorsOf('judge') as {
  finalResponseLabels: { answer: Answer; score: number | null }[];
  finalResponseSamples: SampleVector[];
  finalResponseInputs: { includeIntermediateResponsesInFinal: boolean; promptHolds: string[] }[];
  simulatorLabels: { answer: string; label: string }[];
  simulator: SimulatorVector[];
};

const criterion = <Kind extends CriterionKind>(kind: Kind, threshold: number, numSamples: number) =>
  readCriterion(
    kind,
    { metricName: 'm', criterion: { threshold, judgeModelOptions: { numSamples } } },
    { judgeModel: 'j' },
  );

test('a verdict is read from what a judge says', () =>
  checkAll('judge.finalResponseLabels', vectors.finalResponseLabels, ({ answer, score }) =>
    expect(readFinalResponseVerdict([answer ?? ''].flat().join('\n')) ?? null).toBe(score),
  ));

test('our own JSON is read first, in prose and fences too', () => {
  const answers = [
    '{"reason": "r", "verdict": "Valid"}',
    'Here:\n```json\n{"reason": "r", "verdict": "invalid"}\n```\nDone {}',
    'I say {"reason": "x {y}", "verdict": "valid"}.',
    '{"verdict": "invalid", "is_the_agent_response_valid": "valid"}',
    '{"verdict": "perhaps"}',
    '[{"verdict": "valid"}]x',
  ];
  expect(answers.map(readFinalResponseVerdict)).toEqual([1, 0, 1, 0, undefined, 1]);
});

/** True where ADK decides by fewer than half of the samples. */
const isThin = ({ numSamples, answersByTurn }: SampleVector) =>
  answersByTurn.some((answers) => {
    const readable = answers.filter(
      (answer) => readFinalResponseVerdict([answer ?? ''].flat().join('\n')) !== undefined,
    );
    return readable.length > 0 && readable.length * 2 < numSamples;
  });

test('the majority of the samples decides a turn', () =>
  checkAll(
    'judge.finalResponseSamples',
    vectors.finalResponseSamples,
    async (vector) => {
      const { judge } = scriptedJudge(vector.answersByTurn.flat());
      const pairs = vector.answersByTurn.map(() => ({ actual: turn(), expected: turn() }));
      expect(
        toVector(
          await finalResponseMatch(pairs, criterion('judge', vector.threshold, vector.numSamples), judge),
          vector,
        ),
      ).toEqual(scoresOf(vector));
    },
    [{ reason: 'fewer than half of the samples readable: not evaluated', holds: isThin }],
  ));

const steps = (text: string): Turn['intermediateData'] => ({
  invocationEvents: [{ author: 'a', content: content(text) }],
});

test("the judge is given the reference's question and both answers", () =>
  checkAll(
    'judge.finalResponseInputs',
    vectors.finalResponseInputs,
    ({ includeIntermediateResponsesInFinal: whole, promptHolds }) => {
      const pair = {
        actual: { ...turn('ASKED-ACTUAL', 'FINAL-ACTUAL'), intermediateData: steps('EARLY-ACTUAL') },
        expected: { ...turn('ASKED-REFERENCE', 'FINAL-REFERENCE'), intermediateData: steps('EARLY-REFERENCE') },
      };
      const prompt = finalResponsePrompt(pair, whole);
      const found = ['ASKED', 'EARLY', 'FINAL'].flatMap((word) =>
        ['ACTUAL', 'REFERENCE'].map((side) => `${word}-${side}`).filter((text) => prompt.includes(text)),
      );
      expect(found).toEqual(promptHolds);
    },
  ));

test('a failed sample is asked for once more; one of five readable samples decides nothing', async () => {
  let calls = 0;
  const flaky = async () => {
    calls += 1;
    if (calls % 2 === 1) throw new Error('busy');
    return '{"verdict": "valid"}';
  };
  const pairs = [{ actual: turn(), expected: turn() }];
  expect(await finalResponseMatch(pairs, criterion('judge', 0.5, 3), flaky)).toEqual({
    score: 1,
    turns: [{ score: 1 }],
  });
  expect(calls).toBe(6);
  const { judge } = scriptedJudge(['?', '?', '{"verdict": "valid"}', '__error__', '?']);
  expect(await finalResponseMatch(pairs, criterion('judge', 0.5, 5), judge)).toEqual({
    score: null,
    turns: [
      {
        score: null,
        explanation: '1 of 5 samples of the judge were readable, fewer than half (the answer could not be read).',
      },
    ],
  });
});

test('half of the samples is enough, and a judge that is down says why', async () => {
  const pairs = [{ actual: turn(), expected: turn() }];
  const half = scriptedJudge(['?', '{"verdict": "valid"}']);
  expect((await finalResponseMatch(pairs, criterion('judge', 0.5, 2), half.judge)).score).toBe(1);
  const down = scriptedJudge(['__error__', '__error__']);
  expect((await finalResponseMatch(pairs, criterion('judge', 0.5, 2), down.judge)).turns).toEqual([
    { score: null, explanation: '0 of 2 samples of the judge were readable, fewer than half (the model is down).' },
  ]);
});

test('no more calls are open at once than the criterion allows', async () => {
  let [open, most] = [0, 0];
  const judge = async () => {
    open += 1;
    most = Math.max(most, open);
    await new Promise(setImmediate);
    open -= 1;
    return '{"verdict": "valid"}';
  };
  const options = { numSamples: 5, parallelismLimit: 2 };
  const read = readCriterion(
    'judge',
    { metricName: 'm', criterion: { threshold: 1, judgeModelOptions: options } },
    { judgeModel: 'j' },
  );
  await finalResponseMatch([{ actual: turn(), expected: turn() }], read, judge);
  expect(most).toBe(2);
});

test('a case without an expected conversation cannot be matched', async () => {
  await expect(finalResponseMatch([{ actual: turn() }], criterion('judge', 1, 1), async () => '')).rejects.toThrow(
    'final_response_match_v2 needs a case with an expected conversation.',
  );
});

test('safety: a harmless answer is 1, a harmful one 0', async () => {
  const { judge, prompts } = scriptedJudge(['{"verdict": "harmless"}', '{"verdict": "harmful"}', 'no idea']);
  const pairs = ['A', 'B', 'C'].map((text) => ({ actual: turn('Q', text) }));
  expect(await safety(pairs, criterion('judge', 0.5, 1), judge)).toEqual({
    score: 0.5,
    turns: [
      { score: 1 },
      { score: 0 },
      {
        score: null,
        explanation: '0 of 1 samples of the judge were readable, fewer than half (the answer could not be read).',
      },
    ],
  });
  expect(prompts.map((prompt) => prompt.includes('"agent": "B"'))).toEqual([false, true, false]);
});

test('the validity of a simulated message is read in any case', () =>
  checkAll('judge.simulatorLabels', vectors.simulatorLabels, ({ answer, label }) => {
    const validity = readValidity(answer);
    expect(validity === undefined ? 'NOT_FOUND' : validity === 1 ? 'VALID' : 'INVALID').toBe(label);
  }));

test('a simulated user starts as planned, goes on as planned and ends where the plan ends', () =>
  checkAll('judge.simulator', vectors.simulator, async (vector) => {
    const { judge } = scriptedJudge(vector.answers);
    const pairs = vector.userTexts.map((text) => ({ actual: turn(text) }));
    const scenario = { startingPrompt: vector.startingPrompt, conversationPlan: 'plan' };
    expect(
      toVector(
        await simulatorQuality(pairs, criterion('simulator', vector.threshold ?? 0.5, 1), judge, scenario),
        vector,
      ),
    ).toEqual(scoresOf(vector));
  }));

test('a simulated turn that could not be judged is not a good one', async () => {
  const { judge } = scriptedJudge(['?', '{"is_valid": true}']);
  const pairs = [{ actual: turn('Start') }, { actual: turn('b') }];
  const scenario = { startingPrompt: 'Start', conversationPlan: 'plan' };
  const { score } = await simulatorQuality(pairs, criterion('simulator', 0.5, 1), judge, scenario);
  expect(score).toBe(0.5);
  await expect(simulatorQuality(pairs, criterion('simulator', 0.5, 1), judge, undefined)).rejects.toThrow('scenario');
});

test('the validity of a message is also read from a member in capitals, with a blank before its colon', () => {
  expect([readValidity('{"IS_VALID" : "Valid",'), readValidity('{"Is_Valid": False}')]).toEqual([1, 0]);
});
