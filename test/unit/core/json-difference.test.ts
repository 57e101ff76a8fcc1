import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { toExactInteger } from '../../../src/core/exact-json.ts';
import { type JsonDifference, jsonDifference } from '../../../src/core/json-difference.ts';

/** The definition: of values that are not the same the first members, in order, that are not the same either. */
function defined(before: unknown, after: unknown, path: string): JsonDifference | undefined {
  if (isDeepStrictEqual(before, after)) return undefined;
  if (!isContainer(before) || !isContainer(after) || Array.isArray(before) !== Array.isArray(after)) {
    return { path, before: before ?? null, after: after ?? null };
  }
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const pointer = `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    const found = defined(getMember(before, name), getMember(after, name), pointer);
    if (found) return found;
  }
  return undefined;
}
const isContainer = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
const getMember = (value: Record<string, unknown>, name: string): unknown =>
  Object.hasOwn(value, name) ? value[name] : undefined;

const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(null, 0, -0, 1, 'a', true, ''),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b', '~', '/', '1', '0', '__proto__', 'toString'), tie('value'), { maxKeys: 3 }),
  ),
}));
const json = value.map((made) => JSON.parse(JSON.stringify(made)) as unknown);

test('the first difference is that of the definition', () => {
  fc.assert(
    fc.property(json, json, (before, after) => {
      expect(jsonDifference(before, after, '/x')).toEqual(defined(before, after, '/x'));
    }),
    { numRuns: 2_000 },
  );
});

test('integers that no float holds are compared by their digits', () => {
  const [one, same, other] = ['123', '123', '124'].map((end) => ({ id: toExactInteger(`1234567890123456${end}`) }));
  expect(jsonDifference(one, same)).toBeUndefined();
  expect(jsonDifference(one, other)).toMatchObject({ path: '/id' });
  expect(jsonDifference(one, { id: 1234567890123456 })).toMatchObject({ path: '/id' });
});
