import { expect, test } from 'vitest';
import { samplingSchema } from '../../../../src/agent/definition/model.ts';
import { harnessOverridesSchema, toAgentOverrides } from '../../../../src/agent/definition/overrides.ts';
import { toWritten } from '../../../../src/agent/definition/snake-case.ts';

test('each sampling parameter that overrides the agent is checked and published', () => {
  const written = Object.keys(samplingSchema.shape).map(toWritten);
  expect(Object.keys(harnessOverridesSchema.shape)).toEqual(expect.arrayContaining(written));
  expect(harnessOverridesSchema.safeParse({ reasoning_effort: 'hgih' }).success).toBe(false);
  expect(toAgentOverrides({ reasoning_effort: 'low', stop: ['END'] }).sampling).toEqual({
    reasoningEffort: 'low',
    stopSequences: ['END'],
  });
});
