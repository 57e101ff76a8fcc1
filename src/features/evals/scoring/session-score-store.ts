import { type SQL, and, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { evalSessionScores } from '../../../platform/db/schema/schema.ts';
import { getKey, insertSelect, newestFirst, names } from '../../../platform/db/sql.ts';
import type { Listed, ListPlace } from '../../../platform/http/operation/cursor.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { ChosenSession } from '../../../conversation/sessions/session-list.ts';
import { sessionLock } from '../../../conversation/sessions/session-row.ts';
import { s } from '../../../conversation/sessions/session-text.ts';
import { MAX_SCORES, withShortTexts } from '../sets/bounds.ts';
import type { ScoredCase } from './score.ts';

const e = evalSessionScores;
const ofSession = sql`${e.appName} = ${s.appName} and ${e.userId} = ${s.userId} and ${e.sessionId} = ${s.id}`;

/** SQL condition: the session has no score by these metrics, or has continued after its last score. */
export const isUnscored = (metricsHash: string): SQL => sql`not exists (
  select from ${e} where ${ofSession} and ${e.lastSequence} = ${s.lastSequence} and ${e.metricsHash} = ${metricsHash})`;

/** SQL condition: the session's newest score in a metric is at least `atLeast` and at most `atMost`. */
export const hasScore = (metricName: string, atLeast: number, atMost: number): SQL =>
  sql`exists (
    select from (
      select (m ->> 'score')::float8 as score
      from ${e} cross join lateral jsonb_array_elements(${e.result} -> 'overall') m
      where ${ofSession} and m ->> 'metricName' = ${metricName}
      order by ${e.lastSequence} desc, ${e.createTime} desc limit 1) newest
    where newest.score between ${atLeast}::float8 and ${atMost}::float8)`;

/** Scores of a session up to one of its events. */
export interface SessionScore extends ChosenSession {
  scored: ScoredCase;
  /** What the models cost at present prices; null if that is not known. */
  cost: number | null;
  /** Id of the score rule that requested the score, and id of the invocation whose turn was scored. */
  ruleId?: string | null;
  invocationId?: string | null;
}

const cost = sql<number | null>`uses_cost(${e.result} -> 'uses')`;

/** Saves the scores of a session at an event. @returns `undefined` if the session was deleted */
export async function saveSessionScore(
  db: Database,
  key: SessionKey,
  { lastSequence, scored, ruleId = null, invocationId = null }: Omit<SessionScore, 'userId' | 'sessionId' | 'cost'>,
  metricsHash: string,
): Promise<Pick<SessionScore, 'cost'> | undefined> {
  const { appName, userId, sessionId } = key;
  const insert = insertSelect(e, {
    appName,
    userId,
    sessionId,
    lastSequence: sql`${lastSequence}::int`,
    metricsHash,
    ruleId,
    invocationId,
    result: withShortTexts(scored, MAX_SCORES),
  });
  const { rows } = await db.execute<{ cost: number | null }>(sql`
    ${insert} from (${sessionLock(key)}) held
    on conflict (${names(...getKey(e))})
    do update set result = excluded.result, create_time = excluded.create_time
    returning ${cost} as cost`);
  return rows[0];
}

export interface ScoreFilter {
  /** Only scores of these users' sessions; default: all. */
  userIds?: string[] | undefined;
  sessionId?: string | undefined;
  ruleId?: string | undefined;
  limit: number;
  after?: ListPlace | undefined;
}

/** Lists scores of whole sessions after a cursor position, newest first. Scores of single turns are omitted. */
export async function listSessionScores(
  db: Database,
  appName: string,
  { userIds, sessionId, ruleId, limit, after }: ScoreFilter,
): Promise<Listed<SessionScore>[]> {
  const id = sql`md5(concat_ws(chr(1), ${e.userId}, ${e.sessionId}, ${e.lastSequence}, ${e.metricsHash}))`;
  const { place, order, isAfter } = newestFirst(e.createTime, id);
  return db
    .select({
      userId: e.userId,
      sessionId: e.sessionId,
      lastSequence: e.lastSequence,
      ruleId: e.ruleId,
      invocationId: e.invocationId,
      scored: sql<ScoredCase>`${e.result} - 'turns'`,
      cost,
      place,
    })
    .from(e)
    .where(
      and(
        eq(e.appName, appName),
        userIds && inArray(e.userId, userIds),
        sessionId === undefined ? undefined : eq(e.sessionId, sessionId),
        ruleId === undefined ? undefined : eq(e.ruleId, ruleId),
        isAfter(after),
      ),
    )
    .orderBy(order)
    .limit(limit);
}
