import { globSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Change } from './find-place.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const TESTS = globSync('test/**/*.test.ts', { cwd: ROOT });

/** A way to break the product, and the tests that are nearest to it. */
export interface Mutant {
  /** What the product does then, as the end of `it …`. */
  name: string;
  changes: Change[];
  /**
   * The test files that must turn red, all of one configuration of vitest, by their names, with a folder before the
   * name where several have it; `only` is a part of the names of the tests to run [all].
   */
  tests: string[];
  only?: string;
}

/** One change. */
export const change = (place: string, from: string, to: string): Change[] => [{ in: place, from, to }];

/** The path of a test file of that name, wherever it is. @throws {Error} when there is none, or several */
export function findTest(name: string): string {
  const found = TESTS.filter((path) => path.endsWith(`/${name}.test.ts`));
  if (found[0] !== undefined && found.length === 1) return found[0];
  throw new Error(`${found.length} test files are named ${name}`);
}
