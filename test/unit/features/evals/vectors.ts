import { readFileSync } from 'node:fs';
import { expect } from 'vitest';

const committed = new URL('../../../data/evaluation/vectors.json', import.meta.url);

/** The measured facts of one kind; `EVAL_VECTORS` names another file of the same shape. */
export function vectorsOf(kind: string): unknown {
  const all = JSON.parse(readFileSync(process.env['EVAL_VECTORS'] ?? committed, 'utf8')) as Record<string, unknown>;
  return all[kind];
}

/** Where this service differs from the library on purpose: which vectors, and why. */
export interface Deviation<Vector> {
  reason: string;
  holds: (vector: Vector) => boolean;
}

/**
 * Checks every vector of a kind and prints `N of N`. A vector that fails must be one of the deviations, and each
 * deviation is counted with its reason; the check itself throws where a vector does not hold.
 */
export async function checkAll<Vector>(
  kind: string,
  vectors: Vector[],
  check: (vector: Vector) => void | Promise<void>,
  deviations: Deviation<Vector>[] = [],
): Promise<void> {
  const failures: unknown[] = [];
  const deviating = new Map<string, number>();
  for (const vector of vectors) {
    try {
      await check(vector);
    } catch (error) {
      const deviation = deviations.find(({ holds }) => holds(vector));
      if (deviation) deviating.set(deviation.reason, (deviating.get(deviation.reason) ?? 0) + 1);
      else failures.push({ vector: JSON.stringify(vector).slice(0, 2000), error: String(error).slice(0, 2000) });
    }
  }
  const differing = [...deviating].map(([reason, count]) => `, ${count} deviating (${reason})`).join('');
  const equal = vectors.length - failures.length - [...deviating.values()].reduce((sum, count) => sum + count, 0);
  console.log(`${kind}: ${equal} of ${vectors.length}${differing}`);
  expect(failures).toEqual([]);
}

/** A matcher for a number of the vectors: equal within 1e-12, `null` only to `null`. */
export const near = (expected: number | null, tolerance = 1e-12): unknown =>
  expected === null
    ? null
    : expect.toSatisfy(
        (value: unknown) => typeof value === 'number' && Math.abs(value - expected) <= tolerance,
        `a number within ${tolerance} of ${expected}`,
      );
