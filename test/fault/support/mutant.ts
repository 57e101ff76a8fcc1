import type { Change } from './find-place.ts';

/** A way to break the product, and the tests that are nearest to it. */
export interface Mutant {
  /** What the product does then, as the end of `it …`. */
  name: string;
  changes: Change[];
  /**
   * The test files that must turn red, all of one configuration of vitest; `only` is a part of the names to run [all].
   */
  tests: string[];
  only?: string;
}

/** One change. */
export const change = (place: string, from: string, to: string): Change[] => [{ in: place, from, to }];
