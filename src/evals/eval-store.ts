import { type SQL, sql } from 'drizzle-orm';
import { type Database, onConflict } from '../db/database.ts';
import { fromJsonb, toJsonb, toText } from '../db/json-escape.ts';
import { ConflictError, NotFoundError } from '../core/errors.ts';
import type { EvalCase } from './eval-case.ts';
import type { EvalCaseBody } from './eval-set.ts';
import { toStoredCase, withToolUses } from './intermediate-data.ts';

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

/** The text of the 404 of an evaluation set. */
export const evalSetNotFound = ({ evalSetId }: EvalSetKey) => `Eval set \`${evalSetId}\` not found.`;

/** A set as it is created; without a name its id is its name, as in ADK. */
export interface NewEvalSet {
  name?: string | null | undefined;
  description?: string | null | undefined;
  cases: EvalCaseBody[];
}

/**
 * Inserts a set with its cases, in one statement.
 * @throws {ConflictError} when the application has a set of this id, or two of the cases have one id.
 */
export async function insertEvalSet(
  db: Database,
  { appName, evalSetId }: EvalSetKey,
  { name, description, cases }: NewEvalSet,
): Promise<void> {
  const inserted = db.execute(sql`
    with created as (
      insert into eval_sets (app_name, id, name, description)
      values (${appName}, ${evalSetId}, ${toText(name ?? evalSetId)}, ${description == null ? null : toText(description)})
      on conflict do nothing
      returning id, create_time),
    filled as (
      insert into eval_cases (app_name, eval_set_id, id, payload)
      select ${appName}, created.id, payload ->> 'evalId',
             jsonb_build_object('creationTimestamp', extract(epoch from created.create_time)) || payload
      from created, jsonb_array_elements(${toJsonb(cases.map(toStoredCase))}::jsonb) as payload)
    select from created`);
  const { rows } = await onConflict(
    inserted,
    'eval_cases_pkey',
    () => new ConflictError('Two of the eval cases have one id.'),
  );
  if (rows.length === 0) throw new ConflictError(`EvalSet ${evalSetId} already exists for app ${appName}.`);
}

/** The ids of an application's sets, sorted by code point. */
export async function listEvalSetIds(db: Database, appName: string): Promise<string[]> {
  const { rows } = await db.execute<{ id: string }>(
    sql`select id from eval_sets where app_name = ${appName} order by id`,
  );
  return rows.map(({ id }) => id);
}

/** A set with its cases, oldest first, as JSON text; nulls stay, as ADK writes sets. `undefined` where there is none. */
export async function findEvalSetText(db: Database, { appName, evalSetId }: EvalSetKey): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select json_build_object(
             'eval_set_id', s.id, 'name', s.name, 'description', s.description,
             'eval_cases', (select coalesce(json_agg(c.payload order by c.create_time, c.id), '[]') from eval_cases c
                            where c.app_name = s.app_name and c.eval_set_id = s.id),
             'creation_timestamp', extract(epoch from s.create_time))::text as text
    from eval_sets s where s.app_name = ${appName} and s.id = ${evalSetId}`);
  return rows[0] && fromJsonb(rows[0].text);
}

/** Deletes a set with its cases. @throws {NotFoundError} when there is none. */
export async function deleteEvalSet(db: Database, key: EvalSetKey): Promise<void> {
  const { rows } = await db.execute(
    sql`delete from eval_sets where app_name = ${key.appName} and id = ${key.evalSetId} returning id`,
  );
  if (rows.length === 0) throw new NotFoundError(evalSetNotFound(key));
}

/** A case as JSON text, with the members that the UI reads; `undefined` where there is none. */
export async function findEvalCaseText(db: Database, key: EvalSetKey, evalId: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(
    sql`select c.payload::text as text from eval_cases c where ${isCase(key, evalId)}`,
  );
  return rows[0] && JSON.stringify(withToolUses(JSON.parse(fromJsonb(rows[0].text)) as EvalCaseBody));
}

/** Replaces a case; one without a creation time keeps that of before. @throws {NotFoundError} for an absent set or case. */
export async function replaceEvalCase(db: Database, key: EvalSetKey, evalCase: EvalCaseBody): Promise<void> {
  await changeEvalCase(
    db,
    key,
    evalCase.evalId,
    sql`update eval_cases c
        set payload = jsonb_build_object('creationTimestamp', c.payload -> 'creationTimestamp')
                      || ${toJsonb(toStoredCase(evalCase))}::jsonb`,
  );
}

/** Deletes a case. @throws {NotFoundError} for an absent set or case. */
export const deleteEvalCase = (db: Database, key: EvalSetKey, evalId: string): Promise<void> =>
  changeEvalCase(db, key, evalId, sql`delete from eval_cases c`);

const isCase = ({ appName, evalSetId }: EvalSetKey, evalId: string) =>
  sql`c.app_name = ${appName} and c.eval_set_id = ${evalSetId} and c.id = ${evalId}`;

async function changeEvalCase(db: Database, key: EvalSetKey, evalId: string, change: SQL): Promise<void> {
  const { rows } = await db.execute<{ changed: number }>(sql`
    with changed as (${change} where ${isCase(key, evalId)} returning id)
    select (select count(*)::int from changed) as changed
    from eval_sets where app_name = ${key.appName} and id = ${key.evalSetId}`);
  const set = rows[0];
  if (!set) throw new NotFoundError(evalSetNotFound(key));
  if (set.changed === 0) {
    throw new NotFoundError(`Eval case \`${evalId}\` not found in eval set \`${key.evalSetId}\`.`);
  }
}

/** The ids of an application's evaluation results, sorted by code point. */
export async function listEvalResultIds(db: Database, appName: string): Promise<string[]> {
  const { rows } = await db.execute<{ id: string }>(
    sql`select id from eval_results where app_name = ${appName} order by id`,
  );
  return rows.map(({ id }) => id);
}

/** An evaluation result as JSON text; `undefined` where there is none. */
export async function findEvalResultText(db: Database, appName: string, id: string): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(
    sql`select payload::text as text from eval_results where app_name = ${appName} and id = ${id}`,
  );
  return rows[0] && fromJsonb(rows[0].text);
}
