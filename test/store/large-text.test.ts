import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { runAsUser } from '../../src/platform/context.ts';
import { LargeText } from '../../src/platform/db/row-bytes.ts';
import { statement, value } from '../../src/platform/db/statement.ts';
import { WITH_LARGE_TEXT } from '../../src/platform/db/value-types.ts';
import { poolOptions, testPool } from '../support/store.ts';

const store = testPool(4);

interface Row {
  n: number;
  text: string | LargeText | null;
  list: string[];
  more: string | LargeText;
}
/** Rows of up to 300 KB whose text takes one to four bytes a character, null in each fifth. */
const rowsSql = () => sql`
  select n, case when n % 5 <> 0 then repeat('aß€🙂', n * n * ${value('scale')}::int) end as text,
         array['x', repeat('y', n * 500)] as list, n || '"' as more
  from generate_series(1, ${value('count')}::int) n order by n`;
const selectBytes = statement<Row>(rowsSql, WITH_LARGE_TEXT);
const selectTexts = statement<Row>(() => sql`${rowsSql()} limit ${value('count')}::int`);

const given = (scale: number) => ({ scale, count: 40 });
const asTexts = (rows: Row[]) =>
  rows.map((row) => ({ ...row, text: row.text?.toString() ?? null, more: row.more.toString() }));

test('large texts come as bytes, the same as those that come as texts, on many connections at once', async () => {
  const scales = [1, 20, 5, 0, 11, 20, 3, 17];
  const expected = await Promise.all(scales.map((scale) => selectTexts(store.pool.db, given(scale))));
  expect(expected[1]?.at(-2)?.text).toHaveLength(39 * 39 * 20 * 5);
  for (const user of [undefined, 'alice']) {
    const read = () => Promise.all(scales.map((scale) => selectBytes(store.pool.db, given(scale))));
    const found = await (user === undefined ? read() : runAsUser(user, read));
    expect(found.map(asTexts)).toEqual(expected);
    // Without prepared statements node-postgres reads them.
    const isBytes = poolOptions(store.url, 1).preparesStatements || user !== undefined;
    expect(found[1]?.at(-2)?.text instanceof LargeText).toBe(isBytes);
  }
});

test('after a statement of bytes another one on the same connection gets texts', async () => {
  await store.pool.transaction(async (tx) => {
    for (let round = 0; round < 3; round += 1) {
      const [bytes, texts] = [await selectBytes(tx, given(2)), await selectTexts(tx, given(2))];
      expect(asTexts(bytes)).toEqual(texts);
      expect(texts.every(({ text }) => text === null || typeof text === 'string')).toBe(true);
    }
  });
});

test('a statement of bytes that fails says why, and its connection goes on', async () => {
  const fail = statement(
    () => sql`select repeat('x', 50000) as text, 1 / (n - 3) as n from generate_series(1, ${value('n')}::int) n`,
    WITH_LARGE_TEXT,
  );
  await store.pool.transaction(async (tx) => {
    await tx.execute(sql`savepoint here`);
    await expect(fail(tx, { n: 5 })).rejects.toMatchObject({ cause: { code: '22012' } });
    await tx.execute(sql`rollback to here`);
    expect(asTexts(await selectBytes(tx, given(2)))).toEqual(await selectTexts(tx, given(2)));
  });
});
