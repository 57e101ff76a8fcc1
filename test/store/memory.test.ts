import { sql } from 'drizzle-orm';
import { expect, inject, test } from 'vitest';
import { addToMemory, deleteMemories, searchMemories } from '../../src/features/memory/memory-store.ts';
import { deleteSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

interface Found {
  content: { parts: { text: string }[] };
}

const store = testPool();
const textsOf = async (key: ReturnType<typeof newKey>, words: string) =>
  (await searchMemories(store.pool.db, key, words, 10)).map(
    (text) => (JSON.parse(text) as Found).content.parts[0]?.text,
  );

/** Locks that somebody waits for: on a cluster those of all nodes, else those of this file's database. */
const WAITS = sql.raw(
  inject('workerUrls').length > 0
    ? 'citus_locks where not granted'
    : `pg_locks join pg_stat_activity using (pid) where not granted and datname = current_database()`,
);

/**
 * The number of locks that are waited for. It is asked outside every transaction, because a transaction sees
 * `pg_stat_activity` as it was at its first look, without connections that were opened later.
 */
const countWaits = async () => (await store.pool.db.execute(sql`select from ${WAITS}`)).rows.length;

test('adding and searching are one statement each', async () => {
  const key = newKey();
  await insertSession(store.pool.db, key, {}, [textEvent('a whale \u0000 \ud800 \uE000')]);
  expect(await statementsOf(() => addToMemory(store.pool.db, key, 0))).toHaveLength(1);
  expect(await statementsOf(() => searchMemories(store.pool.db, key, 'whale', 10))).toHaveLength(1);
  expect(await textsOf(key, 'whale')).toEqual(['a whale \u0000 \ud800 \uE000']);
});

test('an addition that comes while a session is being forgotten waits, and adds nothing', async () => {
  const key = newKey();
  await insertSession(store.pool.db, key, {}, [textEvent('a whale')]);
  let added: Promise<number | null | undefined> | undefined;
  await store.pool.transaction(async (tx) => {
    await deleteSession(tx, key);
    added = addToMemory(store.pool.db, key, 0);
    await deleteMemories(tx, key);
    await expect.poll(countWaits).toBeGreaterThan(0);
  });
  expect(await added).toBeUndefined();
  expect(await textsOf(key, 'whale')).toEqual([]);
});

test.each([
  ['Chinese', '我昨天参观了北京大学的图书馆。', ['北京大学', '图书馆', '北', '参观 x'], ['上海', '学北']],
  ['Japanese', '昨日は東京タワーに行きました。', ['東京タワー', 'タワー', '行き'], ['大阪']],
  ['Thai', 'ฉันชอบกินข้าวผัด', ['ข้าวผัด', 'กิน'], ['หมู']],
  ['Korean', '서울에서 만났습니다', ['서울', '만났'], ['부산']],
  ['a hyphenated word', 'a state-of-the-art e-mail client', ['state', 'art', 'mail', 'state-of-the-art'], ['stat']],
  [
    'an address',
    'see docs.example.com/guide/first_steps.html, ask ann@example.com',
    ['example', 'guide', 'steps', 'ann', 'docs.example.com'],
    ['exam'],
  ],
  ['quotes and backslashes', `it's C:\\temp\\"new" & (a | b)`, ["it's", 'temp', 'new'], ['newer']],
])('parts of %s are found', async (_, text, found, missed) => {
  const key = newKey();
  await insertSession(store.pool.db, key, {}, [textEvent(text)]);
  await addToMemory(store.pool.db, key, 0);
  for (const words of found) expect([words, await textsOf(key, words)]).toEqual([words, [text]]);
  for (const words of missed) expect([words, await textsOf(key, words)]).toEqual([words, []]);
});

test('a text of 64 KB without blanks is remembered and found', async () => {
  const key = newKey();
  const characters = Array.from({ length: 21_000 }, (_, n) => String.fromCodePoint(0x4e00 + ((n * 7_919) % 20_000)));
  await insertSession(store.pool.db, key, {}, [textEvent(characters.join(''))]);
  expect(await addToMemory(store.pool.db, key, 0)).toBe(1);
  expect(await textsOf(key, characters.slice(500, 502).join(''))).toHaveLength(1);
});

test('a large event is remembered by the beginning of its text', async () => {
  const key = newKey();
  const words = Array.from({ length: 200_000 }, (_, n) => `word${n}`).join(' ');
  await insertSession(store.pool.db, key, {}, [textEvent(words)]);
  expect(await addToMemory(store.pool.db, key, 0)).toBe(1);
  expect(await addToMemory(store.pool.db, key, 0)).toBeNull();
  expect(await textsOf(key, 'word7')).toEqual([words.slice(0, 65_536)]);
  expect(await textsOf(key, 'word199999')).toEqual([]);
});

test('large events are added in batches; an addition that broke off goes on', async () => {
  const key = newKey();
  const events = Array.from({ length: 6 }, (_, n) => textEvent(`whale ${n} ${'x'.repeat(100_000)}`));
  await insertSession(store.pool.db, key, {}, [
    textEvent('whale'),
    ...events,
    textEvent('', { content: { parts: [] } }),
  ]);
  expect(await addToMemory(store.pool.db, key, 0)).toBe(4);
  expect(await textsOf(key, 'whale')).toHaveLength(4);
  expect(await addToMemory(store.pool.db, key, 0)).toBe(7);
  expect(await addToMemory(store.pool.db, key, 7)).toBe(8);
  expect(await addToMemory(store.pool.db, key, 8)).toBeNull();
  expect(await textsOf(key, 'whale')).toHaveLength(7);
});

test('forgetting takes the session and its memories, and leaves those of others', async () => {
  const key = newKey();
  const other = { ...key, sessionId: 'other' };
  for (const each of [key, other]) {
    await insertSession(store.pool.db, each, {}, [textEvent(`a whale in ${each.sessionId}`)]);
    await addToMemory(store.pool.db, each, 0);
  }
  for (let time = 0; time < 2; time++) {
    await store.pool.transaction(async (tx) => {
      await deleteSession(tx, key);
      await deleteMemories(tx, key);
    });
  }
  expect(await textsOf(key, 'whale')).toEqual(['a whale in other']);
});
