import { and, eq, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { evalCases, evalCaseVersions } from '../../platform/db/schema/schema.ts';
import { type EvalSetKey, isNewest } from './eval-store.ts';

/** A case as a run finds it. */
export interface RunnableCase {
  evalId: string;
  version: number;
  /** The application and the user that the case names; null where it names none. */
  appName: string | null;
  userId: string | null;
  /** True where its session begins with a change of the state that all users share. */
  writesSharedState: boolean;
}

/** The cases of a set with what a run has to know of them, in the order of the set. */
export async function listRunnableCases(db: Database, { appName, evalSetId }: EvalSetKey): Promise<RunnableCase[]> {
  const input = (name: 'appName' | 'userId') =>
    sql<string | null>`${evalCaseVersions.payload} #>> ${`{sessionInput,${name}}`}`;
  return db
    .select({
      evalId: evalCases.id,
      version: evalCases.version,
      appName: input('appName'),
      userId: input('userId'),
      writesSharedState: sql<boolean>`coalesce(jsonb_path_exists(${evalCaseVersions.payload},
        'lax $.sessionInput.state.keyvalue().key ? (@ starts with "app:")', '{}', true), false)`,
    })
    .from(evalCases)
    .innerJoin(evalCaseVersions, isNewest)
    .where(and(eq(evalCases.appName, appName), eq(evalCases.evalSetId, evalSetId)))
    .orderBy(evalCases.createTime, evalCases.id);
}
