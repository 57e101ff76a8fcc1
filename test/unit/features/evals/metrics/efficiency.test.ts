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
const statusless = <Value extends object>({ status: _status, ...rest }: Value & { status?: string }) => rest;

test('calls and tokens are counted for each turn, and their means', () =>
  checkAll('efficiency.tokensAndCalls', vectors.tokensAndCalls, (vector) => {
    const { toolCallCount, inferenceCallCount, tokenUsage } = toEfficiency(vector.turns.map(toTurn));
    expect([toolCallCount, inferenceCallCount, tokenUsage]).toEqual([
      statusless(vector.toolCallCount),
      statusless(vector.inferenceCallCount),
      statusless(vector.tokenUsage),
    ]);
  }));

test('durations are split between model, tools and the rest', () =>
  checkAll('efficiency.durations', vectors.durations, (vector) => {
    const { invocationDuration } = toEfficiency(vector.turns.map((turn) => ({ userContent, ...turn })));
    expect([invocationDuration.overall, invocationDuration.overallDetails]).toEqual([
      vector.overall,
      vector.overallDetails,
    ]);
    expect(invocationDuration.perInvocationDetails).toEqual(vector.perInvocation);
  }));

test('a model and tools that overlap leave no negative rest', () => {
  const [turn] = toEfficiency([{ userContent, duration: 1, modelDuration: 0.8, toolDuration: 0.8 }]).invocationDuration
    .perInvocationDetails;
  expect(turn).toEqual({ totalSeconds: 1, modelSeconds: 0.8, toolSeconds: 0.8, frameworkSeconds: 0 });
});

test('calls inside events count as tool calls, also two in one event', () => {
  const parts = [{ functionCall: { name: 'f' } }, { functionCall: { name: 'g' } }];
  const intermediateData = { invocationEvents: [{ author: 'a', content: { parts } }] };
  expect(toEfficiency([{ userContent, intermediateData }]).toolCallCount).toEqual({ overall: 2, perInvocation: [2] });
});

test('the mean of model calls is of the turns that have them, that of tokens of all turns', () => {
  const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 5 };
  const turns: Turn[] = [
    { userContent, intermediateData: { invocationEvents: [{ author: 'a', usageMetadata }] } },
    { userContent, intermediateData: { toolUses: [] } },
  ];
  const { inferenceCallCount, tokenUsage } = toEfficiency(turns);
  expect(inferenceCallCount).toEqual({ overall: 1, perInvocation: [1, null] });
  expect(tokenUsage.overall).toBe(7.5);
});
