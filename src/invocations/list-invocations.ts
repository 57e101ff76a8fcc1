import { type SQL, and, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import { KEY } from '../conversation/sessions/session-row.ts';
import { clampedSeconds } from '../conversation/sessions/session-store.ts';
import { runAsUser } from '../platform/context.ts';
import type { Database } from '../platform/db/database.ts';
import { invocations } from '../platform/db/schema/schema.ts';
import { newestFirst } from '../platform/db/sql.ts';
import { statement, value } from '../platform/db/statement.ts';
import type { ListPlace } from '../platform/http/operation/cursor.ts';
import { unescapeJson } from '../platform/json-escape.ts';
import { UNSUCCESSFUL_STATUSES, type InvocationStatus, isUnsuccessful, STATUSES } from './invocation.ts';
import { costMember, invocationMembers } from './invocation-store.ts';
import { getResuming } from './waits/task-store.ts';

/**
 * Maximum invocations of an application or a user that a page looks at. Of the filters only time, user, failure, failed
 * tool calls and what nothing resumes have an index; an index for each would be written by every invocation.
 */
export const MAX_LOOKED_AT = 5_000;

const i = alias(invocations, 'i');

export interface InvocationFilter {
  statuses?: readonly InvocationStatus[] | undefined;
  errorCode?: string | undefined;
  agent?: string | undefined;
  version?: string | undefined;
  sessionId?: string | undefined;
  /** Only those with a tool call whose response has an error. */
  failedToolCalls?: boolean | undefined;
  /** Only paused ones that wait for tasks of which none is left, so that nothing will resume them. */
  stranded?: boolean | undefined;
  /** Text in the beginning of the prompt, or the whole id of the invocation or its session. */
  text?: string | undefined;
  /** Unix time in seconds. */
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
}

/** JSON texts, the newest first. */
export interface InvocationPage {
  texts: string[];
  /** Where the next page begins. */
  next?: ListPlace | undefined;
  /** True if the page ends at `next` because it looked at so many; older invocations may match. */
  isCut: boolean;
}

interface Row extends ListPlace {
  /** Null for the place at which the statement stopped to look. */
  text: string | null;
}

/**
 * A page of invocations of all users, or of some; of a session of one user, all are looked at.
 * @param appNames - a statement is sent for each of them
 * @param userIds - a statement is sent for each of them in each application
 */
export async function listInvocationPage(
  db: Database,
  appNames: readonly string[],
  userIds: readonly string[] | undefined,
  filter: InvocationFilter,
  limit: number,
  after: ListPlace | undefined,
): Promise<InvocationPage> {
  const isOfFailed = filter.errorCode !== undefined || filter.statuses?.every((each) => isUnsuccessful(each)) === true;
  const values = {
    sessionId: filter.sessionId ?? null,
    statuses: filter.statuses ?? (isOfFailed ? UNSUCCESSFUL_STATUSES : STATUSES),
    errorCode: filter.errorCode ?? null,
    agent: filter.agent ?? null,
    version: filter.version ?? null,
    failedCalls: filter.failedToolCalls === true ? 1 : 0,
    text: filter.text ?? '',
    id: filter.text ?? '',
    createdAfter: clampedSeconds(filter.createdAfter ?? -Infinity),
    createdBefore: clampedSeconds(filter.createdBefore ?? Infinity),
    afterTime: after?.time ?? 'infinity',
    afterId: after?.id ?? '',
    size: limit + 1,
  };
  const ofApp = filter.failedToolCalls === true ? selectOfFailedCalls : isOfFailed ? selectFailed : selectOfApp;
  const all = { ofApp, ofUser: selectOfUser, ofSession: selectOfSession };
  const chosen = filter.stranded === true ? STRANDED : all;
  const found: Row[] = [];
  for (const appName of appNames) {
    if (!userIds) found.push(...(await chosen.ofApp(db, { ...values, appName })));
    const ofUser = filter.sessionId === undefined ? chosen.ofUser : chosen.ofSession;
    for (const userId of userIds ?? [])
      found.push(...(await runAsUser(userId, () => ofUser(db, { ...values, appName, userId }))));
  }
  return toPage(found, limit);
}

function toPage(rows: Row[], limit: number): InvocationPage {
  const inOrder = rows.toSorted((one, other) => (isBefore(one, other) ? -1 : 1));
  const end = inOrder.findIndex(({ text }) => text === null);
  const found = end < 0 ? inOrder : inOrder.slice(0, end);
  const texts = found.slice(0, limit).map(({ text }) => unescapeJson(text ?? ''));
  const last = found.length > limit ? found[limit - 1] : inOrder[end];
  return { texts, ...(last && { next: { time: last.time, id: last.id } }), isCut: found.length <= limit && end >= 0 };
}

/** True if `one` comes first in the list. The place at which a statement stopped comes behind the row at that place. */
const isBefore = (one: Row, other: Row): boolean =>
  one.time === other.time ? (one.id === other.id ? one.text !== null : one.id > other.id) : one.time > other.time;

const LOOKED = [
  i.appName,
  i.userId,
  i.sessionId,
  i.id,
  i.status,
  i.createTime,
  i.startTime,
  i.endTime,
  i.agentVersion,
  i.agent,
  i.firstText,
  i.llmCalls,
  i.toolCalls,
  i.failedCalls,
  i.workMs,
  i.modelTokens,
  i.promptTokens,
  i.outputTokens,
  i.steeredInvocationId,
  i.errorCode,
  i.errorMessage,
];
const list = newestFirst(i.createTime, i.id);
const item = sql`'{' || ${invocationMembers} || coalesce(',"agent":' || to_json(${i.agent}), '')
  || coalesce(',"firstText":' || to_json(${i.firstText}), '')`;
const optionally = (column: SQL | (typeof LOOKED)[number], name: string) =>
  sql`(${value(name)}::text is null or ${column} = ${value(name)}::text)`;
const matches = and(
  sql`${i.status} = any(${value('statuses')}::text[])`,
  sql`${i.failedCalls} >= ${value('failedCalls')}::integer`,
  optionally(i.errorCode, 'errorCode'),
  optionally(i.agent, 'agent'),
  optionally(i.agentVersion, 'version'),
  optionally(i.sessionId, 'sessionId'),
  sql`(position(lower(${sql.param(value('text'), i.firstText)}) in lower(coalesce(${i.firstText}, ''))) > 0
    or ${value('id')}::text in (${i.id}, ${i.sessionId}))`,
);
const isOfUser = sql`${i.userId} = ${value('userId')}::text`;

/**
 * @param isListed - who they are of, with the condition of the index by which they are read
 * @param isWhole - all of them are looked at
 * @param resuming - only those that have none of these tasks
 */
const select = (isListed: SQL, isWhole = false, resuming?: ReturnType<typeof getResuming>) =>
  statement<Row>(
    () => sql`
  with looked as ${sql.raw(isWhole ? 'not materialized' : 'materialized')} (
    select ${sql.join(LOOKED, sql`, `)} from ${invocations} ${i}
    where ${i.appName} = ${value('appName')} and ${isListed}
      and ${i.createTime} > to_timestamp(${value('createdAfter')}::float8)
      and ${i.createTime} < to_timestamp(${value('createdBefore')}::float8)
      and (${i.createTime}, ${i.id}) < (${value('afterTime')}::timestamptz, ${value('afterId')}::text)
    order by ${list.order} limit ${sql.raw(isWhole ? 'all' : `${MAX_LOOKED_AT}`)}),
  page as materialized (
    select ${item} as text, ${list.place.time} as time, ${list.place.id} as id, ${i.modelTokens} as tokens
    from looked ${i}
    ${resuming ? sql`left join ${resuming.table} on ${resuming.on}` : sql``}
    where ${and(matches, resuming?.isNone)}
    order by ${list.order} limit ${value('size')}::int)
  select page.text || ${costMember(sql`page.tokens`)} || '}' as text, page.time, page.id from page
  ${
    isWhole
      ? sql``
      : sql`union all
  (select null, ${list.place.time}, ${list.place.id} from looked ${i}
   where (select count(*) from page) < ${value('size')}::int order by ${list.order}
   offset ${sql.raw(`${MAX_LOOKED_AT - 1}`)})`
  }`,
  );
// The conditions on time are those of `invocations_app_time_idx` and `invocations_user_time_idx`.
const selectOfApp = select(sql`${i.createTime} > '-infinity'`);
const selectFailed = select(sql`${i.status} in ('failed', 'interrupted', 'cancelled')`);
const selectOfFailedCalls = select(sql`${i.failedCalls} > 0`);
const selectOfUser = select(sql`${isOfUser} and ${i.createTime} < 'infinity'`);
const isInSession = sql`${isOfUser} and ${i.sessionId} = ${value('sessionId')}::text`;
const selectOfSession = select(isInSession, true);
// The condition of `invocations_stranded_idx`.
const isPaused = sql`${i.status} = 'paused' and ${i.waitsForTasks}`;
const ofUserTasks = getResuming({ appName: KEY.appName, userId: KEY.userId, sessionId: i.sessionId }, i.id);
const STRANDED = {
  ofApp: select(isPaused, false, getResuming(i, i.id)),
  ofUser: select(sql`${isOfUser} and ${isPaused}`, false, ofUserTasks),
  ofSession: select(sql`${isInSession} and ${isPaused}`, true, ofUserTasks),
};
