import { and, eq, not, type SQL, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { escapeJson } from '../../platform/db/json-escape.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { callsTool, hasErrorEvent } from './event-store.ts';
import type { LabelChoice } from './label.ts';
import { s } from './session-text.ts';

/** Which sessions of an application are wanted; those of evaluation runs never are. */
export interface SessionChoice {
  appName: string;
  /** Only those of these users; `undefined`: of all. */
  userIds?: string[] | undefined;
  /** Only these. */
  keys?: { userId: string; sessionId: string }[] | undefined;
  /** Unix seconds of the last update: at or after the first, before the second. */
  updatedFrom?: number | undefined;
  updatedBefore?: number | undefined;
  /** Only those in which an agent called this tool. */
  tool?: string | undefined;
  /** Only those with an event of an error, or without any. */
  hasError?: boolean | undefined;
  /** Only those with all of these labels. */
  labels?: LabelChoice | undefined;
  /** Conditions of other features on the row `s`. */
  also?: SQL[] | undefined;
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
  const { userIds, keys, tool, hasError } = choice;
  const column = (name: 'userId' | 'sessionId') => sql`${sql.param((keys ?? []).map((key) => key[name]))}::text[]`;
  const conditions = [
    eq(s.appName, choice.appName),
    not(s.isEval),
    sql`${s.lastSequence} > 0`,
    userIds && sql`${s.userId} = any(${sql.param(userIds)}::text[])`,
    keys && sql`(${s.userId}, ${s.id}) in (select * from unnest(${column('userId')}, ${column('sessionId')}))`,
    choice.updatedFrom === undefined ? undefined : sql`${s.updateTime} >= to_timestamp(${choice.updatedFrom}::float8)`,
    choice.updatedBefore === undefined
      ? undefined
      : sql`${s.updateTime} < to_timestamp(${choice.updatedBefore}::float8)`,
    tool === undefined ? undefined : callsTool(tool),
    hasError === undefined ? undefined : hasError ? hasErrorEvent : not(hasErrorEvent),
    choice.labels && hasLabels(choice.labels),
    ...(choice.also ?? []),
  ];
  const { rows } = await db.execute<{ userId: string; sessionId: string; lastSequence: number }>(sql`
    select ${s.userId} as "userId", ${s.id} as "sessionId", ${s.lastSequence} as "lastSequence"
    from ${sessions} ${s} where ${and(...conditions)}
    order by ${s.updateTime} desc, ${s.userId}, ${s.id} limit ${choice.limit}`);
  return rows;
}

const hasLabels = ({ values, names }: LabelChoice): SQL =>
  sql`(${s.labels} @> all(${sql.param(values.map(escapeJson))}::jsonb[])
    and ${s.labels} ?& ${sql.param(names)}::text[])`;
