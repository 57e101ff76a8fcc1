import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { beforeAll, describe, expect, test } from 'vitest';
import { runAsUser } from '../../src/platform/context.ts';
import { type Database, openDatabase } from '../../src/platform/db/database.ts';
import { prepareRowSecurity } from '../../src/platform/db/row-security.ts';
import type { SessionKey } from '../../src/core/session.ts';
import { findArtifactVersionText, saveArtifactVersion } from '../../src/conversation/artifacts/artifact-store.ts';
import { claimSession, type Lease, renewLease } from '../../src/invocations/lock-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { listEvents, listEventsAfter } from '../../src/conversation/sessions/event-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { searchMemories } from '../../src/features/memory/memory-store.ts';
import { findHistory } from '../../src/conversation/sessions/history.ts';
import { listSessions, type SessionPage } from '../../src/conversation/sessions/session-list.ts';
import { findSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { countEvaluations, deleteRunCases } from '../../src/features/evals/erase-store.ts';
import { listEvalRuns, listResultMoments } from '../../src/features/evals/runs/eval-run-store.ts';
import { listSessionScores } from '../../src/features/evals/scoring/session-score-store.ts';
import { listEvalSetIds } from '../../src/features/evals/sets/eval-set-store.ts';
import { listInvocationPage } from '../../src/invocations/list-invocations.ts';
import { listHeads } from '../../src/invocations/queue-store.ts';
import { findTask, listDueTasks, listTasks } from '../../src/invocations/waits/task-store.ts';
import { createTestDatabase } from '../support/database.ts';
import { installVectors } from '../support/vectors.ts';
import { newKey, poolOptions, statementsOf, testPool, textEvent } from '../support/store.ts';

/** A statement has five plans for the values at hand; then one for any values. */
const CALLS = 100;
const MAX_PLANS_PER_CALL = 0.05;

// One connection for writes: it shows its own statements only.
const store = testPool(2);

/**
 * Few sessions with most of the events, as a user's first weeks look like: a plan for any session expects a thousand
 * events of it, and by costs PostgreSQL prefers to plan for each one anew.
 */
beforeAll(async () => {
  const { db } = store.pool;
  await db.execute(sql`
    insert into sessions (app_name, user_id, id, state, last_sequence, event_bytes)
    select 'large', 'u' || n, 's', '{}', 2000, 0 from generate_series(1, 4) n`);
  await db.execute(sql`
    insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
    select 'large', 'u' || n, 's', k, k, 'i', 'user', now(), jsonb_build_object('text', repeat('word ', 50)), 262
    from generate_series(1, 4) n, generate_series(1, 2000) k`);
  await db.execute(sql`analyze sessions, events`);
});

const newLease = (key: SessionKey): Lease => ({
  key,
  invocationId: randomUUID(),
  token: randomUUID(),
  durationMs: 60_000,
});

/** What an invocation does, and what is read most. */
async function useAll(db: Database, key: SessionKey): Promise<void> {
  const lease = newLease(key);
  await insertSession(db, key, { 'app:a': 1, 'user:b': 2, c: 3 }, [textEvent('first')]);
  await claimSession(db, lease, [textEvent('prompt')], true);
  await findHistory(db, key);
  await appendEvents(db, key, [textEvent('call')], { leaseToken: lease.token });
  await appendEvents(db, key, [textEvent('one'), textEvent('two')], { leaseToken: lease.token });
  await renewLease(db, lease);
  await finishInvocation(db, lease, [textEvent('answer')], { status: 'succeeded', answer: '"answer"' });
  await findSession(db, key);
  await listEvents(db, key, 0, 100);
  await listEventsAfter(db, key, 0, 100);
  await listSessions(db, key.appName, key.userId);
  await listSessions(db, key.appName, key.userId, { limit: 50 });
  await saveArtifactVersion(
    db,
    { ...key, artifactName: 'a.txt' },
    { part: { text: 'a' }, bytes: undefined, mimeType: undefined },
    {},
  );
  await findArtifactVersionText(db, { ...key, artifactName: 'a.txt' }, 0);
}

interface Statement extends Record<string, unknown> {
  statement: string;
  calls: number;
  plans: number;
}

test.each([
  ['for all users', async (_: string, work: () => Promise<void>) => await work()],
  ['for one user, whose rows alone it sees', runAsUser],
])('a statement that is repeated is not planned again, whatever its values and the tables: %s', async (_, actingAs) => {
  const security = await prepareRowSecurity({ url: store.url }, {});
  const pool = openDatabase({ ...poolOptions(store.url, 2), security });
  try {
    for (let n = 0; n < CALLS; n++) {
      const key = newKey();
      await actingAs(key.userId, () => useAll(pool.db, key));
    }
    const { rows } = await pool.db.execute<Statement>(sql`
      select statement, (generic_plans + custom_plans)::int as calls, custom_plans::int as plans
      from pg_prepared_statements where generic_plans + custom_plans >= ${CALLS}`);
    expect(rows.length).toBeGreaterThanOrEqual(12);
    expect(rows.filter(({ calls, plans }) => plans > calls * MAX_PLANS_PER_CALL)).toEqual([]);
  } finally {
    await pool.close();
  }
});

test.each<[string, SessionPage]>([
  ['sessions_list_idx', {}],
  ['sessions_list_idx', { labels: { values: [{ project: 'atlas' }], names: ['kind'] } }],
  ['sessions_list_idx', { text: 'weather', order: 'asc' }],
  ['sessions_created_idx', { sort: 'created' }],
  ['sessions_created_idx', { sort: 'created', order: 'asc', labels: { values: [], names: ['kind'] } }],
])('a page is read in the order of %s, without a sort of all sessions: %j', async (index, filter) => {
  const { db } = store.pool;
  const { appName, userId } = newKey();
  await db.execute(sql`
    insert into sessions (app_name, user_id, id, state, labels)
    select ${appName}, ${userId}, 's' || n, '{}', jsonb_build_object('project', 'p' || n % 7)
    from generate_series(1, 2000) n`);
  await db.execute(sql`analyze sessions`);
  const after = { time: '2999-01-01T00:00:00.000000Z', id: 's' };
  const [text = ''] = await statementsOf(() => listSessions(db, appName, userId, { limit: 50, after, ...filter }));
  const lines = await explain(text);
  const counted = String.raw`\s+->  WindowAgg\n\s+Window: [^\n]+\n`;
  const looked = String.raw`looked\n\s+->  Subquery Scan on s\n\s+Filter: [^\n]+\n${counted}\s+->  Limit\n`;
  const page = String.raw`page\n\s+->  Aggregate\n\s+->  Nested Loop\n\s+->  Limit\n${counted}`;
  const wanted = new RegExp(`CTE (?:${page}|${looked})\\s+->  Index Scan (?:Backward )?using ${index} on`);
  expect(lines).toMatch(wanted);
});

test.each<SessionPage>([{}, { order: 'asc' }, { sort: 'created', createdAfter: 0 }])(
  'a page of one user, whose rows alone it sees, begins in the index where the page before ended: %j',
  async (page) => {
    const security = await prepareRowSecurity({ url: store.url }, {});
    const pool = openDatabase({ ...poolOptions(store.url, 2), security });
    try {
      const { appName, userId } = newKey();
      await store.pool.db.execute(sql`
      insert into sessions (app_name, user_id, id, state)
      select ${appName}, ${userId}, 's' || n, '{}' from generate_series(1, 2000) n`);
      await store.pool.db.execute(sql`analyze sessions`);
      const [text = ''] = await statementsOf(() => listSessions(pool.db, appName, userId, { limit: 50, ...page }));
      const lines = await runAsUser(userId, () => explain(text, pool.db));
      const time = page.sort === 'created' ? 'create_time' : 'update_time';
      expect(lines).toContain("= 'on'::text");
      expect(lines).toMatch(
        new RegExp(String.raw`Index Cond: .*\(ROW\(${time}, id\) [<>] ROW.*\(${time} > .*\(${time} < `),
      );
    } finally {
      await pool.close();
    }
  },
);

test('a budget of users reads what this user used, and nothing of the others', async () => {
  const { db } = store.pool;
  const { appName } = newKey();
  await db.execute(sql`
    insert into budget_uses (app_name, user_id, day, shard, invocations, prompt_tokens, output_tokens, cost)
    select ${appName}, 'u' || n, (now() at time zone 'utc')::date, shard, 1, 1, 1, 1
    from generate_series(1, 2000) n, generate_series(0, 7) shard`);
  await db.execute(sql`
    insert into budgets (app_name, user_id, applies_to, period, max_invocations)
    values (${appName}, '', 'users', 'day', 100), (${appName}, 'u1', 'user', 'month', 100)`);
  await db.execute(sql`analyze budget_uses, budgets`);
  // What the function reads is seen in the counts of its transaction: EXPLAIN shows the call only.
  const read = sql`select seq_tup_read::int as all, idx_tup_fetch::int as found
                   from pg_stat_xact_user_tables where relname = 'budget_uses'`;
  const rows = await store.pool.transaction(async (tx) => {
    await tx.execute(sql`select over_budget(${appName}, 'u1')`);
    return (await tx.execute(read)).rows;
  });
  expect(rows).toEqual([{ all: 0, found: 16 }]);
});

test('a budget of another user, or of a rule of scores, has nothing of a user reserved', async () => {
  const { db } = store.pool;
  const key = newKey();
  await insertSession(db, key, {}, []);
  const claim = async () => {
    const lease = newLease(key);
    await claimSession(db, lease, [textEvent('prompt')], true);
    const { limited = false } = await appendEvents(db, key, [textEvent('call')], { leaseToken: lease.token });
    await finishInvocation(db, lease, [textEvent('answer')], { status: 'succeeded' });
    return [lease.hasBudgets, limited];
  };
  const insert = (userId: string) =>
    db.execute(sql`insert into budgets (app_name, user_id, applies_to, period, max_cost)
                   values (${key.appName}, ${userId}, 'user', 'day', 1)`);
  await insert('another');
  await insert('\u0001rule safe');
  expect(await claim()).toEqual([false, false]);
  await insert(key.userId);
  expect((await claim())[0]).toBe(true);
});

test('a budget of an application reads as much whether few or many users have used something', async () => {
  const { db } = store.pool;
  const { appName } = newKey();
  await db.execute(sql`
    insert into budgets (app_name, user_id, applies_to, period, max_invocations)
    values (${appName}, '', 'app', 'day', 501), (${appName}, '', 'app', 'month', 501)`);
  const use = async (users: number) =>
    db.execute(sql`select count_use(${appName}, 'u' || n, 1, null) from generate_series(1, ${users}::int) n`);
  // What was read before is in the counts as well, until they are flushed.
  const read = sql`
    select sum(seq_tup_read + idx_tup_fetch)::int as n from pg_stat_xact_user_tables where relname ~ '^budget_'`;
  const readRows = () =>
    store.pool.transaction(async (tx) => {
      const before = await tx.execute<{ n: number }>(read);
      const { rows } = await tx.execute<{ over: { what: string } | null }>(
        sql`select over_budget(${appName}, 'u1') as over`,
      );
      const after = await tx.execute<{ n: number }>(read);
      return { what: rows[0]?.over?.what, n: (after.rows[0]?.n ?? 0) - (before.rows[0]?.n ?? 0) };
    });
  await use(1);
  const few = await readRows();
  await use(500);
  const many = await readRows();
  expect(few.what).toBeUndefined();
  expect(many).toEqual({ what: 'invocations', n: few.n });
});

test('the budgets of a user are found by the key, however many users have one', async () => {
  const { db } = store.pool;
  const { appName } = newKey();
  const plan = sql`explain (analyze, buffers, format json) select * from budgets_for(${appName}, 'u7')`;
  const countBlocks = async () => {
    let hit = 0;
    // The first time reads the catalogue too.
    for (let time = 0; time < 3; time += 1) {
      const { rows } = await db.execute<{ 'QUERY PLAN': { Plan: { 'Shared Hit Blocks': number } }[] }>(plan);
      hit = rows[0]?.['QUERY PLAN'][0]?.Plan['Shared Hit Blocks'] ?? Infinity;
    }
    return hit;
  };
  const insert = (first: number, last: number) =>
    db.execute(sql`
      insert into budgets (app_name, user_id, applies_to, period, max_invocations)
      select ${appName}, 'u' || n, 'user', 'day', 5 from generate_series(${first}::int, ${last}::int) n`);
  await insert(7, 7);
  await db.execute(sql`analyze budgets`);
  const few = await countBlocks();
  await insert(8, 8_000);
  await db.execute(sql`analyze budgets`);
  expect(await countBlocks()).toBeLessThan(few + 20);
});

test('a search of the memory reads by the user and the words at once', async () => {
  const { db } = store.pool;
  const { appName } = newKey();
  await db.execute(sql`
    insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector)
    select ${appName}, 'u' || n % 3, 's', n, 'user', '{"parts": [{"text": "rain"}]}', now(),
           to_tsvector('simple', case when n % 10 = 0 then 'rain and sun' else 'snow' end || n)
    from generate_series(1, 6000) n`);
  await db.execute(sql`analyze memories`);
  const search = () => searchMemories(db, { appName, userId: 'u1' }, 'rain', 10);
  expect(await search()).toHaveLength(10);
  const [text = ''] = await statementsOf(search);
  const lines = await explain(text);
  expect(lines).toMatch(/Bitmap Index Scan on memories_search_idx\n\s+Index Cond: .*user_id/);
  expect(await searchMemories(db, { appName, userId: 'u1' }, '!?', 10)).toEqual([]);
});

test('a search by meaning reads the vectors of its user alone', async () => {
  const { db } = store.pool;
  const { appName } = newKey();
  await installVectors(store.url);
  await db.execute(sql`
    insert into memories (app_name, user_id, session_id, event_id, author, content, event_time, search_vector,
                          embedding, embedding_model)
    select ${appName}, 'u' || n % 300, 's', n, 'user', '{"parts": [{"text": "rain"}]}', now(), '', array[n, 1], 'm'
    from generate_series(1, 9000) n`);
  await db.execute(sql`analyze memories`);
  const near = { vector: [1, 0], model: 'm', schema: 'meaning' };
  const search = () => searchMemories(db, { appName, userId: 'u1' }, 'rain', 10, near);
  expect(await search()).toHaveLength(10);
  const [text = ''] = await statementsOf(search);
  const lines = await explain(text);
  expect(lines).toMatch(/memories_(?:embedding_idx|pkey).*\n\s+Index Cond: .*app_name = .*user_id = /);
  expect(lines).not.toMatch(/Seq Scan on memories/);
});

/** The plan for any values, of a small page: a limit that is not known counts as a tenth of all rows. */
async function explain(text: string, db = store.pool.db): Promise<string> {
  const page = text.replace(/\blimit \$\d+$/, 'limit 6');
  const { rows } = await db.execute<{ 'QUERY PLAN': string }>(sql`explain (generic_plan, costs off) ${sql.raw(page)}`);
  return rows.map((row) => row['QUERY PLAN']).join('\n');
}

/** Evaluation, tasks and invocations of many users of one application. */
async function fillMany(): Promise<string> {
  const { db } = store.pool;
  const { appName } = newKey();
  const many = sql`generate_series(1, 3000) n`;
  const statements = [
    sql`insert into eval_sets (app_name, id, owner_id) select ${appName}, 's' || n, 'u' || n from ${many}`,
    sql`insert into eval_case_versions (app_name, eval_set_id, eval_id, version, hash, payload, owner_id)
        select ${appName}, 's' || n, 'c', 1, '', '{}', 'u' || n from ${many}`,
    sql`insert into eval_cases (app_name, eval_set_id, id, version, source_user_id, owner_id)
        select ${appName}, 's' || n, 'c', 1, 'v' || n, 'u' || n from ${many}`,
    sql`insert into eval_runs (app_name, id, eval_set_id, requested_by, status, metrics, trials, parallelism,
                               agent_hash, model_name, result_time, end_time)
        select ${appName}, gen_random_uuid(), 's' || n, 'u' || n, 'done', '[]', 1, 1, '', '',
          now() - n * interval '1 s', now() from ${many}`,
    sql`insert into eval_run_cases (app_name, run_id, place, trial, eval_set_id, eval_id, case_version, status,
                                    session_user_id, owner_id, end_time)
        select app_name, id, 1, 1, eval_set_id, 'c', 1, 'done', requested_by, requested_by, now()
        from eval_runs where app_name = ${appName}`,
    sql`insert into sessions (app_name, user_id, id, state) select ${appName}, 'u' || n, 's', '{}' from ${many}`,
    sql`insert into eval_session_scores (app_name, user_id, session_id, last_sequence, metrics_hash, result,
                                         create_time)
        select ${appName}, 'u' || n, 's', 1, '', '{}', now() - n * interval '1 s' from ${many}`,
    sql`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time)
        select ${appName}, 'u' || n, 's', 'i', 'paused', gen_random_uuid(), now(),
          timestamptz '2026-01-01' - n * interval '1 s' from ${many}`,
    sql`insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form,
                           expire_time)
        select ${appName}, 'u' || n, 's', ${appName} || n, 'i', 'c', 'ask', 'call', '{"tool": "ask"}',
          now() + n * interval '1 s' from ${many}`,
    sql`analyze eval_sets, eval_case_versions, eval_cases, eval_runs, eval_run_cases, eval_session_scores, invocations,
          sessions, tasks`,
  ];
  for (const each of statements) await db.execute(each);
  return appName;
}

describe('among what many have', () => {
  let appName = '';
  beforeAll(async () => {
    appName = await fillMany();
  });

  test("what is one user's, or one page, is found by an index", async () => {
    const { db } = store.pool;
    const viewer = { users: ['u7'], groups: ['g'] };
    const ways: [string, () => Promise<unknown>][] = [
      ['eval_sets_owner_idx', () => listEvalSetIds(db, appName, { ownerId: 'u7', limit: 5 })],
      ['eval_runs_list_idx', () => listResultMoments(db, { appName, requestedBy: 'u7', after: undefined, limit: 5 })],
      ['eval_runs_set_idx', () => listEvalRuns(db, { appName, requestedBy: undefined, evalSetId: 's7', limit: 5 })],
      ['eval_session_scores_list_idx', () => listSessionScores(db, appName, { limit: 5 })],
      ['tasks_list_idx', () => listTasks(db, { groups: [] }, { state: 'open' }, 5, undefined)],
      ['invocations_app_time_idx', () => listInvocationPage(db, [appName], undefined, {}, 5, undefined)],
      ['invocations_app_time_idx', () => listInvocationPage(db, [appName], undefined, { text: 'x' }, 5, undefined)],
      [
        'invocations_failed_idx',
        () => listInvocationPage(db, [appName], undefined, { errorCode: 'internal' }, 5, undefined),
      ],
      [
        'invocations_failed_calls_idx',
        () => listInvocationPage(db, [appName], undefined, { failedToolCalls: true }, 5, undefined),
      ],
      [
        'invocations_stranded_idx',
        () => listInvocationPage(db, [appName], undefined, { stranded: true }, 5, undefined),
      ],
      ['invocations_user_time_idx', () => listInvocationPage(db, [appName], ['u7'], { text: 'x' }, 5, undefined)],
      ['invocations_pkey', () => listInvocationPage(db, [appName], ['u7'], { sessionId: 's' }, 5, undefined)],
      ['tasks_id_idx', () => findTask(db, viewer, 't')],
      ['tasks_due_idx', () => listDueTasks(db, 5)],
    ];
    for (const [index, work] of ways) {
      const text = (await statementsOf(work)).find((each) => !each.startsWith('begin')) ?? '';
      expect(await explain(text)).toContain(index);
    }
    // All invocations of a session are looked at, so what does not match is not kept.
    const ofSession = () => listInvocationPage(db, [appName], ['u7'], { sessionId: 's', text: 'x' }, 5, undefined);
    const kept = (await statementsOf(ofSession)).find((each) => !each.startsWith('begin')) ?? '';
    expect(await explain(kept)).not.toContain('CTE looked');
  });

  test('an erasure reads no table of evaluation whole', async () => {
    const { db } = store.pool;
    const user = { appName, userId: 'none' };
    const [deletion = ''] = await statementsOf(() => deleteRunCases(db, user));
    const counts = await statementsOf(() => countEvaluations(db, user));
    // The last two are of verdicts.
    const texts = [deletion, ...counts.slice(0, 5)];
    expect(texts).toHaveLength(6);
    for (const text of texts) expect(await explain(text)).not.toContain('Seq Scan');
  });

  test('usage of an application reads the invocations of its time only', async () => {
    const counted = sql`
      select idx_tup_fetch + seq_tup_read as n from pg_stat_xact_user_tables where relname = 'invocations'`;
    const n = await store.pool.transaction(async (tx) => {
      const before = await tx.execute<{ n: string }>(counted);
      await tx.execute(
        sql`select usage_report(${appName}, null, '2025-12-31 23:59:50.5', '2026-01-01', '{day}', null, 10)`,
      );
      const after = await tx.execute<{ n: string }>(counted);
      return Number(after.rows[0]?.n ?? 0) - Number(before.rows[0]?.n ?? 0);
    });
    expect(n).toBe(9);
  });
});

test('without statistics rows of an invocation are found by their key, not among all of an application', async () => {
  const fresh = await createTestDatabase();
  const client = new Client({ connectionString: fresh.url });
  await client.connect();
  await client.query('set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_bitmapscan = off');
  const key = ['app_name', 'user_id', 'session_id', 'id'];
  const rowKeys = {
    sessions: ['app_name', 'user_id', 'id'],
    invocations: key,
    tool_calls: [...key.slice(0, 3), 'invocation_id', 'call_id'],
  };
  for (const [table, columns] of Object.entries(rowKeys)) {
    const condition = columns.map((column, n) => `${column} = $${n + 1}`).join(' and ');
    await client.query(`prepare of_${table} as select 1 from ${table} where ${condition}`);
    const { rows } = await client.query<Record<'QUERY PLAN', string>>(
      `explain execute of_${table}(${columns.map(() => 'null').join()})`,
    );
    expect([table, rows[0]?.['QUERY PLAN'].split(' (')[0]]).toEqual([
      table,
      expect.stringMatching(new RegExp(`Index (?:Only )?Scan using ${table}_pkey`)),
    ]);
  }
  await client.end();
  await fresh.drop();
});

test('a look at the queue reads about as many rows as it wants, however many wait', async () => {
  const { db } = store.pool;
  const { appName } = newKey();
  await db.execute(sql`
    insert into sessions (app_name, user_id, id, state)
    select ${appName}, 'u' || n % 50, 's' || n, '{}' from generate_series(1, 20000) n`);
  await db.execute(sql`
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request)
    select ${appName}, 'u' || n % 50, 's' || n, 'e-' || n, 'queued', gen_random_uuid(), now(), '{"version": 1}'
    from generate_series(1, 20000) n`);
  await db.execute(sql`analyze sessions, invocations`);
  const read = sql`select (seq_tup_read + idx_tup_fetch)::int as n
                   from pg_stat_xact_user_tables where relname = 'invocations'`;
  const { heads, rows } = await store.pool.transaction(async (tx) => {
    const choice = { appNames: [appName], without: [], limit: 10, runs: 10, runsPerUser: 5, aheadMs: 5_000 };
    const { waiting, begun } = await listHeads(tx, choice, 3);
    return { heads: [...waiting, ...begun], rows: (await tx.execute<{ n: number }>(read)).rows };
  });
  expect(new Set(heads.map(({ key }) => key.userId)).size).toBe(10);
  expect(rows[0]?.n).toBeLessThan(1_000);
});
