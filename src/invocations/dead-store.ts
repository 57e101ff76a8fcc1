import { type SQL, and, eq, isNull, lt, not, sql } from 'drizzle-orm';
import type { SessionKey } from '../core/session.ts';
import { inBatches, isInBatch } from '../platform/db/batches.ts';
import type { Database } from '../platform/db/database.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { holdsSession } from '../conversation/sessions/session-row.ts';
import type { InvocationStatus } from './invocation.ts';

/** Error message of a queued invocation whose process died. Its idempotency key is freed for a retry. */
const STOPPED_WHILE_QUEUED = 'The invocation was interrupted: its process stopped before it began.';
/** Error message of an invocation with the status `running` whose session is held by another invocation. */
const LOST_ITS_SESSION = 'The invocation was interrupted: its process lost the session.';

const interrupted = (errorMessage: string) => ({
  status: 'interrupted' as const,
  endTime: sql`statement_timestamp()`,
  errorCode: 'interrupted',
  errorMessage,
});

const isDead = lt(invocations.leaseExpireTime, sql`statement_timestamp()`);
const isInDeadBatch = (status: InvocationStatus, more: SQL = sql`true`) =>
  isInBatch(invocations, sql`${eq(invocations.status, status)} and ${isDead} and ${more}`, invocations.leaseExpireTime);

/** Tells whether any lease has expired, and in how many milliseconds the next lease of a running invocation expires. */
export async function findDead(db: Database): Promise<{ isDue: boolean; nextMs: number }> {
  const { status, leaseExpireTime, request } = invocations;
  // Citus refuses `exists` with a subquery that selects no column.
  const exists = (condition: SQL) => sql`exists (select 1 from ${invocations} where ${condition})`;
  const running = sql`${status} = 'running'`;
  const { rows } = await db.execute<{ isDue: boolean; nextMs: number | null }>(sql`
    select ${exists(sql`${running} and ${isDead}`)}
             or ${exists(sql`${status} = 'queued' and ${request} is null and ${isDead}`)} as "isDue",
      (select 1000 * extract(epoch from min(${leaseExpireTime}) - statement_timestamp()) from ${invocations}
       where ${running} and not ${isDead})::float8 as "nextMs"`);
  return { isDue: rows[0]?.isDue === true, nextMs: Math.ceil(rows[0]?.nextMs ?? Infinity) + 1 };
}

/** Ends queued invocations whose process died; background ones stay queued, because they need no process. */
export async function endDeadWaiters(db: Database): Promise<void> {
  const values = { ...interrupted(STOPPED_WHILE_QUEUED), idempotencyKey: null };
  await inBatches(() =>
    db
      .update(invocations)
      .set(values)
      .where(isInDeadBatch('queued', isNull(invocations.request))),
  );
}

/** Ends invocations with the status `running` whose session is held under another lease token. */
export async function endLostInvocations(db: Database): Promise<void> {
  const values = { ...interrupted(LOST_ITS_SESSION), request: null };
  const isLost = isInDeadBatch('running', not(holdsSession(invocations)));
  await inBatches(() => db.update(invocations).set(values).where(isLost));
}

/** The sessions whose holder's process died, the longest dead first, without the first `offset`. */
export function listDeadHolders(db: Database, limit: number, offset: number): Promise<SessionKey[]> {
  const { appName, userId, sessionId, leaseExpireTime } = invocations;
  return db
    .select({ appName, userId, sessionId })
    .from(invocations)
    .where(and(eq(invocations.status, 'running'), isDead, holdsSession(invocations)))
    .orderBy(leaseExpireTime, appName, userId, sessionId)
    .limit(limit)
    .offset(offset);
}
