import { sql } from 'drizzle-orm';
import pino from 'pino';
import { beforeEach, expect, test } from 'vitest';
import { rowContent } from '../../src/conversation/artifacts/artifact.ts';
import { createForgetSessions, type FeatureContext } from '../../src/process/context.ts';
import { userRanges } from '../../src/platform/db/user-ranges.ts';
import { sessions as table } from '../../src/platform/db/schema/schema.ts';
import { countExpired, type Retention, applyRetention } from '../../src/features/users/retention.ts';
import { testPool } from '../support/store.ts';

const store = testPool();
const names = async (text: string) => (await store.pool.db.execute<{ name: string }>(sql.raw(text))).rows;
const sessions = async () => (await names('select id as name from sessions order by 1')).map(({ name }) => name);
const run = (retention: Retention) =>
  applyRetention(
    {
      database: store.pool,
      contentStore: rowContent(1_000),
      log: pino({ level: 'silent' }),
      forgetSessions: createForgetSessions({} as FeatureContext),
    },
    retention,
  );
const off = { days: 0, count: 0 };

beforeEach(async () => {
  await store.pool.db.execute(sql`truncate sessions, artifacts, legal_holds cascade`);
  // Named by their age in days; `running` is as old as any.
  await store.pool.db.execute(sql`
    insert into sessions (app_name, user_id, id, update_time, lease_token)
    select 'a', 'u', name, clock_timestamp() - days * interval '1 day', token
    from (values ('d01', 1, null), ('d10', 10, null), ('d30', 30, null), ('held', 40, null),
                 ('running', 50, gen_random_uuid())) given(name, days, token)`);
  await store.pool.db.execute(sql`insert into legal_holds values ('a', 'u', 'held', 'Case 1')`);
  await store.pool.db.execute(sql`
    insert into artifacts (app_name, user_id, session_id, name, next_version)
    values ('a', 'u', 'd01', 'f', 5), ('a', 'u', 'held', 'f', 5)`);
  await store.pool.db.execute(sql`
    insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, part,
                                   size_bytes, sha256)
    select 'a', 'u', session, 'f', n, 'x', '{}', 0, ''
    from generate_series(0, 4) n, unnest(array['d01', 'held']) session`);
});

test('nothing is deleted unless a setting says so', async () => {
  const retention = { sessions: off, artifactVersions: 0 };
  expect(await run(retention)).toEqual({ sessions: 0, artifactVersions: 0 });
  expect(await sessions()).toEqual(['d01', 'd10', 'd30', 'held', 'running']);
});

test('sessions go by age or beyond a number; what runs or is on hold stays; a dry run counts the same', async () => {
  const byAge = { sessions: { days: 20, count: 0 }, artifactVersions: 0 };
  expect(await countExpired({ database: store.pool }, byAge)).toEqual({ sessions: 1, artifactVersions: 0 });
  expect(await run(byAge)).toEqual({ sessions: 1, artifactVersions: 0 });
  expect(await sessions()).toEqual(['d01', 'd10', 'held', 'running']);
  const byCount = { sessions: { days: 0, count: 1 }, artifactVersions: 0 };
  expect(await countExpired({ database: store.pool }, byCount)).toEqual({ sessions: 1, artifactVersions: 0 });
  expect(await run(byCount)).toEqual({ sessions: 1, artifactVersions: 0 });
  expect(await sessions()).toEqual(['d01', 'held', 'running']);
});

test('a session that has yet to wake stays, however old; one that waits without a deadline goes', async () => {
  await store.pool.db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    select 'a', 'u', id, 'i', 'paused', gen_random_uuid(), now() from sessions where id in ('d10', 'd30')`);
  await store.pool.db.execute(sql`
    insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, due_time)
    values ('a', 'u', 'd10', 't', 'i', 'c', 'ask', 'question', '{}', null),
           ('a', 'u', 'd30', 't', 'i', 'c', 'sleep_for', 'sleep', '{}', now() + interval '90 days')`);
  const retention = { sessions: { days: 5, count: 0 }, artifactVersions: 0 };
  expect(await countExpired({ database: store.pool }, retention)).toMatchObject({ sessions: 1 });
  expect(await run(retention)).toMatchObject({ sessions: 1 });
  expect(await sessions()).toEqual(['d01', 'd30', 'held', 'running']);
});

test('of an artifact the newest versions stay, and all that are on hold', async () => {
  const retention = { sessions: off, artifactVersions: 2 };
  expect(await countExpired({ database: store.pool }, retention)).toEqual({ sessions: 0, artifactVersions: 3 });
  expect(await run(retention)).toEqual({ sessions: 0, artifactVersions: 3 });
  const left = await names(`select session_id || version as name from artifact_versions order by 1`);
  expect(left.map(({ name }) => name)).toEqual(['d013', 'd014', 'held0', 'held1', 'held2', 'held3', 'held4']);
});

test('more sessions than one look takes are all deleted', async () => {
  await store.pool.db.execute(sql`
    insert into sessions (app_name, user_id, id, update_time)
    select 'a', 'many', n::text, clock_timestamp() - interval '9 days' from generate_series(1, 250) n`);
  expect(await run({ sessions: { days: 8, count: 0 }, artifactVersions: 0 })).toMatchObject({ sessions: 252 });
});

test('a look at everything goes by ranges of users, which no row is missing from or in twice', async () => {
  const { db } = store.pool;
  await db.execute(sql`
    insert into sessions (app_name, user_id, id)
    select app, 'v' || user_number, n::text
    from unnest(array['a', 'b']) app, generate_series(1, 7) user_number, generate_series(1, user_number) n`);
  const rangesOf = async (rows: number) => {
    const found: number[] = [];
    for await (const range of userRanges(db, table, { rows })) {
      const { rows: counted } = await db.execute<{ n: number }>(
        sql`select count(*)::int as n from ${table} where ${range}`,
      );
      found.push(counted[0]?.n ?? -1);
    }
    return found;
  };
  // 5 of the user `u`, then 1 to 7 of each user of two applications: the user of the tenth row is not divided.
  expect(await rangesOf(10)).toEqual([11, 15, 10, 12, 13, 0]);
  expect(await rangesOf(61)).toEqual([61, 0]);
  expect(await rangesOf(100)).toEqual([61]);
});
