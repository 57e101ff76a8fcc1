import { sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { newKey, testPool, textEvent } from '../support/store.ts';
import { report } from './support/faults.ts';

const store = testPool();

/** After a fail-over the clock of the new primary may be behind what the old one wrote. */
const SKEWS = ['1 hour', '1 second', '1 microsecond'];

test("a database whose clock was put back: a session's time goes on rising, by a microsecond at least", async () => {
  for (const skew of SKEWS) {
    const key = newKey();
    await insertSession(store.pool.db, key, {}, [textEvent('before')]);
    const updateTime = sql`(extract(epoch from update_time) * 1000000)::bigint as micros`;
    const ahead = await store.pool.db.execute<{ micros: string }>(sql`
      update sessions set update_time = clock_timestamp() + ${skew}::interval where id = ${key.sessionId}
      returning ${updateTime}`);
    const times = [Number(ahead.rows[0]?.micros)];
    for (let n = 0; n < 3; n++) {
      await appendEvents(store.pool.db, key, [textEvent(`after ${n}`)]);
      const { rows } = await store.pool.db.execute<{ micros: string }>(
        sql`select ${updateTime} from sessions where id = ${key.sessionId}`,
      );
      times.push(Number(rows[0]?.micros));
    }
    const { rows } = await store.pool.db.execute<{ rises: boolean }>(
      sql`select bool_and(rises) as rises from (
            select event_time > lag(event_time, 1, '-infinity') over (order by sequence) as rises
            from events where session_id = ${key.sessionId}) e`,
    );
    expect([skew, times.toSorted((a, b) => a - b), new Set(times).size]).toEqual([skew, times, 4]);
    expect(rows).toEqual([{ rises: true }]);
  }
  report('clock', `put back by ${SKEWS.join(', ')}: 0 violations`);
});
