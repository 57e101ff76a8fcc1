import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { listUnembedded, saveVectors } from '../../src/features/memory/embedding-store.ts';
import { addToMemory, type VectorQuery, searchMemories } from '../../src/features/memory/memory-store.ts';
import { MEMORY_JOB } from '../../src/invocations/memory.ts';
import { findUserStorage } from '../../src/conversation/storage/storage-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import type { SessionKey } from '../../src/core/session.ts';
import { runAsUser } from '../../src/platform/context.ts';
import { type DatabasePool, openDatabase } from '../../src/platform/db/database.ts';
import { claimJobs, endJob, putBackJob } from '../../src/platform/jobs/job-store.ts';
import { prepareRowSecurity } from '../../src/platform/db/row-security.ts';
import { newKey, poolOptions, statementsOf, testPool, textEvent } from '../support/store.ts';
import { installVectors, meanings } from '../support/vectors.ts';

const store = testPool();
let served: DatabasePool | undefined;
let kind = '';
beforeAll(async () => {
  kind = await installVectors(store.url);
  served = openDatabase({ ...poolOptions(store.url, 4), security: await prepareRowSecurity({ url: store.url }, {}) });
});
afterAll(() => served?.close());

const MODEL = 'm 2';
const near = (vector: number[], more: Partial<VectorQuery> = {}): VectorQuery => ({
  vector,
  model: MODEL,
  schema: 'meaning',
  ...more,
});
type Found = { content: { parts: { text: string }[] } };
const textsOf = async (key: SessionKey, query: string, limit = 10, vector?: number[]) =>
  (await searchMemories(store.pool.db, key, query, limit, vector && near(vector))).map(
    (text) => (JSON.parse(text) as Found).content.parts[0]?.text,
  );

/** Remembers texts with vectors. */
async function remember(key: SessionKey, texts: [text: string, vector: number[]][], model = MODEL): Promise<void> {
  const { db } = store.pool;
  await insertSession(
    db,
    key,
    {},
    texts.map(([text], n) => textEvent(text, { timestamp: n + 1 })),
  );
  for (let last: number | null | undefined = 0; last != null; ) last = await addToMemory(db, key, last, true);
  const vectors = new Map(texts);
  const rows = await listUnembedded(db, key, model, texts.length);
  await saveVectors(
    db,
    key,
    model,
    rows,
    rows.map(({ text }) => vectors.get(text) ?? []),
  );
  await db.execute(sql`delete from jobs`);
}

test('vectors count for their user, and none is stored beyond what the user may keep', async () => {
  const key = newKey();
  const count = async () => (await findUserStorage(store.pool.db, key))?.memoryBytes ?? 0;
  await remember(key, [['the sea', [1, 0]]]);
  const before = await count();
  const limited = openDatabase({ ...poolOptions(store.url, 1), maxUserBytes: before + 10_000 });
  onTestFinished(() => limited.close());
  const rows = await listUnembedded(limited.db, key, 'large', 1);
  const save = (numbers: number) => saveVectors(limited.db, key, 'large', rows, [Array<number>(numbers).fill(1)]);
  await expect(save(4_000)).rejects.toMatchObject({ cause: { code: 'AR417' } });
  expect(await count()).toBe(before);
  await save(1_000);
  expect((await count()) - before).toBe(4 * (1_000 - 2));
});

test('words and meaning are fused by reciprocal rank, in one statement', async () => {
  const key = newKey();
  await remember(key, [
    ['a whale', [0, 1]],
    ['a big fish', [1, 0.1]],
    ['the fish of the whale', [0.9, 0.3]],
    ['rain', [-1, 0]],
  ]);
  expect(await textsOf(key, 'whale')).toEqual(['the fish of the whale', 'a whale']);
  // First and second before second and third, before what is first of meaning alone.
  const found = ['the fish of the whale', 'a whale', 'a big fish', 'rain'];
  expect(await textsOf(key, 'whale', 10, [1, 0])).toEqual(found);
  expect(await textsOf(key, 'whale', 2, [1, 0])).toEqual(found.slice(0, 2));
  expect(await textsOf(key, 'zzz', 1, [1, 0])).toEqual(['a big fish']);
  const sent = await statementsOf(() => searchMemories(store.pool.db, key, 'whale', 10, near([1, 0])));
  expect(sent).toHaveLength(1);
});

test('only vectors of the same model and length are compared', async () => {
  const key = newKey();
  await remember(key, [['of another model', [1, 0]]], 'other 2');
  await remember({ ...key, sessionId: 'b' }, [['of another length', [1, 0, 0]]]);
  await remember({ ...key, sessionId: 'c' }, [['refused', []]]);
  expect(await textsOf(key, 'zzz', 10, [1, 0])).toEqual([]);
});

/** Vectors of a seeded generator: the same in every run. */
function* randomVectors(): Generator<[number, number, number]> {
  let seed = 1;
  const next = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647 - 0.5;
  for (;;) yield [next(), next(), next()];
}

test('random queries of many users as the role that serves find no foreign row', async () => {
  // Vectors in plain SQL take ten times as long.
  const queries = kind === 'pgvector' ? 10_000 : 1_000;
  const { db } = store.pool;
  const { appName } = newKey();
  await db.execute(sql`
    insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector,
                          embedding, embedding_model)
    select app, 'u' || n % 50, 's', n, 'user',
           jsonb_build_object('parts', jsonb_build_array(jsonb_build_object('text', app || ' u' || n % 50))), now(),
           to_tsvector('simple', 'rain w' || n % 7),
           array[sin(n), cos(n), sin(n * 7)], ${'m 3'}
    from generate_series(1, 3000) n, unnest(array[${appName}, ${`${appName}-other`}]) app`);
  const vectors = randomVectors();
  const users = Array.from({ length: 50 }, (_, n) => `u${n}`);
  const ask = async (n: number) => {
    const [userId = '', other = ''] = [users[n % 50], users[(n * 7 + 1) % 50]];
    const vector = vectors.next().value as number[];
    // Every other query asks, as one user, for another one: row security has the last word.
    const asked = n % 2 === 0 ? userId : other;
    const query = `w${n % 7} rain u${n % 50}`;
    const search = () =>
      searchMemories(served?.db ?? db, { appName, userId: asked }, query, 20, near(vector, { model: 'm 3' }));
    const found = (await runAsUser(userId, search)).map((text) => (JSON.parse(text) as Found).content.parts[0]?.text);
    return { found, expected: asked === userId ? `${appName} ${userId}` : undefined };
  };
  let [rows, foreign] = [0, 0];
  for (let n = 0; n < queries; n += 4) {
    for (const { found, expected } of await Promise.all([0, 1, 2, 3].map((more) => ask(n + more)))) {
      rows += found.length;
      foreign += found.filter((text) => text !== expected).length;
    }
  }
  console.log(`${queries} queries, vectors of ${kind}: ${rows} rows, ${foreign} foreign ones`);
  expect({ rows, foreign }).toEqual({ rows: (queries / 2) * 20, foreign: 0 });
});

test('memory that finds meaning has more of the answers among its first five than words alone', async () => {
  const key = newKey();
  const texts = meanings.flatMap(({ text, vector }): [string, number[]][] => (text ? [[text, vector]] : []));
  await remember(key, texts, 'm 128');
  const questions = meanings.filter(({ question }) => question !== undefined);
  const recall = async (withMeaning: boolean) => {
    const hits = questions.map(async ({ question = '', answer, vector }) => {
      const found = await searchMemories(
        store.pool.db,
        key,
        question,
        5,
        withMeaning ? near(vector, { model: 'm 128' }) : undefined,
      );
      return found.some((text) => (JSON.parse(text) as Found).content.parts[0]?.text === answer);
    });
    return (await Promise.all(hits)).filter(Boolean).length;
  };
  const [words, both] = [await recall(false), await recall(true)];
  console.log(`recall@5 of ${questions.length} questions in ${texts.length} texts, vectors of ${kind}:
    words alone ${words}/${questions.length}, with meaning ${both}/${questions.length}`);
  expect([words, both]).toEqual([14, 47]);
});

test('users get their vectors in turn, a batch each; what is added meanwhile keeps the job', async () => {
  const { db } = store.pool;
  const [many, few] = [newKey(), newKey()];
  few.appName = many.appName;
  const add = async (key: SessionKey, texts: string[], embeds = true) => {
    await insertSession(
      db,
      key,
      {},
      texts.map((text) => textEvent(text)),
    );
    await addToMemory(db, key, 0, embeds);
  };
  await add(many, ['one', 'two', 'three']);
  await add(few, ['four']);
  await add({ ...few, sessionId: 'unasked', userId: 'x' }, ['five'], false);
  const claim = async () => {
    const jobs = await claimJobs(db, { kind: MEMORY_JOB, appNames: [many.appName], slots: 1, leaseMs: 60_000 });
    return jobs.claimed;
  };
  const work = async () => {
    const [job] = await claim();
    if (!job) return undefined;
    const rows = await listUnembedded(db, job, MODEL, 2);
    const vectors = rows.map(() => [1, 0]);
    if (rows.length > 0) await saveVectors(db, job, MODEL, rows, vectors);
    await (rows.length === 0 ? endJob(db, MEMORY_JOB, job) : putBackJob(db, MEMORY_JOB, job, { attempts: 0 }));
    return [job.userId, rows.length];
  };
  const turns: unknown[] = [];
  for (let turn = await work(); turn; turn = await work()) turns.push(turn);
  expect(turns).toEqual([
    [many.userId, 2],
    [few.userId, 1],
    [many.userId, 1],
    [few.userId, 0],
    [many.userId, 0],
  ]);

  await add({ ...many, sessionId: 'b' }, ['six']);
  const [job] = await claim();
  await add({ ...many, sessionId: 'c' }, ['seven']);
  expect(await claim()).toEqual([]);
  if (job) await endJob(db, MEMORY_JOB, job);
  expect(await claim()).toMatchObject([{ id: job?.id, userId: many.userId, attempt: 1 }]);
});

test('a job of a process that died is claimed again once its lease is over', async () => {
  const { db } = store.pool;
  const key = newKey();
  await insertSession(db, key, {}, [textEvent('one')]);
  await addToMemory(db, key, 0, true);
  const claim = async (leaseMs: number) => {
    const jobs = await claimJobs(db, { kind: MEMORY_JOB, appNames: [key.appName], slots: 8, leaseMs });
    return jobs.claimed;
  };
  expect(await claim(0)).toMatchObject([{ attempt: 1 }]);
  await sleep(2);
  expect(await claim(60_000)).toMatchObject([{ attempt: 2, losses: 1 }]);
  expect(await claim(0)).toEqual([]);
});
