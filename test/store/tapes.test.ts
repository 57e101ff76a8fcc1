import { randomBytes, randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { findHistory } from '../../src/conversation/sessions/history.ts';
import { finishInvocation } from '../../src/invocations/finish-store.ts';
import { claimSession } from '../../src/invocations/lock-store.ts';
import { toRuns } from '../../src/invocations/replay/tape-run.ts';
import { listTapes, type Tape } from '../../src/invocations/tape.ts';
import type { Database } from '../../src/platform/db/database.ts';
import { newKey, testPool, textEvent } from '../support/store.ts';

const store = testPool(2);
const toTape = (start: number, size: number): Tape => ({
  start,
  prompts: new Map(),
  payload: {
    version: 1,
    overrides: {},
    hasOwnServers: false,
    values: { key: randomBytes(size).toString('base64') },
    unkept: [],
    prompts: [],
    calls: [],
  },
});

test('an invocation has tapes of 256 KiB at most and one more; a replay sees its later runs as such without a tape', async () => {
  const { db } = store.pool;
  const key = newKey();
  const invocationId = `e-${randomUUID()}`;
  for (const run of [0, 1, 2, 3]) {
    const lease = { key, invocationId, token: randomUUID(), durationMs: 60_000 };
    expect(await claimSession(db, lease, [textEvent('p', { invocationId })], run === 0)).toBe(true);
    const answer = textEvent('a', { invocationId, author: 'agent' });
    await finishInvocation(db, lease, [answer], { status: 'paused', tape: toTape(2 * run + 1, 150_000) });
  }
  const tapes = await listTapes(db, key, invocationId);
  expect(tapes.map(({ start }) => start)).toEqual([1, 3]);
  const history = await findHistory(db, key);
  if (!history) throw new Error('there is no session');
  const runs = toRuns(history, invocationId, tapes);
  expect(runs.map(({ tape, events }) => [tape?.start, events.length])).toEqual([
    [1, 1],
    [3, 1],
    [undefined, 1],
    [undefined, 1],
  ]);
});

test('a replay reads tapes in order, and none that no run stores', async () => {
  const { db } = store.pool;
  const key = newKey();
  const invocationId = `e-${randomUUID()}`;
  const lease = { key, invocationId, token: randomUUID(), durationMs: 60_000 };
  await claimSession(db, lease, [textEvent('p', { invocationId })], true);
  const { start, payload } = toTape(1, 1);
  for (const [stored, starts] of [
    [
      [{ start: 3, payload }, 5, {}, { start }, { start, payload: { ...payload, prompts: [5] } }, { start, payload }],
      [1, 3],
    ],
    [{}, []],
    [5, []],
  ]) {
    await db.execute(
      sql`update invocations set tapes = ${JSON.stringify(stored)}::jsonb where session_id = ${key.sessionId}`,
    );
    expect((await listTapes(db, key, invocationId)).map((tape) => tape.start)).toEqual(starts);
  }
});

test('a deletion of an invocation that runs reads none of its tapes', async () => {
  const { db } = store.pool;
  const key = newKey();
  const invocationId = `e-${randomUUID()}`;
  const claim = async (isNew: boolean) => {
    const lease = { key, invocationId, token: randomUUID(), durationMs: 60_000 };
    expect(await claimSession(db, lease, [textEvent('p', { invocationId })], isNew)).toBe(true);
    return lease;
  };
  await finishInvocation(db, await claim(true), [], { status: 'paused', tape: toTape(1, 150_000) });
  await claim(false);
  /** Blocks of large values that this connection has touched. */
  const readCount = async (tx: Database) => {
    const { rows } = await tx.execute<{ blocks: number }>(sql`
      select pg_stat_get_xact_blocks_fetched(reltoastrelid)::int as blocks from pg_class
      where oid = 'invocations'::regclass`);
    return rows[0]?.blocks ?? NaN;
  };
  /** Those that the deletion of the row touches, which deletes them too. */
  const touched = async (job: string | null) => {
    let blocks = NaN;
    await db.execute(sql`update invocations set job = ${job}::jsonb where id = ${invocationId}`);
    const work = store.pool.transaction(async (tx) => {
      const before = await readCount(tx);
      await tx.execute(sql`delete from invocations where id = ${invocationId}`);
      blocks = (await readCount(tx)) - before;
      throw new Error('undone');
    });
    await expect(work).rejects.toThrow('undone');
    return blocks;
  };
  const deleted = await touched(null);
  expect(deleted).toBeGreaterThan(50);
  expect(await touched('{"kind": "other"}')).toBe(deleted);
});
