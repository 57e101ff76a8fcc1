import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { boundedJson, modelAnswerAttributes, toolCallAttributes } from '../../../../src/observability/traces/span.ts';

const LIMIT = 32 * 1024;

describe('boundedJson', () => {
  test('anything becomes JSON within the limit, what fits as it is', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.integer({ min: 1, max: 4000 }), (value, times) => {
        const big = { value, many: Array.from({ length: times }, () => value) };
        const [whole, text] = [JSON.stringify(big), boundedJson(big)];
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(LIMIT);
        expect(() => JSON.parse(text) as unknown).not.toThrow();
        if (Buffer.byteLength(whole) <= LIMIT) expect(text).toBe(whole);
      }),
      { numRuns: 200 },
    );
  });

  test('long strings lose their ends, long arrays their beginnings', () => {
    const shortened = JSON.parse(boundedJson({ text: `begin${'é'.repeat(LIMIT)}` })) as { text: string };
    expect(shortened.text).toMatch(/^beginé+… \[\d+ characters left out\]$/);
    const list = JSON.parse(boundedJson(Array.from({ length: 10_000 }, (_, index) => `item ${index}`))) as string[];
    expect(list[0]).toBe(`[${10_000 - 200} elements left out] …`);
    expect(list.at(-1)).toBe('item 9999');
  });

  test('what cannot be shortened leaves its size', () => {
    const wide = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`key${index}`, index]));
    expect(JSON.parse(boundedJson(wide))).toEqual({ left_out: expect.stringMatching(/^\d+ characters$/) });
    expect(boundedJson(undefined)).toBe('null');
  });
});

test('no attribute is null, whatever an event leaves out', () => {
  const bare = modelAnswerAttributes({});
  expect(bare).toEqual({ 'gcp.vertex.agent.llm_response': '{}' });
  const nulls = { id: null, content: null, finishReason: null, usageMetadata: { promptTokenCount: null } };
  expect(Object.values(modelAnswerAttributes(nulls)).every((value) => typeof value === 'string')).toBe(true);
});

test('names and ids that a model makes up are cut', () => {
  const call = { id: 'i'.repeat(10_000), name: 'n'.repeat(10_000), args: {} };
  expect(toolCallAttributes(call)['gen_ai.tool.name']).toBe('n'.repeat(200));
  expect(toolCallAttributes(call)['gen_ai.tool.call.id']).toBe('i'.repeat(200));
});
