import { parseSync } from 'oxc-parser';
import { expect, test } from 'vitest';
import { applyChanges } from '../fault/support/find-place.ts';
import { findTest } from '../fault/support/mutant.ts';
import { MUTANTS } from '../fault/support/mutants.ts';

/** That they are killed is tried by `npm run test:mutants`; here only that a change of the product has not lost one. */

test.each(MUTANTS)('the mutant that $name finds its place, and its tests are there', ({ changes, tests }) => {
  for (const [path, text] of applyChanges(changes)) {
    if (path.endsWith('.ts')) expect(parseSync(path, text).errors).toEqual([]);
  }
  for (const name of tests) expect(() => findTest(name)).not.toThrow();
});

test('no two mutants have one name', () => {
  const names = MUTANTS.map(({ name }) => name);
  expect(names).toEqual([...new Set(names)]);
});
