import { type SQL, sql } from 'drizzle-orm';
import { Client } from 'pg';
import { beforeEach, expect, test } from 'vitest';
import { listSessionsWhere } from '../../src/cli/sessions-where.ts';
import { type Database, type DatabasePool, openDatabase } from '../../src/platform/db/database.ts';
import { refuseAnswered } from '../../src/invocations/waits/task-store.ts';
import { createRateCounter } from '../../src/platform/http/limits/caller-limits.ts';
import { openPool, poolOptions, statementsOf, testPool } from '../support/store.ts';

/** More texts than a connection keeps. */
const MANY = 1_200;
/** Plans that a connection keeps at most. */
const MAX_PLANS = 500;

const store = testPool(1);
beforeEach(({ skip }) => skip(!poolOptions(store.url, 1).preparesStatements, 'these servers keep no plans'));

/** The texts that the server has prepared for the connection of a database. */
async function listPrepared(db: Database): Promise<string[]> {
  const { rows } = await db.execute<{ statement: string }>(sql`select statement from pg_prepared_statements`);
  return rows.map(({ statement }) => statement);
}

/** A statement with a text of its own for each number. */
const numbered = (n: number): SQL<{ n: number }> =>
  sql`select ${n}::int as n, ${sql.raw(String(n))} as column_${sql.raw(String(n))}`;

/** Uses a pool of one connection. */
async function withPool(work: (pool: DatabasePool) => Promise<void>): Promise<void> {
  const pool = openPool(store.url, 1);
  try {
    await work(pool);
  } finally {
    await pool.close();
  }
}

/** Counts the prepared statements that the clients know which `work` uses. */
async function countKnown(work: () => Promise<unknown>): Promise<number> {
  const connections = new Set<{ parsedStatements: object; submittedNamedStatements: object }>();
  // oxlint-disable-next-line typescript/unbound-method -- put back as it was, and called with its own `this`
  const original = Client.prototype.query;
  Client.prototype.query = function seen(this: Client, ...args: unknown[]) {
    connections.add(this.connection as never);
    return Reflect.apply(original, this, args) as never;
  };
  try {
    await work();
  } finally {
    Client.prototype.query = original;
  }
  const counts = [...connections].map(
    ({ parsedStatements, submittedNamedStatements }) =>
      Object.keys(parsedStatements).length + Object.keys(submittedNamedStatements).length,
  );
  return Math.max(...counts);
}

test('a caller that makes many texts leaves no later one unprepared, and the plans are bounded on both sides', () =>
  withPool(async ({ db }) => {
    const known = await countKnown(async () => {
      for (let n = 0; n < MANY; n += 1) await db.execute(numbered(n));
    });
    const prepared = await listPrepared(db);
    expect(prepared.some((text) => text.includes(`column_${MANY - 1}`))).toBe(true);
    expect(prepared.length).toBeLessThanOrEqual(MAX_PLANS);
    expect(known).toBeLessThanOrEqual(MAX_PLANS);
  }));

test('a statement that is used stays prepared while others come and go, and one that went is prepared again', () =>
  withPool(async ({ db }) => {
    const used = () => db.execute(sql`select ${1}::int as in_use`);
    for (let n = 0; n < MANY; n += 1) {
      await db.execute(numbered(n));
      if (n % 100 === 0) await used();
    }
    expect((await listPrepared(db)).filter((text) => text.includes('in_use'))).toHaveLength(1);
    const sent = await statementsOf(async () => {
      expect((await db.execute(numbered(0))).rows).toEqual([{ n: 0, column_0: 0 }]);
      expect((await db.execute(numbered(0))).rows).toEqual([{ n: 0, column_0: 0 }]);
    });
    expect(sent).toHaveLength(2);
    expect((await listPrepared(db)).filter((text) => text.endsWith('column_0'))).toHaveLength(1);
  }));

test('more texts on their way at once than a connection keeps are all answered, and the plans stay bounded', () =>
  withPool(async (pool) => {
    const sendAll = (tx: Database) => Promise.all(Array.from({ length: MANY }, (_, n) => tx.execute(numbered(n))));
    const known = await countKnown(() =>
      pool.transaction(async (tx) => {
        for (const round of [await sendAll(tx), await sendAll(tx)])
          expect(round.map(({ rows }) => rows[0]?.['n'])).toEqual(Array.from({ length: MANY }, (_, n) => n));
      }),
    );
    expect(known).toBeLessThanOrEqual(MAX_PLANS);
    expect((await listPrepared(pool.db)).length).toBeLessThanOrEqual(MAX_PLANS);
  }));

test('a statement that fails keeps no place from working', () =>
  withPool(async ({ db }) => {
    const fails = () => db.execute(sql`select ${1}::int / 0 as fails`);
    await expect(fails()).rejects.toMatchObject({ cause: { code: '22012' } });
    for (let n = 0; n < MANY; n += 1) await db.execute(numbered(n));
    await expect(fails()).rejects.toMatchObject({ cause: { code: '22012' } });
  }));

test('the server keeps no text that holds data', () =>
  withPool(async (pool) => {
    const predicate = "s.id = 'a name that is data'";
    expect(await listSessionsWhere(pool, { appName: 'a', predicate, limit: 1 })).toEqual([]);
    expect((await listPrepared(pool.db)).filter((text) => text.includes('is data'))).toEqual([]);
  }));

test('a library that names its statements has none prepared behind a pooler that knows no names', async () => {
  const pool = openDatabase({ ...poolOptions(store.url, 1), preparesStatements: false });
  const counter = createRateCounter(pool, { name: 'some', points: 2 });
  expect([(await counter.take('caller', 1)).isOver, (await counter.take('caller', 2)).isOver]).toEqual([false, true]);
  expect(await listPrepared(pool.db)).toEqual([]);
  await pool.close();
});

test('answers of any number are looked up with one text', () =>
  withPool(async ({ db }) => {
    const key = { appName: 'a', userId: 'u', sessionId: 's' };
    for (const count of [1, 2, 3])
      await refuseAnswered(
        db,
        key,
        Array.from({ length: count }, (_, n) => `c\u0000${n}`),
      );
    expect((await listPrepared(db)).filter((text) => text.includes('answered_text'))).toHaveLength(1);
  }));
