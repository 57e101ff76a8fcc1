import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { shapedStatement } from '../../src/db/statement.ts';
import { testPool } from '../support/store.ts';

const store = testPool(1);

test('a statement is written once for each shape of what it is given; texts and numbers are parameters', async () => {
  let written = 0;
  type Given = { who: { name: string; age?: number }; isLoud: boolean; note: string | null };
  const greet = shapedStatement<Given, { text: string }>(({ who, isLoud, note }) => {
    written++;
    const name = isLoud ? sql`upper(${who.name}::text)` : sql`${who.name}::text`;
    const age = who.age === undefined ? sql`'?'` : sql`${who.age}::int + 1`;
    return sql`select concat_ws(' ', ${name}, ${age}, ${note === null ? sql`null` : sql`${note}::text`}) as text`;
  });
  const textOf = async (given: Given) => (await greet(store.pool.db, given))[0]?.text;
  expect(await textOf({ who: { name: "it's", age: 1 }, isLoud: false, note: null })).toBe("it's 2");
  expect(await textOf({ who: { name: '$1; drop', age: 41 }, isLoud: false, note: null })).toBe('$1; drop 42');
  expect(written).toBe(1);
  expect(await textOf({ who: { name: 'a', age: 1 }, isLoud: true, note: null })).toBe('A 2');
  expect(await textOf({ who: { name: 'a' }, isLoud: false, note: null })).toBe('a ?');
  expect(await textOf({ who: { name: 'a' }, isLoud: false, note: 'n' })).toBe('a ? n');
  expect(await textOf({ who: { name: 'b' }, isLoud: false, note: 'true' })).toBe('b ? true');
  expect(written).toBe(4);
});
