import { expect, test } from 'vitest';
import { type FinishedCase, toCaseText, toResultId } from '../../../../../src/features/evals/runs/result-document.ts';
import { scoreCase } from '../../../../../src/features/evals/scoring/score-case.ts';
import { content, turn } from '../judges/judge-vectors.ts';

const context = { judgeModel: 'j', judgeFor: () => async () => '' };
const scored = (pairs: FinishedCase['pairs'], metricNames: string[]) =>
  scoreCase(
    pairs,
    metricNames.map((metricName) => ({ metricName, threshold: 0.5 })),
    context,
  );
const finished = (more: Partial<FinishedCase>): FinishedCase => ({
  evalId: 'c',
  sessionId: '___eval___session___1',
  userId: 'u',
  pairs: [],
  ...more,
});
const documentOf = (one: FinishedCase) => JSON.parse(toCaseText('set', one)) as Record<string, unknown>;

test('the id of a result ends with its time', () => {
  expect(toResultId('a/b', 'set', 1_795_294_140_161_259)).toEqual({
    evalSetResultId: 'a/b_set_1795294140.161259',
    evalSetResultName: 'a_b_set_1795294140.161259',
    creationTimestamp: 1_795_294_140.161259,
  });
});

test('a case that passed: shown turns have what happened in the form of ADK 1.x, and an answer', async () => {
  const part = { functionCall: { id: 'c1', name: 'f', args: {} } };
  const answered = { functionResponse: { id: 'c1', name: 'f', response: { ok: true } } };
  const actual = {
    ...turn('Q', 'A'),
    intermediateData: { invocationEvents: [{ author: 'a', content: { parts: [part, answered] }, modelVersion: 'm' }] },
    appDetails: { agentDetails: { a: { name: 'a', instructions: 'Be short.', toolDeclarations: [] } } },
  };
  const pairs = [{ actual, expected: turn('Q', 'A') }];
  const none = { toolUses: [], toolResponses: [], intermediateResponses: [] };
  const calls = { ...none, toolUses: [part.functionCall], toolResponses: [answered.functionResponse] };
  const passed = { metricName: 'response_match_score', threshold: 0.5, score: 1, evalStatus: 1 };
  const document = documentOf(
    finished({ pairs, scored: await scored(pairs, ['response_match_score', 'tool_arguments_score']) }),
  );
  expect(document).toEqual({
    evalSetFile: 'set',
    evalSetId: 'set',
    evalId: 'c',
    finalEvalStatus: 1,
    evalMetricResults: [],
    overallEvalMetricResults: [passed, { metricName: 'tool_arguments_score', threshold: 0.5, evalStatus: 3 }],
    evalMetricResultPerInvocation: [
      {
        actualInvocation: { ...actual, intermediateData: calls },
        expectedInvocation: {
          ...turn('Q', 'A'),
          intermediateData: none,
        },
        evalMetricResults: [passed],
      },
    ],
    sessionId: '___eval___session___1',
    userId: 'u',
    efficiency: { toolCallCount: 1, inferenceCallCount: 1, tokenUsage: {}, invocationDuration: {} },
    notEvaluated: ['tool_arguments_score'],
  });
});

test('a silent agent has an empty answer to show, and its case fails', async () => {
  const pairs = [{ actual: turn('Q', null), expected: turn('Q', 'A') }];
  expect(documentOf(finished({ pairs, scored: await scored(pairs, ['response_match_score']) }))).toMatchObject({
    finalEvalStatus: 2,
    evalMetricResultPerInvocation: [
      {
        actualInvocation: { finalResponse: content('') },
        evalMetricResults: [{ metricName: 'response_match_score', score: 0, evalStatus: 2 }],
      },
    ],
  });
});

test('a case that could not be brought to an end keeps its turns and its reason', () => {
  const pairs = [{ actual: turn('1') }, { actual: turn('2', null) }];
  const inference = {
    metricName: 'inference',
    evalStatus: 2,
    details: { rubricScores: [{ rubricId: 'inference', rationale: 'The model is down.' }] },
  };
  const error = { message: 'The model is down.', failedTurn: 1 };
  expect(documentOf(finished({ pairs, error }))).toMatchObject({
    finalEvalStatus: 2,
    overallEvalMetricResults: [inference],
    evalMetricResultPerInvocation: [{ evalMetricResults: [] }, { evalMetricResults: [inference] }],
    error: 'The model is down.',
    failedTurn: 1,
  });
});

test('a long case has short texts, which say so, and then fewer turns', () => {
  const long = 'é'.repeat(3_000_000);
  const pairs = [{ actual: turn(long, 'A') }, { actual: turn('Q', 'B') }];
  const document = documentOf(finished({ pairs }));
  expect(document).toMatchObject({ omittedTurns: 0, evalMetricResultPerInvocation: [{}, {}] });
  expect(JSON.stringify(document)).toContain(`${'é'.repeat(16_384)}… (3000000 characters)`);
  const many = Array.from({ length: 1_000 }, () => ({ actual: turn('q'.repeat(5_000), 'A') }));
  const calls = Array.from({ length: 2_000 }, () => ({ functionCall: { name: 'f', args: {} } }));
  const wide = {
    ...turn('Q', 'A'),
    intermediateData: { invocationEvents: [{ author: 'a', content: { parts: calls } }] },
  };
  for (const turns of [many, Array.from({ length: 50 }, () => ({ actual: wide }))]) {
    const text = toCaseText('set', finished({ pairs: turns }));
    expect(text.length).toBeLessThanOrEqual(1_048_576);
    const { omittedTurns, evalMetricResultPerInvocation: kept } = JSON.parse(text);
    expect(omittedTurns + kept.length).toBe(turns.length);
  }
});
