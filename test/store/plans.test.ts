import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import type { Database } from '../../src/db/database.ts';
import type { SessionKey } from '../../src/core/session.ts';
import { findArtifactVersionText, saveArtifactVersion } from '../../src/artifacts/artifact-store.ts';
import { claimSession, type Lease, renewLease } from '../../src/invocations/lock-store.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { listEvents, listEventsAfter } from '../../src/sessions/event-store.ts';
import { appendEvents } from '../../src/sessions/append-store.ts';
import { findHistory } from '../../src/sessions/history-store.ts';
import { listSessions, type SessionPage } from '../../src/sessions/session-list-store.ts';
import { findSession, insertSession } from '../../src/sessions/session-store.ts';
import { newKey, statementsOf, testPool, textEvent } from '../support/store.ts';

/** PostgreSQL makes five plans for the values at hand; then it takes one for any values, unless that is much worse. */
const CALLS = 200;
const MAX_PLANS_PER_CALL = 0.05;

// One connection for writes: it shows its own statements only.
const store = testPool(2);

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

test('a statement that is repeated is not planned again, whatever its values', async () => {
  const { db } = store.pool;
  for (let n = 0; n < CALLS; n++) await useAll(db, newKey());
  const { rows } = await db.execute<Statement>(sql`
    select statement, (generic_plans + custom_plans)::int as calls, custom_plans::int as plans
    from pg_prepared_statements where generic_plans + custom_plans >= ${CALLS}`);
  expect(rows.length).toBeGreaterThanOrEqual(12);
  expect(rows.filter(({ calls, plans }) => plans > calls * MAX_PLANS_PER_CALL)).toEqual([]);
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
  const plan = await db.execute<{ 'QUERY PLAN': string }>(sql`explain (generic_plan, costs off) ${sql.raw(text)}`);
  const lines = plan.rows.map((row) => row['QUERY PLAN']).join('\n');
  const wanted = new RegExp(`CTE wanted\\n\\s+->  Limit\\n\\s+->  Index Scan (?:Backward )?using ${index} on`);
  expect(lines).toMatch(wanted);
});
