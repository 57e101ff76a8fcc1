import { type SQL, and, count, eq, isNotNull, lt, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import { toErrorCode } from '../core/error-codes.ts';
import { inBatches, isInBatch } from '../platform/db/batches.ts';
import type { Database } from '../platform/db/database.ts';
import type { ListPlace } from '../platform/http/operation/cursor.ts';
import { unescapeJson, unescapeText } from '../platform/db/json-escape.ts';
import { exactTime, isAfterPlace } from '../platform/db/sql.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import type { SessionKey } from '../core/session.ts';
import { type Invocation, type InvocationError, type InvocationStatus, stoppedMessage } from './invocation.ts';
import { parseExactJson } from '../core/exact-json.ts';

const i = alias(invocations, 'i');

/** The condition for the row of one invocation. */
export const isInvocation = ({ key, invocationId }: { key: SessionKey; invocationId: string }): SQL =>
  sql`${isSession(key, invocations)} and ${invocations.id} = ${invocationId}`;

/** The condition that an invocation waits or runs. */
export const isActive = sql`${invocations.status} in ('queued', 'running')`;

/** The condition that an invocation waits in the background: its request is in its row, for any process to run. */
export const isBackground = sql`(${invocations.status} = 'queued' and ${invocations.request} is not null)`;

/**
 * True while the process of an active invocation renews its lease, or while it needs none. As of the beginning of the
 * statement: one that had to wait for a lock takes a lease for alive rather than for over.
 */
export const isLive = sql<boolean>`(${invocations.leaseExpireTime} > statement_timestamp() or ${isBackground})`;

/** The time of the statement as `moment.now`: a distributed database does not take the function in a `case`. */
const NOW = sql`(select statement_timestamp() as now) moment`;

/** The JSON text of an invocation as the wire shows it. */
const invocationText = sql`
  '{"id":' || to_json(${i.id}) || ',"appName":' || to_json(${i.appName}) || ',"userId":' || to_json(${i.userId}) ||
  ',"sessionId":' || to_json(${i.sessionId}) || ',"status":' || to_json(${i.status}) ||
  ',"createTime":' || extract(epoch from ${i.createTime}) ||
  coalesce(',"startTime":' || extract(epoch from ${i.startTime}), '') ||
  coalesce(',"endTime":' || extract(epoch from ${i.endTime}), '') ||
  coalesce(',"agentVersion":' || to_json(${i.agentVersion}), '') ||
  ',"llmCalls":' || ${i.llmCalls} || ',"toolCalls":' || ${i.toolCalls} ||
  ',"promptTokens":' || ${i.promptTokens} || ',"outputTokens":' || ${i.outputTokens} ||
  coalesce(',"error":{"code":' || to_json(${i.errorCode}) || ',"message":' || to_json(${i.errorMessage}) || '}', '') ||
  '}'`;

/** One invocation as JSON text; `undefined` where there is none. */
export async function findInvocationText(db: Database, key: SessionKey, id: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(
    sql`select ${invocationText} as text from ${invocations} ${i} where ${isSession(key, i)} and ${i.id} = ${id}`,
  );
  return rows[0] && unescapeJson(rows[0].text);
}

/** The invocations of a session as the JSON text of an array, newest first, then by id; at most `limit`. */
export async function listInvocationsText(db: Database, key: SessionKey, limit: number): Promise<string> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select ${invocationText} as text from ${invocations} ${i} where ${isSession(key, i)}
    order by ${i.createTime} desc, ${i.id} desc limit ${limit}`);
  return `[${rows.map(({ text }) => unescapeJson(text)).join(',')}]`;
}

/** Time of the last change of an invocation. */
const changeTime = sql`coalesce(${i.endTime}, ${i.startTime}, ${i.createTime})`;

/** Lists the invocations of a user that changed last, newest first, then by id, after a place; and counts them all. */
export async function listInvocationsOfUser(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  wanted: { sessionId: string | undefined; statuses: string[] | undefined; since: string | undefined },
  after: ListPlace | undefined,
  limit: number,
): Promise<{ rows: { invocation: Invocation; place: ListPlace }[]; total: number }> {
  const matches = and(
    eq(i.appName, appName),
    eq(i.userId, userId),
    wanted.sessionId === undefined ? undefined : eq(i.sessionId, wanted.sessionId),
    wanted.statuses && sql`${i.status} = any(${sql.param(wanted.statuses)}::text[])`,
    wanted.since === undefined ? undefined : sql`${changeTime} >= ${wanted.since}::timestamptz`,
  );
  const { rows } = await db.execute<{ text: string; time: string; id: string }>(sql`
    select ${invocationText} as text, ${exactTime(changeTime)} as time, ${i.id} as id
    from ${invocations} ${i} where ${and(matches, isAfterPlace({ time: changeTime, id: i.id }, after))}
    order by ${changeTime} desc, ${i.id} desc limit ${limit}`);
  const counted = await db.select({ total: count() }).from(i).where(matches);
  return {
    rows: rows.map(({ text, ...place }) => ({ invocation: parseExactJson(unescapeJson(text)) as Invocation, place })),
    total: counted[0]?.total ?? 0,
  };
}

/**
 * Finds the invocation that a session runs, or else the one that is next to run; where it has neither and `isAny`, the
 * newest. @returns its id
 */
export async function findCurrent(db: Database, key: SessionKey, isAny = false): Promise<string | undefined> {
  const isNext = sql`case when ${invocations.status} = 'queued' then ${invocations.createTime} end`;
  const [row] = await db
    .select({ id: invocations.id })
    .from(invocations)
    .where(and(isSession(key, invocations), isAny ? undefined : isActive))
    .orderBy(
      sql`${invocations.status} <> 'running', ${invocations.status} <> 'queued', ${isNext},
          ${invocations.createTime} desc, ${invocations.id} desc`,
    )
    .limit(1);
  return row?.id;
}

/** An invocation found by its idempotency key. */
export interface KeyedInvocation {
  key: SessionKey;
  invocationId: string;
  status: InvocationStatus;
  /** Hash of the request with the key. */
  hash: string | null;
  answer: string | undefined;
  error: InvocationError | undefined;
  /** False where the process that ran it is gone. */
  live: boolean;
}

/** The invocation that a user's idempotency key belongs to. */
export async function findByIdempotencyKey(
  db: Database,
  { appName, userId }: SessionKey,
  idempotencyKey: string,
): Promise<KeyedInvocation | undefined> {
  const [row] = await db
    .select({
      sessionId: invocations.sessionId,
      invocationId: invocations.id,
      status: invocations.status,
      hash: invocations.requestHash,
      answer: invocations.responseBody,
      errorCode: invocations.errorCode,
      errorMessage: invocations.errorMessage,
      live: isLive,
    })
    .from(invocations)
    .where(
      and(
        eq(invocations.appName, appName),
        eq(invocations.userId, userId),
        eq(invocations.idempotencyKey, idempotencyKey),
      ),
    );
  if (!row) return undefined;
  const { sessionId, errorCode, errorMessage, ...found } = row;
  return {
    ...found,
    key: { appName, userId, sessionId },
    answer: found.answer === null ? undefined : unescapeText(found.answer),
    error: errorCode === null ? undefined : { code: toErrorCode(errorCode), message: unescapeText(errorMessage ?? '') },
  };
}

/** Lists the status of some invocations, and whether their process lives, in their order and one statement. */
export async function listInvocationStates(
  db: Database,
  wanted: { key: SessionKey; invocationId: string }[],
): Promise<(string | undefined)[]> {
  const column = (values: string[]) => sql`${sql.param(values)}::text[]`;
  const ofKeys = (name: keyof SessionKey) => column(wanted.map(({ key }) => key[name]));
  const { rows } = await db.execute<{ state: string | null }>(sql`
    select ${invocations.status} || ' ' || ${isLive} as state
    from unnest(${ofKeys('appName')}, ${ofKeys('userId')}, ${ofKeys('sessionId')},
                ${column(wanted.map(({ invocationId }) => invocationId))})
         with ordinality as wanted(app_name, user_id, session_id, id, place)
    left join ${invocations}
      on ${invocations.appName} = wanted.app_name and ${invocations.userId} = wanted.user_id
         and ${invocations.sessionId} = wanted.session_id and ${invocations.id} = wanted.id
    order by wanted.place`);
  return rows.map(({ state }) => state ?? undefined);
}

/** The columns of an invocation that is asked to stop: one ends at once that is paused, or has not begun. */
function toStopped(status: 'cancelled' | 'interrupted') {
  const ends = sql`(${invocations.status} = 'paused'
    or ${invocations.status} = 'queued' and ${invocations.startTime} is null)`;
  return {
    stopRequestedAs: sql`case when ${isActive} then ${status} else ${invocations.stopRequestedAs} end`,
    endTime: sql`case when ${ends} then greatest(moment.now, ${invocations.createTime})
                        else ${invocations.endTime} end`,
    errorCode: sql`case when ${ends} then ${status} else ${invocations.errorCode} end`,
    errorMessage: sql`case when ${ends} then ${stoppedMessage(status)} else ${invocations.errorMessage} end`,
    request: sql`case when ${ends} then null else ${invocations.request} end`,
    status: sql`case when ${ends} then ${status} else ${invocations.status} end`,
  };
}

/**
 * Asks an invocation to end as `cancelled` or `interrupted`. A paused one and one that has not begun end at once, a
 * running one when its process sees it, one whose process died when another takes it up.
 * @returns its status after the request; `undefined` where there is no such invocation.
 */
export async function requestStop(
  db: Database,
  key: SessionKey,
  invocationId: string,
  status: 'cancelled' | 'interrupted',
): Promise<InvocationStatus | undefined> {
  const [row] = await db
    .update(invocations)
    .set(toStopped(status))
    .from(NOW)
    .where(isInvocation({ key, invocationId }))
    .returning({ status: invocations.status });
  return row?.status;
}

/** Frees the idempotency key of an invocation that did nothing. */
export async function forgetKey(db: Database, key: SessionKey, invocationId: string): Promise<void> {
  await db.update(invocations).set({ idempotencyKey: null }).where(isInvocation({ key, invocationId }));
}

/** Frees the idempotency keys of invocations that are older than `hours`, in short statements. */
export async function forgetInvocationKeys(db: Database, hours: number, signal?: AbortSignal): Promise<void> {
  const isOld = lt(invocations.createTime, sql`statement_timestamp() - ${hours} * interval '1 hour'`);
  const condition = sql`${isNotNull(invocations.idempotencyKey)} and ${isOld}`;
  const isNext = isInBatch(invocations, condition, invocations.createTime);
  await inBatches(() => db.update(invocations).set({ idempotencyKey: null }).where(isNext), signal);
}

/** Has the outbox filled for clients of an invocation's task. @returns its status; `undefined` without an invocation */
export async function tellClients(
  db: Database,
  of: { key: SessionKey; invocationId: string },
): Promise<InvocationStatus | undefined> {
  const [row] = await db
    .update(invocations)
    .set({ webhookUrl: sql`coalesce(${invocations.webhookUrl}, '')` })
    .where(isInvocation(of))
    .returning({ status: invocations.status });
  return row?.status;
}

/** Asks all active invocations of a user to end as cancelled, as {@link requestStop} does. @returns them */
export function requestStopOfUser(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<{ sessionId: string; invocationId: string }[]> {
  return db
    .update(invocations)
    .set(toStopped('cancelled'))
    .from(NOW)
    .where(and(eq(invocations.appName, appName), eq(invocations.userId, userId), isActive))
    .returning({ sessionId: invocations.sessionId, invocationId: invocations.id });
}

/** How many invocations of a user run in a process that lives. */
export const countRunning = (
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<number> =>
  db.$count(
    invocations,
    and(eq(invocations.appName, appName), eq(invocations.userId, userId), eq(invocations.status, 'running'), isLive),
  );
