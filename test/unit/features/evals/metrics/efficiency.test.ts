import { expect, test } from 'vitest';
import { toEfficiency } from '../../../../../src/features/evals/metrics/efficiency.ts';
import type { Turn, TurnEvent } from '../../../../../src/features/evals/metrics/turn.ts';
import { checkAll, vectorsOf } from '../vectors.ts';

interface Figures {
  overall: number | null;
  perInvocation: (number | null)[];
}
interface TokenVector {
  turns: (TurnEvent[] | { toolUses: number })[];
  toolCallCount: Figures;
  inferenceCallCount: Figures;
  tokenUsage: Figures & { overallDetails: unknown; perInvocationDetails: unknown[] };
}
interface DurationVector {
  turns: { duration: number | null; modelDuration: number | null; toolDuration: number | null }[];
  overall: number | null;
  overallDetails: unknown;
  perInvocation: unknown[];
}
const vectors = vectorsOf('efficiency') as { tokensAndCalls: TokenVector[]; durations: DurationVector[] };
const userContent = { parts: [] };

const toTurn = (turn: TokenVector['turns'][number]): Turn => ({
  userContent,
  intermediateData: Array.isArray(turn)
    ? { invocationEvents: turn }
    : { toolUses: Array.from({ length: turn.toolUses }, () => ({ name: 'f' })) },
});
/** The efficiency of each turn by itself, which ADK names beside the means. */
const ofEach = (turns: Turn[]) => turns.map((turn) => toEfficiency([turn]));

test('calls and tokens are counted for each turn, and their means', () =>
  checkAll('efficiency.tokensAndCalls', vectors.tokensAndCalls, (vector) => {
    const turns = vector.turns.map(toTurn);
    for (const name of ['toolCallCount', 'inferenceCallCount'] as const) {
      expect(toEfficiency(turns)[name]).toEqual(vector[name].overall);
      expect(ofEach(turns).map((each) => each[name])).toEqual(vector[name].perInvocation);
    }
    const { tokenUsage } = toEfficiency(turns);
    expect(tokenUsage).toEqual(vector.tokenUsage.overallDetails);
    expect(tokenUsage?.totalTokens ?? null).toEqual(vector.tokenUsage.overall);
    const each = ofEach(turns).map((turn) => turn.tokenUsage);
    expect(each).toEqual(vector.tokenUsage.perInvocationDetails);
    expect(each.map((tokens) => tokens?.totalTokens ?? null)).toEqual(vector.tokenUsage.perInvocation);
  }));

test('durations are split between model, tools and the rest', () =>
  checkAll('efficiency.durations', vectors.durations, (vector) => {
    const turns = vector.turns.map((turn) => ({ userContent, ...turn }));
    const { invocationDuration } = toEfficiency(turns);
    expect(invocationDuration?.totalSeconds ?? null).toEqual(vector.overall);
    expect(invocationDuration).toEqual(vector.overallDetails);
    expect(ofEach(turns).map((each) => each.invocationDuration)).toEqual(vector.perInvocation);
  }));

test('a model and tools that overlap leave no negative rest', () => {
  const turn = { userContent, duration: 1, modelDuration: 0.8, toolDuration: 0.8 };
  expect(toEfficiency([turn]).invocationDuration).toEqual({
    totalSeconds: 1,
    modelSeconds: 0.8,
    toolSeconds: 0.8,
    frameworkSeconds: 0,
  });
});

test('calls inside events count as tool calls, also two in one event', () => {
  const parts = [{ functionCall: { name: 'f' } }, { functionCall: { name: 'g' } }];
  const intermediateData = { invocationEvents: [{ author: 'a', content: { parts } }] };
  expect(toEfficiency([{ userContent, intermediateData }]).toolCallCount).toBe(2);
});

test('the mean of model calls is of the turns that have them, that of tokens of all turns', () => {
  const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 5 };
  const turns: Turn[] = [
    { userContent, intermediateData: { invocationEvents: [{ author: 'a', usageMetadata }] } },
    { userContent, intermediateData: { toolUses: [] } },
  ];
  const { inferenceCallCount, tokenUsage } = toEfficiency(turns);
  expect(ofEach(turns).map((each) => each.inferenceCallCount)).toEqual([1, null]);
  expect(inferenceCallCount).toBe(1);
  expect(tokenUsage?.totalTokens).toBe(7.5);
});
