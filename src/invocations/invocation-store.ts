import { type SQL, and, count, eq, inArray, isNotNull, lt, notInArray, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import type { Loan } from '../agent/loop/run.ts';
import { toErrorCode } from '../core/error-codes.ts';
import { inBatches, isInBatch } from '../platform/db/batches.ts';
import type { Database } from '../platform/db/database.ts';
import type { ListPlace } from '../platform/http/operation/cursor.ts';
import { unescapeJson } from '../platform/json-escape.ts';
import { newestFirst } from '../platform/db/sql.ts';
import { callFunction } from '../platform/db/statement.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import type { InvocationCounts } from '../conversation/sessions/append-store.ts';
import { isBelow, isSession } from '../conversation/sessions/session-row.ts';
import type { SessionKey } from '../core/session.ts';
import { type Invocation, type InvocationError, type InvocationStatus, stoppedMessage } from './invocation.ts';
import { parseExactJson } from '../core/exact-json.ts';

const i = alias(invocations, 'i');

export const isInvocation = ({ key, invocationId }: { key: SessionKey; invocationId: string }): SQL =>
  sql`${isSession(key, invocations)} and ${invocations.id} = ${invocationId}`;

export const isActive = sql`${invocations.status} in ('queued', 'running')`;

/** SQL condition: the invocation is queued and its request is stored, so that any process may run it. */
export const isBackground = sql`(${invocations.status} = 'queued' and ${invocations.request} is not null)`;

/**
 * SQL condition: an active invocation's lease is valid, or it waits in the background queue, which needs none. Compares
 * with the statement's start: after waiting for a row lock an expired lease may count as valid, but never the reverse.
 */
export const isLive = sql<boolean>`(${invocations.leaseExpireTime} > statement_timestamp() or ${isBackground})`;

/** SQL expression: the JSON of an invocation as the HTTP API returns it, without its braces. */
export const invocationMembers = sql`
  '"id":' || to_json(${i.id}) || ',"appName":' || to_json(${i.appName}) || ',"userId":' || to_json(${i.userId}) ||
  ',"sessionId":' || to_json(${i.sessionId}) || ',"status":' || to_json(${i.status}) ||
  ',"createTime":' || extract(epoch from ${i.createTime}) ||
  coalesce(',"startTime":' || extract(epoch from ${i.startTime}), '') ||
  coalesce(',"endTime":' || extract(epoch from ${i.endTime}), '') ||
  coalesce(',"agentVersion":' || to_json(${i.agentVersion}), '') ||
  ',"llmCalls":' || ${i.llmCalls} || ',"toolCalls":' || ${i.toolCalls} ||
  case when ${i.failedCalls} > 0 then ',"failedToolCalls":' || ${i.failedCalls} else '' end ||
  case when ${i.endTime} is null then '' else ',"workSeconds":' || ${i.workMs}::float8 / 1000 end ||
  ',"promptTokens":' || ${i.promptTokens} || ',"outputTokens":' || ${i.outputTokens} ||
  coalesce(',"steeredInto":' || to_json(${i.steeredInvocationId}), '') ||
  coalesce(',"error":{"code":' || to_json(${i.errorCode}) || ',"message":' || to_json(${i.errorMessage}) || '}', '')`;
/** SQL expression: the member `cost`, or nothing. Computed of rows that are answered alone, because it reads prices. */
export const costMember = (modelTokens: SQL | typeof i.modelTokens): SQL =>
  sql`coalesce(',"cost":' || tokens_cost(${modelTokens}), '')`;
const invocationText = sql`'{' || ${invocationMembers} || ${costMember(i.modelTokens)} || '}'`;

export async function findInvocationText(db: Database, key: SessionKey, id: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(
    sql`select ${invocationText} as text from ${invocations} ${i} where ${isSession(key, i)} and ${i.id} = ${id}`,
  );
  return rows[0] && unescapeJson(rows[0].text);
}

/** Trace context of the last run of a paused invocation; `undefined` if it was not traced, or is not paused. */
export async function findPausedTrace(
  db: Database,
  key: SessionKey,
  invocationId: string,
): Promise<string | undefined> {
  const [row] = await db
    .select({ trace: sql<string | null>`${invocations.request} ->> 'trace'` })
    .from(invocations)
    .where(and(isInvocation({ key, invocationId }), eq(invocations.status, 'paused')));
  return row?.trace ?? undefined;
}

/** Returns a JSON array of the session's invocations, the newest first; equal times are ordered by id. */
export async function listInvocationsText(db: Database, key: SessionKey, limit: number): Promise<string> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select ${invocationText} as text from ${invocations} ${i} where ${isSession(key, i)}
    order by ${i.createTime} desc, ${i.id} desc limit ${limit}`);
  return `[${rows.map(({ text }) => unescapeJson(text)).join(',')}]`;
}

const changeTime = sql`coalesce(${i.endTime}, ${i.startTime}, ${i.createTime})`;
const lastChanged = newestFirst(changeTime, i.id);

/** A page of the user's invocations and the number of all matches: last changed first, equal times by id. */
export async function listInvocationsOfUser(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  filter: { sessionId: string | undefined; statuses: string[] | undefined; since: string | undefined },
  after: ListPlace | undefined,
  limit: number,
): Promise<{ rows: { invocation: Invocation; place: ListPlace }[]; total: number }> {
  const matches = and(
    eq(i.appName, appName),
    eq(i.userId, userId),
    filter.sessionId === undefined ? undefined : eq(i.sessionId, filter.sessionId),
    filter.statuses && sql`${i.status} = any(${sql.param(filter.statuses)}::text[])`,
    filter.since === undefined ? undefined : sql`${changeTime} >= ${filter.since}::timestamptz`,
  );
  const { rows } = await db.execute<{ text: string; time: string; id: string }>(sql`
    select ${invocationText} as text, ${lastChanged.place.time} as time, ${lastChanged.place.id} as id
    from ${invocations} ${i} where ${and(matches, lastChanged.isAfter(after))}
    order by ${lastChanged.order} limit ${limit}`);
  const totals = await db.select({ total: count() }).from(i).where(matches);
  return {
    rows: rows.map(({ text, ...place }) => ({ invocation: parseExactJson(unescapeJson(text)) as Invocation, place })),
    total: totals[0]?.total ?? 0,
  };
}

/** Id of the session's running invocation, else of the next queued one, else with `isAny` of the newest one. */
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

/** Id of the last message that an invocation took; `undefined` if it took none. */
export async function findLastTaken(db: Database, key: SessionKey, invocationId: string): Promise<string | undefined> {
  const [row] = await db
    .select({ id: invocations.id })
    .from(invocations)
    .where(and(isSession(key, invocations), eq(invocations.steeredInvocationId, invocationId)))
    // The order in which they were taken.
    .orderBy(sql`${invocations.endTime} desc, ${invocations.createTime} desc, ${invocations.id} desc`)
    .limit(1);
  return row?.id;
}

export interface KeyedInvocation {
  key: SessionKey;
  invocationId: string;
  status: InvocationStatus;
  /** Hash of the request that first used the idempotency key. */
  hash: string | null;
  answer: string | undefined;
  error: InvocationError | undefined;
  /** The invocation that took its message. */
  steeredInto: string | undefined;
  /** False if the process that ran the invocation has died. */
  live: boolean;
}

export const findByIdempotencyKey = (
  db: Database,
  { appName, userId }: SessionKey,
  idempotencyKey: string,
): Promise<KeyedInvocation | undefined> =>
  findKeyed(
    db,
    sql`${invocations.appName} = ${appName} and ${invocations.userId} = ${userId}
      and ${invocations.idempotencyKey} = ${idempotencyKey}`,
  );

export const findById = (db: Database, key: SessionKey, invocationId: string): Promise<KeyedInvocation | undefined> =>
  findKeyed(db, isInvocation({ key, invocationId }));

async function findKeyed(db: Database, condition: SQL): Promise<KeyedInvocation | undefined> {
  const [row] = await db
    .select({
      appName: invocations.appName,
      userId: invocations.userId,
      sessionId: invocations.sessionId,
      invocationId: invocations.id,
      status: invocations.status,
      steeredInto: invocations.steeredInvocationId,
      hash: invocations.requestHash,
      answer: invocations.responseBody,
      errorCode: invocations.errorCode,
      errorMessage: invocations.errorMessage,
      live: isLive,
    })
    .from(invocations)
    .where(condition);
  if (!row) return undefined;
  const { appName, userId, sessionId, errorCode, errorMessage, steeredInto, ...columns } = row;
  return {
    ...columns,
    key: { appName, userId, sessionId },
    steeredInto: steeredInto ?? undefined,
    answer: columns.answer ?? undefined,
    error: errorCode === null ? undefined : { code: toErrorCode(errorCode), message: errorMessage ?? '' },
  };
}

/** Invocations' statuses, and whether their processes live, in the order of the parameters, by one statement. */
export async function listInvocationStates(
  db: Database,
  refs: { key: SessionKey; invocationId: string }[],
): Promise<(string | undefined)[]> {
  const column = (values: string[]) => sql`${sql.param(values)}::text[]`;
  const ofKeys = (name: keyof SessionKey) => column(refs.map(({ key }) => key[name]));
  const { rows } = await db.execute<{ state: string | null }>(sql`
    select ${invocations.status} || ' ' || ${isLive} as state
    from unnest(${ofKeys('appName')}, ${ofKeys('userId')}, ${ofKeys('sessionId')},
                ${column(refs.map(({ invocationId }) => invocationId))})
         with ordinality as refs(app_name, user_id, session_id, id, place)
    left join ${invocations}
      on ${invocations.appName} = refs.app_name and ${invocations.userId} = refs.user_id
         and ${invocations.sessionId} = refs.session_id and ${invocations.id} = refs.id
    order by refs.place`);
  return rows.map(({ state }) => state ?? undefined);
}

/**
 * SQL condition: a run of the session, or of an agent that it called, is queued or at work. Found from the open
 * invocations of the user, which are few.
 */
export const hasOpenWork = ({ appName, userId, sessionId }: Record<keyof SessionKey, SQL>): SQL => sql`exists (
  select 1 from ${invocations} where ${invocations.appName} = ${appName} and ${invocations.userId} = ${userId}
    and ${invocations.status} in ('queued', 'running')
    and (${invocations.sessionId} = ${sessionId}
         or ${isBelow(invocations, (root) => sql`${root.sessionId} = ${sessionId}`)}))`;

/**
 * The invocation of a child session. `hasBegun` is false if it waits in the queue for its first run or an answer. `loans`
 * is what it has lent to agents in the background and these have not used.
 */
export interface EndedChild extends InvocationCounts {
  status: InvocationStatus;
  error: string | null;
  hasBegun: boolean;
  loans: Loan | null;
}

export async function findChild(db: Database, key: SessionKey, invocationId: string): Promise<EndedChild | undefined> {
  const { status, errorMessage: error, startTime, llmCalls, toolCalls, promptTokens, outputTokens } = invocations;
  const [row] = await db
    .select({
      status,
      error,
      hasBegun: sql<boolean>`${startTime} is not null`,
      loans: sql<Loan | null>`${invocations.request} -> 'loans'`,
      llmCalls,
      toolCalls,
      promptTokens,
      outputTokens,
    })
    .from(invocations)
    .where(isInvocation({ key, invocationId }));
  return row;
}

/**
 * An agent that an earlier attempt of a call began, if one did. One in the background that has ended has queued its
 * result for the parent, which has not ended (`tell_result`).
 */
export async function findBegunChild(
  db: Database,
  key: SessionKey,
  invocationId: string,
  parentSessionId: string,
): Promise<{ inBackground: boolean } | undefined> {
  const { request } = invocations;
  const result = { key: { ...key, sessionId: parentSessionId }, invocationId: `${invocationId}-result` };
  const { rows } = await db.execute<{ inBackground: boolean }>(sql`
    select case when ${request} ? 'child' then ${request} -> 'child' ? 'loan'
                else exists (select 1 from ${invocations} where ${isInvocation(result)}) end as "inBackground"
    from ${invocations} where ${isInvocation({ key, invocationId })}`);
  return rows[0];
}

/** The status of an invocation once a stop is requested, and how many agents that it left behind were stopped. */
export interface StopRequest {
  status: InvocationStatus;
  stopped: number;
}

/**
 * Requests a stop. A paused or not yet begun invocation ends at once, a running one when its process reads the request
 * or, if that is dead, when another process takes it over. A cancellation reaches its agents in the background too.
 * @returns `undefined` if there is no such invocation
 */
export async function requestStop(
  db: Database,
  { appName, userId, sessionId }: SessionKey,
  invocationId: string,
  status: 'cancelled' | 'interrupted',
): Promise<StopRequest | undefined> {
  const request = await callFunction<StopRequest | { status: null }>(db, 'request_stop', {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    p_id: invocationId,
    p_as: status,
    p_why: stoppedMessage(status),
  });
  return request.status === null ? undefined : request;
}

/** Frees the idempotency key of an invocation without effects, so that a retry of the request runs again. */
export async function forgetKey(db: Database, key: SessionKey, invocationId: string): Promise<void> {
  await db.update(invocations).set({ idempotencyKey: null }).where(isInvocation({ key, invocationId }));
}

/** Frees the idempotency keys of invocations older than `hours`, in small batches. */
export async function forgetInvocationKeys(db: Database, hours: number, signal?: AbortSignal): Promise<void> {
  const isOld = lt(invocations.createTime, sql`statement_timestamp() - ${hours} * interval '1 hour'`);
  const condition = sql`${isNotNull(invocations.idempotencyKey)} and ${isOld}`;
  const isNext = isInBatch(invocations, condition, invocations.createTime);
  await inBatches(() => db.update(invocations).set({ idempotencyKey: null }).where(isNext), signal);
}

/**
 * Enables the outbox entry that records the end of an invocation, because A2A clients wait for that end.
 * @returns the status of the invocation, or `undefined` if there is no such invocation
 */
export async function enableOutbox(
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

/** An invocation that was asked to stop. */
export interface StoppingInvocation extends SessionKey {
  invocationId: string;
}

/** Cancels invocations of one user, one after the other, as {@link requestStop} does. @returns their ids */
async function cancelAll(db: Database, condition: SQL | undefined): Promise<StoppingInvocation[]> {
  const { appName, userId, sessionId, id: invocationId } = invocations;
  const found = await db.select({ appName, userId, sessionId, invocationId }).from(invocations).where(condition);
  for (const { invocationId: id, ...key } of found) await requestStop(db, key, id, 'cancelled');
  return found;
}

const isOfUser = ({ appName, userId }: Pick<SessionKey, 'appName' | 'userId'>) =>
  and(eq(invocations.appName, appName), eq(invocations.userId, userId));

/** Cancels a user's active invocations. @returns their ids */
export const requestStopOfUser = (
  db: Database,
  user: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<StoppingInvocation[]> => cancelAll(db, and(isOfUser(user), isActive));

/** Cancels those of a session's invocations that have called agents and do not run, and with them the agents. */
export function requestStopOfAgents(
  db: Database,
  key: SessionKey,
  invocationIds: readonly string[],
): Promise<StoppingInvocation[]> {
  const { id, children, status } = invocations;
  const hasAgents = sql`${children} > 0 and ${status} not in ('queued', 'running')`;
  return cancelAll(db, and(isSession(key, invocations), inArray(id, [...invocationIds]), hasAgents));
}

/** Cancels active and paused invocations that are steps of these jobs. @returns their ids */
export async function requestStopOfSteps(
  db: Database,
  kind: string,
  jobs: { key: SessionKey; jobId: string }[],
): Promise<string[]> {
  const ids: string[] = [];
  // For each user alone, because a distributed database asks one node then.
  for (const [owner, own] of Map.groupBy(jobs, ({ key }) => key.userId)) {
    const column = (values: string[]) => sql`${sql.param(values)}::text[]`;
    const ofKeys = (name: keyof SessionKey) => column(own.map(({ key }) => key[name]));
    const { appName, userId, sessionId, job } = invocations;
    const isStep = sql`(${appName}, ${sessionId}, ${job} ->> 'id') in (
      select * from unnest(${ofKeys('appName')}, ${ofKeys('sessionId')}, ${column(own.map(({ jobId }) => jobId))}))`;
    const isOpen = sql`(${isActive} or ${invocations.status} = 'paused')`;
    const found = await cancelAll(db, and(eq(userId, owner), isStep, sql`${job} ->> 'kind' = ${kind}`, isOpen));
    ids.push(...found.map(({ invocationId }) => invocationId));
  }
  return ids;
}

/**
 * Cancels open runs of a cronjob, all but some, or one, also if that has ended and its agents in the background have not.
 */
export function requestStopOfRuns(
  db: Database,
  { id, ...user }: { appName: string; userId: string; id: string },
  runs: { only: string } | { except: readonly string[] },
): Promise<StoppingInvocation[]> {
  const { runId, cronjobId, firstEndTime, children, status } = invocations;
  const isOpen = sql`(${firstEndTime} is null and ${isActive})`;
  const hasAgents = sql`(${children} > 0 and ${status} not in ('queued', 'running', 'paused'))`;
  const isMeant =
    'only' in runs
      ? and(eq(runId, runs.only), sql`(${isOpen} or ${hasAgents})`)
      : and(notInArray(runId, [...runs.except]), isOpen);
  return cancelAll(db, and(isOfUser(user), eq(cronjobId, id), isMeant));
}

/** A time that no code converts to a date: of a queued invocation it is `infinity`. */
export const UNREAD_TIME = invocations.leaseExpireTime.name;

/** Counts the running invocations of a user whose process is alive. */
export const countRunning = (
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<number> =>
  db.$count(
    invocations,
    and(eq(invocations.appName, appName), eq(invocations.userId, userId), eq(invocations.status, 'running'), isLive),
  );
