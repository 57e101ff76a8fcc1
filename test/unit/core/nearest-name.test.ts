import { expect, test } from 'vitest';
import { nearestName } from '../../../src/core/nearest-name.ts';

const KNOWN = ['tool_trajectory_avg_score', 'response_match_score', 'safety_v1', 'final_response_match_v2'];

test.each([
  ['response_match', 'response_match_score'],
  ['safty', 'safety_v1'],
  ['safety', 'safety_v1'],
  ['Safety-V2', 'safety_v1'],
  ['tool_trajectory_average', undefined],
  ['final_respons_match', 'final_response_match_v2'],
  ['short', undefined],
  ['x', undefined],
  ['', undefined],
  ['response_match_score'.repeat(10), undefined],
])('%s resembles %s', (name, expected) => {
  expect(nearestName(name, KNOWN)).toBe(expected);
});
