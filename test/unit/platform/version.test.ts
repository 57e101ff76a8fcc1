import { expect, test } from 'vitest';
import { isNewer } from '../../../src/platform/version.ts';

test.each([
  ['0.10.0', '0.9.0'],
  ['1.0.0', '1.0.0-rc.1'],
  ['1.0.0-rc.10', '1.0.0-rc.9'],
  ['1.0.0-rc.1', '1.0.0-beta.2'],
  ['1.0.1-rc.1', '1.0.0'],
])('%s follows %s', (later, earlier) => {
  expect([isNewer(later, earlier), isNewer(earlier, later)]).toEqual([true, false]);
});

test.each([
  ['0.1.0', '0.1.0'],
  ['1.0.0-rc.1', '1.0.0-rc.1'],
  ['1.0.0+build.2', '1.0.0+build.1'],
])('neither of %s and %s follows the other', (one, other) => {
  expect([isNewer(one, other), isNewer(other, one)]).toEqual([false, false]);
});
