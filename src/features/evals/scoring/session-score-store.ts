import { type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../../../platform/db/json-escape.ts';
import { evalSessionScores } from '../../../platform/db/schema/schema.ts';
import { insertSelect, getKey, names } from '../../../platform/db/sql.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { ChosenSession } from '../../../conversation/sessions/choose-sessions.ts';
import { heldSession } from '../../../conversation/sessions/session-lease.ts';
import { s } from '../../../conversation/sessions/session-text.ts';
import type { ScoredCase } from './score.ts';

const e = evalSessionScores;
const ofSession = sql`${e.appName} = ${s.appName} and ${e.userId} = ${s.userId} and ${e.sessionId} = ${s.id}`;

/** The condition that a session has no score by these metrics as it is now: it is new, or went on. */
export const isUnscored = (metricsHash: string): SQL => sql`not exists (
  select from ${e} where ${ofSession} and ${e.lastSequence} = ${s.lastSequence} and ${e.metricsHash} = ${metricsHash})`;

/** The condition that the newest score of a session in a metric lies in a range, both ends included. */
export const hasScore = (metricName: string, atLeast: number, atMost: number): SQL =>
  sql`exists (
    select from (
      select (m ->> 'score')::float8 as score
      from ${e} cross join lateral jsonb_array_elements(${e.result} -> 'overall') m
      where ${ofSession} and m ->> 'metricName' = ${metricName}
      order by ${e.lastSequence} desc, ${e.createTime} desc limit 1) newest
    where newest.score between ${atLeast}::float8 and ${atMost}::float8)`;

/** A session as it was at one of its events, with its scores. */
export interface SessionScore extends ChosenSession {
  scored: ScoredCase;
}

/** Saves the scores of a session at an event by some metrics. @returns false where the session was deleted. */
export async function saveSessionScore(
  db: Database,
  key: SessionKey,
  { lastSequence, scored }: Pick<SessionScore, 'lastSequence' | 'scored'>,
  metricsHash: string,
): Promise<boolean> {
  const { appName, userId, sessionId } = key;
  const insert = insertSelect(e, {
    appName,
    userId,
    sessionId,
    lastSequence: sql`${lastSequence}::int`,
    metricsHash,
    result: sql`${escapeJson(scored)}::jsonb`,
  });
  const { rows } = await db.execute(sql`
    ${insert} from (${heldSession(key)}) held
    on conflict (${names(...getKey(e))})
    do update set result = excluded.result, create_time = excluded.create_time
    returning 1`);
  return rows.length > 0;
}

/** Scores of the sessions of some users, or of all, newest first. */
export async function listSessionScores(
  db: Database,
  appName: string,
  { userIds, sessionId, limit }: { userIds?: string[] | undefined; sessionId?: string | undefined; limit: number },
): Promise<SessionScore[]> {
  const { rows } = await db.execute<{ userId: string; sessionId: string; lastSequence: number; text: string }>(sql`
    select ${e.userId} as "userId", ${e.sessionId} as "sessionId", ${e.lastSequence} as "lastSequence",
           ${e.result}::text as text
    from ${e} where ${e.appName} = ${appName}
      and ${userIds ? sql`${e.userId} = any(${sql.param(userIds)}::text[])` : sql`true`}
      and ${sessionId === undefined ? sql`true` : sql`${e.sessionId} = ${sessionId}`}
    order by ${e.createTime} desc limit ${limit}`);
  return rows.map(({ text, ...key }) => ({ ...key, scored: JSON.parse(unescapeJson(text)) as ScoredCase }));
}
