import { expect, test } from 'vitest';
import { z } from 'zod';
import { pickRefined } from '../../../src/core/zod-graph.ts';

const even = z.int().refine((value) => value % 2 === 0, 'not even');
const names = (schema: ReturnType<typeof pickRefined>) => Object.keys((schema as z.ZodObject).shape);

test('of an object only the members with rules of code are picked, at every depth of objects', () => {
  const schema = z.looseObject({ plain: z.string(), even, inner: z.object({ plain: z.string(), even }) });
  const picked = pickRefined(schema) as z.ZodObject;
  expect(names(picked)).toEqual(['even', 'inner']);
  expect(names(picked.shape['inner'] as z.ZodObject)).toEqual(['even']);
  const valid = { even: 2, inner: { even: 4 } };
  expect(picked.safeParse(valid).success).toBe(true);
  expect(picked.safeParse({ ...valid, even: 1 }).success).toBe(false);
  expect(picked.safeParse({ ...valid, inner: { even: 1 } }).success).toBe(false);
});

test('an object with a rule of its own, and what is none, are picked whole; without a rule there is nothing', () => {
  const pair = z.object({ a: z.int(), b: z.int() }).refine(({ a, b }) => a < b);
  const list = z.array(z.object({ plain: z.string(), even }));
  expect(pickRefined(pair)).toBe(pair);
  expect(pickRefined(list)).toBe(list);
  expect(pickRefined(even.nullish())).toBeDefined();
  expect(pickRefined(z.object({ plain: z.string() }))).toBeUndefined();
});
