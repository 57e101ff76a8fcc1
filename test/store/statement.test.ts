import { setTimeout as sleepMs } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { describe, expect, test } from 'vitest';
import { connect } from '../../src/platform/db/client.ts';
import { openDatabase } from '../../src/platform/db/database.ts';
import { callFunction, statement, value } from '../../src/platform/db/statement.ts';
import { toLogFields } from '../../src/platform/log.ts';
import { poolOptions, testPool } from '../support/store.ts';

const store = testPool(1);

test('a statement gives the same rows with its first use on a connection and with later ones', async () => {
  const select = statement<{ n: number; word: string | null; list: string[]; at: string }>(
    () => sql`
      select n, case when n > 1 then ${value('word')}::text end as word, ${value('list')}::text[] as list,
             timestamptz '2026-01-02 03:04:05.678901Z' as at
      from generate_series(1, ${value('count')}::int) n`,
  );
  const at = '2026-01-02 03:04:05.678901+00';
  for (const count of [2, 0, 2]) {
    const list = ['a"', 'b,{}', ''];
    const first = { n: 1, word: null, list, at };
    const second = { n: 2, word: 'wörd', list, at };
    expect(await select(store.pool.db, { word: 'wörd', list, count })).toEqual([first, second].slice(0, count));
  }
  await expect(select(store.pool.db, { word: '', list: [], count: 'many' })).rejects.toMatchObject({
    cause: { code: '22P02' },
  });
  expect(await select(store.pool.db, { word: '', list: [], count: 1 })).toHaveLength(1);
});

test('a statement that is never answered ends at its time-out, and so does its connection', async ({ skip }) => {
  const options = { ...poolOptions(store.url, 2), statementTimeoutMs: 1_500 };
  skip(options.isPooled === true, 'a pooler keeps no setting, so the time-out of the server comes first');
  const pool = openDatabase(options);
  const sleep = statement<{ pid: number; slept: string }>(
    () => sql`select pg_backend_pid() as pid, pg_sleep(${value('seconds')}::float8)::text as slept`,
  );
  try {
    const [before] = await sleep(pool.db, { seconds: 0 });
    // The server's own time-out would come first.
    await pool.db.execute(sql`select set_config('statement_timeout', '0', false)`);
    await expect(sleep(pool.db, { seconds: 30 })).rejects.toMatchObject({ cause: { message: 'Query read timeout' } });
    // Until then its backend keeps the only place of the pool.
    await store.pool.query({ text: 'select pg_terminate_backend($1::int)', values: [before?.pid] });
    const [after] = await sleep(pool.db, { seconds: 0 });
    expect(after?.pid).not.toBe(before?.pid);
  } finally {
    await pool.close();
  }
});

test('a transaction that sends nothing for longer than the time-out of a statement goes on', async () => {
  const pool = openDatabase({ ...poolOptions(store.url, 2), statementTimeoutMs: 200 });
  try {
    await pool.transaction(async (tx) => {
      const pid = await tx.execute(sql`select pg_backend_pid()`);
      await sleepMs(2_000);
      expect((await tx.execute(sql`select pg_backend_pid()`)).rows).toEqual(pid.rows);
    });
  } finally {
    await pool.close();
  }
});

test('a function gets the arguments of each call, whatever another caller gave it', async () => {
  await store.pool.db.execute(sql`
    create function two_arguments(one int default 1, two int default 2, out sum int) language sql return one * 10 + two`);
  const call = (parameters: Record<string, number>) =>
    callFunction<{ sum: number }>(store.pool.db, 'two_arguments', parameters);
  expect(await call({ one: 5 })).toEqual({ sum: 52 });
  expect(await call({ one: 5, two: 6 })).toEqual({ sum: 56 });
  expect(await call({ two: 7, one: 3 })).toEqual({ sum: 37 });
  expect(await call({ two: 8 })).toEqual({ sum: 18 });
  expect(await call({})).toEqual({ sum: 12 });
});

test('a name that is none of the arguments of a function is an error, also after calls that were right', async () => {
  await store.pool.db.execute(sql`create function one_argument(one int, out same int) language sql return one`);
  const call = (parameters: Record<string, number>) => callFunction(store.pool.db, 'one_argument', parameters);
  expect(await call({ one: 1 })).toEqual({ same: 1 });
  for (const parameters of [{ first: 1 }, { one: 1, two: 2 }, {}])
    await expect(call(parameters)).rejects.toMatchObject({ cause: { code: '42883' } });
});

describe('a statement that fails past the query builder is named in the log', () => {
  const nameOf = async (failing: Promise<unknown>) => {
    const error: unknown = await failing.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    const fields = toLogFields(error);
    return [fields['code'], fields['statement']];
  };

  test('one that a library brings', async () => {
    const text = 'insert into rate_limits (key, points) values ($1, $2)';
    expect(await nameOf(store.pool.query({ text, values: ['k', 'many'] }))).toEqual(['22P02', 'rate_limits']);
  });

  test('one of a connection of its own', async () => {
    const client = await connect({ url: store.url }, {});
    expect(await nameOf(client.query('select jsonb_set($1, $2)', ['{', '{}']))).toEqual(['42883', 'jsonb_set']);
    await client.end();
  });

  test('the commit of a transaction', async () => {
    const late = store.pool.transaction(async (tx) => {
      await tx.execute('create temp table late (n int primary key deferrable initially deferred)');
      await tx.execute('insert into late values (1), (1)');
    });
    expect(await nameOf(late)).toEqual(['23505', 'commit']);
  });
});
