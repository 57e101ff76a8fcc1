import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { countUnstoredEvent } from '../../src/invocations/fence.ts';
import { newUsage } from '../../src/invocations/persist.ts';
import type { Database } from '../../src/platform/db/database.ts';
import { newKey, testPool } from '../support/store.ts';

const store = testPool();

test('what an agent that is a tool has used counts once, also where the answer to that is lost', async () => {
  const key = newKey();
  let sent = 0;
  const losing = {
    async query(statement: { text: string; values: unknown[] }) {
      const result = await store.pool.db.$client.query(statement);
      if (++sent === 1) throw Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
      return result;
    },
  };
  const db = Object.assign(Object.create(store.pool.db) as Database, { $client: losing });
  const usage = newUsage();
  const lease = { key, invocationId: `e-${randomUUID()}`, token: randomUUID(), durationMs: 60_000 };
  const running = { context: { database: { db }, limits: { toolCalls: 100 } }, request: {}, lease, usage };
  const use = { model: 'm', answeredAs: 'm', promptTokens: 5, outputTokens: 2 };
  for (const id of [randomUUID(), randomUUID()]) {
    usage.add(use);
    const limited = { ...running, limitReached: new AbortController() } as unknown as Parameters<
      typeof countUnstoredEvent
    >[0];
    await countUnstoredEvent(limited, { id, invocationId: lease.invocationId, author: 'asked' });
  }
  const { rows } = await store.pool.db.execute(sql`
    select sum(prompt_tokens)::int as prompt, sum(output_tokens)::int as output
    from budget_uses where user_id = ${key.userId}`);
  expect([sent, rows]).toEqual([3, [{ prompt: 10, output: 4 }]]);
});
