import { and, eq, inArray, sql } from 'drizzle-orm';
import { isSession, sessionLock } from '../../../conversation/sessions/session-row.ts';
import { ConflictError } from '../../../core/errors.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import { sessionVerdicts } from '../../../platform/db/schema/schema.ts';
import { getKey, insertSelect, newestFirst, names } from '../../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../../platform/http/operation/cursor.ts';

const v = sessionVerdicts;
/** Maximum verdicts per session, because they do not count for the user's storage quota. */
export const MAX_VERDICTS = 500;

export interface SessionVerdict {
  eventId: string | null;
  author: string;
  passed: boolean | null;
  label: string | null;
  comment: string | null;
}

/**
 * A new verdict replaces the same author's earlier one; an empty verdict deletes it.
 * @returns false if the session does not exist
 * @throws {ConflictError} if the session has the maximum number of verdicts
 */
export async function saveSessionVerdict(db: Database, key: SessionKey, verdict: SessionVerdict): Promise<boolean> {
  const { eventId, author, passed, label, comment } = verdict;
  const event = eventId ?? '';
  const isThis = sql`${isSession(key, v)} and ${v.eventId} = ${event} and ${v.author} = ${author}`;
  const removes = passed === null && label === null && comment === null;
  const { appName, userId, sessionId } = key;
  const insert = insertSelect(v, {
    appName,
    userId,
    sessionId,
    eventId: event,
    author,
    passed: sql`${passed}::boolean`,
    label: sql`${label}::text`,
    comment,
  });
  const change = removes
    ? sql`delete from ${v} where ${isThis} returning 1`
    : sql`${insert} from locked_session where locked_session.others < ${MAX_VERDICTS}
          on conflict (${names(...getKey(v))}) do update set
            passed = excluded.passed, label = excluded.label, comment = excluded.comment,
            create_time = excluded.create_time
          returning 1`;
  const { rows } = await db.execute<{ changed: number }>(sql`
    with locked_session as materialized (
      select (select count(*) from ${v} where ${isSession(key, v)} and not (${isThis})) as others
      from (${sessionLock(key)}) session),
    changed as (${change})
    select (select count(*)::int from changed) as changed from locked_session`);
  if (rows[0]?.changed === 0 && !removes)
    throw new ConflictError(`Session ${sessionId} has ${MAX_VERDICTS} verdicts, as many as it may.`);
  return rows.length > 0;
}

export interface VerdictFilter {
  /** Only verdicts on sessions of these users; default: all. */
  userIds?: string[] | undefined;
  sessionId?: string | undefined;
  label?: string | undefined;
  passed?: boolean | undefined;
  limit: number;
  after?: ListPlace | undefined;
}

/** Lists verdicts on sessions after a cursor position, newest first. */
export async function listSessionVerdicts(
  db: Database,
  appName: string,
  { userIds, sessionId, label, passed, limit, after }: VerdictFilter,
): Promise<Listed<SessionVerdict & { userId: string; sessionId: string; createTime: number }>[]> {
  const id = sql`md5(concat_ws(chr(1), ${v.userId}, ${v.sessionId}, ${v.eventId}, ${v.author}))`;
  const { place, order, isAfter } = newestFirst(v.createTime, id);
  return db
    .select({
      userId: v.userId,
      sessionId: v.sessionId,
      eventId: sql<string | null>`nullif(${v.eventId}, '')`,
      author: v.author,
      passed: v.passed,
      label: v.label,
      comment: v.comment,
      createTime: v.createTime,
      place,
    })
    .from(v)
    .where(
      and(
        eq(v.appName, appName),
        userIds && inArray(v.userId, userIds),
        sessionId === undefined ? undefined : eq(v.sessionId, sessionId),
        label === undefined ? undefined : eq(v.label, label),
        passed === undefined ? undefined : eq(v.passed, passed),
        isAfter(after),
      ),
    )
    .orderBy(order)
    .limit(limit);
}
