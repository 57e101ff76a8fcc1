import { and, eq, not, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { callsTool, hasErrorEvent } from './event-store.ts';
import { toLabelChoice } from './label.ts';
import { s } from './session-text.ts';

/** A choice of sessions of an application, by all members that are given; it never has those of evaluation runs. */
export interface SessionChoice {
  appName: string;
  /** Only those of these users. */
  userIds?: string[] | undefined;
  /** Only these. */
  keys?: { userId: string; sessionId: string }[] | null | undefined;
  /** Unix seconds of the last update: at or after the first, before the second. */
  updatedFrom?: number | null | undefined;
  updatedBefore?: number | null | undefined;
  /** Only those in which an agent called this tool. */
  tool?: string | null | undefined;
  /** Only those with an event of an error, or without any. */
  hasError?: boolean | null | undefined;
  /** Only those with all of these labels, as requests name them. */
  labels?: string[] | null | undefined;
  /** Conditions of other features on the row `s`. */
  also?: (SQL | undefined)[];
  limit: number;
}

/** A session and how far it goes. */
export interface ChosenSession {
  userId: string;
  sessionId: string;
  lastSequence: number;
}

/** The sessions of a choice that have events, last updated first. One statement. */
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

function hasLabels(wanted: string[]): SQL {
  const { values, names } = toLabelChoice(wanted);
  return sql`(${s.labels} @> all(${sql.param(values.map(escapeJson))}::jsonb[])
    and ${s.labels} ?& ${sql.param(names)}::text[])`;
}
