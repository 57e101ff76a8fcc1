import { and, eq, not, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/json-escape.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { callsTool, hasErrorEvent } from './event-store.ts';
import { toLabelChoice } from './label.ts';
import { s } from './session-text.ts';

/** Filters on sessions: a session must match all that are set. Sessions of evaluation runs never match. */
export interface SessionChoice {
  appName: string;
  userIds?: string[] | undefined;
  keys?: { userId: string; sessionId: string }[] | null | undefined;
  /** Time of the last update in Unix seconds: `updatedFrom` is inclusive, `updatedBefore` exclusive. */
  updatedFrom?: number | null | undefined;
  updatedBefore?: number | null | undefined;
  /** Name of a tool: only sessions in which an agent called it. */
  tool?: string | null | undefined;
  /** True: only sessions with an error event; false: only sessions without one. */
  hasError?: boolean | null | undefined;
  /** Label conditions as in requests (`name=value` or `name`); a session must match all. */
  labels?: string[] | null | undefined;
  /** Conditions of other features on a session, as SQL about the row `s`. */
  also?: (SQL | undefined)[];
  limit: number;
}

export interface ChosenSession {
  userId: string;
  sessionId: string;
  lastSequence: number;
}

/** Lists matching sessions that have events, last updated first, in a single statement. */
export async function listChosenSessions(db: Database, choice: SessionChoice): Promise<ChosenSession[]> {
  const { userIds, keys, updatedFrom, updatedBefore, tool, hasError, labels } = choice;
  const column = (name: 'userId' | 'sessionId') => sql`${sql.param((keys ?? []).map((key) => key[name]))}::text[]`;
  const conditions = [
    eq(s.appName, choice.appName),
    not(s.isEval),
    sql`${s.lastSequence} > 0`,
    userIds && sql`${s.userId} = any(${sql.param(userIds)}::text[])`,
    keys
      ? sql`(${s.userId}, ${s.id}) in (select * from unnest(${column('userId')}, ${column('sessionId')}))`
      : undefined,
    updatedFrom == null ? undefined : sql`${s.updateTime} >= to_timestamp(${updatedFrom}::float8)`,
    updatedBefore == null ? undefined : sql`${s.updateTime} < to_timestamp(${updatedBefore}::float8)`,
    tool == null ? undefined : callsTool(tool),
    hasError == null ? undefined : hasError ? hasErrorEvent : not(hasErrorEvent),
    labels ? hasLabels(labels) : undefined,
    ...(choice.also ?? []),
  ];
  const { rows } = await db.execute<{ userId: string; sessionId: string; lastSequence: number }>(sql`
    select ${s.userId} as "userId", ${s.id} as "sessionId", ${s.lastSequence} as "lastSequence"
    from ${sessions} ${s} where ${and(...conditions)}
    order by ${s.updateTime} desc, ${s.userId}, ${s.id} limit ${choice.limit}`);
  return rows;
}

function hasLabels(conditions: string[]): SQL {
  const { values, names } = toLabelChoice(conditions);
  return sql`(${s.labels} @> all(${sql.param(values.map(escapeJson))}::jsonb[])
    and ${s.labels} ?& ${sql.param(names)}::text[])`;
}
