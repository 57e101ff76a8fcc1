import { sql } from 'drizzle-orm';
import type { Database } from '../db/database.ts';
import { toJsonb } from '../db/json-text.ts';
import { ConflictError } from '../errors.ts';
import type { EvalCase } from './eval-case.ts';

/** What names one evaluation set. */
export interface EvalSetKey {
  appName: string;
  evalSetId: string;
}

/**
 * Inserts a case, and its set where that is absent, in one statement: a refused case leaves no empty set behind.
 * @throws {ConflictError} when the set has a case of this id.
 */
export async function insertEvalCase(
  db: Database,
  { appName, evalSetId }: EvalSetKey,
  evalCase: EvalCase,
  source: { userId: string; sessionId: string },
): Promise<void> {
  const { rows } = await db.execute(sql`
    with set_created as (
      insert into eval_sets (app_name, id, name) values (${appName}, ${evalSetId}, ${evalSetId}) on conflict do nothing)
    insert into eval_cases (app_name, eval_set_id, id, source_user_id, source_session_id, payload)
    values (${appName}, ${evalSetId}, ${evalCase.evalId}, ${source.userId}, ${source.sessionId},
            ${toJsonb(evalCase)}::jsonb || jsonb_build_object('creationTimestamp', extract(epoch from clock_timestamp())))
    on conflict do nothing
    returning id`);
  if (rows.length === 0) {
    throw new ConflictError(`Eval id \`${evalCase.evalId}\` already exists in \`${evalSetId}\` eval set.`);
  }
}

/** The ids of a set's cases, sorted by code point (the column's collation is "C"); `undefined` where there is no such set. */
export async function listEvalCaseIds(db: Database, { appName, evalSetId }: EvalSetKey): Promise<string[] | undefined> {
  const { rows } = await db.execute<{ ids: string[] }>(sql`
    select array(select c.id from eval_cases c
                 where c.app_name = s.app_name and c.eval_set_id = s.id order by c.id)::text[] as ids
    from eval_sets s where s.app_name = ${appName} and s.id = ${evalSetId}`);
  return rows[0]?.ids;
}
