import { type SQLWrapper, and, eq, sql } from 'drizzle-orm';
import { type Database, onConflict } from '../db/database.ts';
import { escapeJson, escapeText, unescapeJson } from '../db/json-escape.ts';
import { evalCases, evalResults, evalSets } from '../db/schema.ts';
import { insertSelect } from '../db/sql.ts';
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
  const time = sql`jsonb_build_object('creationTimestamp', extract(epoch from clock_timestamp()))`;
  const insert = insertSelect(evalCases, {
    appName,
    evalSetId,
    id: evalCase.evalId,
    sourceUserId: source.userId,
    sourceSessionId: source.sessionId,
    payload: sql`${escapeJson(evalCase)}::jsonb || ${time}`,
  });
  const { rows } = await db.execute(sql`
    with set_created as (
      ${insertSelect(evalSets, { appName, id: evalSetId, name: evalSetId })} on conflict do nothing)
    ${insert} on conflict do nothing returning 1`);
  if (rows.length === 0) {
    throw new ConflictError(`Eval id \`${evalCase.evalId}\` already exists in \`${evalSetId}\` eval set.`);
  }
}

/** The ids of a set's cases, sorted by code point (the column's collation is "C"); `undefined` without such a set. */
export async function listEvalCaseIds(db: Database, { appName, evalSetId }: EvalSetKey): Promise<string[] | undefined> {
  const { rows } = await db.execute<{ ids: string[] }>(sql`
    select array(select ${evalCases.id} from ${evalCases} where ${isOfSet} order by ${evalCases.id})::text[] as ids
    from ${evalSets} where ${isSet({ appName, evalSetId })}`);
  return rows[0]?.ids;
}

const isOfSet = sql`${evalCases.appName} = ${evalSets.appName} and ${evalCases.evalSetId} = ${evalSets.id}`;
const isSet = ({ appName, evalSetId }: EvalSetKey) => and(eq(evalSets.appName, appName), eq(evalSets.id, evalSetId));

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
  const insertSet = insertSelect(evalSets, {
    appName,
    id: evalSetId,
    name: escapeText(name ?? evalSetId),
    description: description == null ? null : escapeText(description),
  });
  const insertCases = insertSelect(evalCases, {
    appName,
    evalSetId: sql`created.id`,
    id: sql`payload ->> 'evalId'`,
    payload: sql`jsonb_build_object('creationTimestamp', extract(epoch from created.create_time)) || payload`,
  });
  const inserted = db.execute(sql`
    with created as (
      ${insertSet} on conflict do nothing returning ${evalSets.id} as id, ${evalSets.createTime} as create_time),
    filled as (
      ${insertCases}
      from created, jsonb_array_elements(${escapeJson(cases.map(toStoredCase))}::jsonb) as payload)
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
  const rows = await db
    .select({ id: evalSets.id })
    .from(evalSets)
    .where(eq(evalSets.appName, appName))
    .orderBy(evalSets.id);
  return rows.map(({ id }) => id);
}

/** A set with its cases, oldest first, as JSON text; nulls stay, as ADK writes sets. `undefined` without such a set. */
export async function findEvalSetText(db: Database, key: EvalSetKey): Promise<string | undefined> {
  const { rows } = await db.execute<{ text: string }>(sql`
    select json_build_object(
             'eval_set_id', ${evalSets.id}, 'name', ${evalSets.name}, 'description', ${evalSets.description},
             'eval_cases', (select coalesce(json_agg(${evalCases.payload}
                                                     order by ${evalCases.createTime}, ${evalCases.id}), '[]')
                            from ${evalCases} where ${isOfSet}),
             'creation_timestamp', extract(epoch from ${evalSets.createTime}))::text as text
    from ${evalSets} where ${isSet(key)}`);
  return rows[0] && unescapeJson(rows[0].text);
}

/** Deletes a set with its cases. @throws {NotFoundError} when there is none. */
export async function deleteEvalSet(db: Database, key: EvalSetKey): Promise<void> {
  const deleted = await db.delete(evalSets).where(isSet(key)).returning({ id: evalSets.id });
  if (deleted.length === 0) throw new NotFoundError(evalSetNotFound(key));
}

/** A case as JSON text, with the members that the UI reads; `undefined` where there is none. */
export async function findEvalCaseText(db: Database, key: EvalSetKey, evalId: string): Promise<string | undefined> {
  const [row] = await db
    .select({ text: sql<string>`${evalCases.payload}::text` })
    .from(evalCases)
    .where(isCase(key, evalId));
  return row && JSON.stringify(withToolUses(JSON.parse(unescapeJson(row.text)) as EvalCaseBody));
}

/**
 * Replaces a case; one without a creation time keeps that of before.
 * @throws {NotFoundError} for an absent set or case.
 */
export async function replaceEvalCase(db: Database, key: EvalSetKey, evalCase: EvalCaseBody): Promise<void> {
  const time = sql`jsonb_build_object('creationTimestamp', ${evalCases.payload} -> 'creationTimestamp')`;
  const replaced = db
    .update(evalCases)
    .set({ payload: sql`${time} || ${escapeJson(toStoredCase(evalCase))}::jsonb` })
    .where(isCase(key, evalCase.evalId))
    .returning({ id: evalCases.id });
  await changeEvalCase(db, key, evalCase.evalId, replaced);
}

/** Deletes a case. @throws {NotFoundError} for an absent set or case. */
export async function deleteEvalCase(db: Database, key: EvalSetKey, evalId: string): Promise<void> {
  const deleted = db.delete(evalCases).where(isCase(key, evalId)).returning({ id: evalCases.id });
  await changeEvalCase(db, key, evalId, deleted);
}

const isCase = ({ appName, evalSetId }: EvalSetKey, evalId: string) =>
  and(eq(evalCases.appName, appName), eq(evalCases.evalSetId, evalSetId), eq(evalCases.id, evalId));

/** Makes a change that returns what it changed, in one statement with the look for the set. */
async function changeEvalCase(db: Database, key: EvalSetKey, evalId: string, change: SQLWrapper): Promise<void> {
  const { rows } = await db.execute<{ changed: number }>(sql`
    with changed as ${change}
    select (select count(*)::int from changed) as changed from ${evalSets} where ${isSet(key)}`);
  const set = rows[0];
  if (!set) throw new NotFoundError(evalSetNotFound(key));
  if (set.changed === 0) {
    throw new NotFoundError(`Eval case \`${evalId}\` not found in eval set \`${key.evalSetId}\`.`);
  }
}

/** The ids of an application's evaluation results, sorted by code point. */
export async function listEvalResultIds(db: Database, appName: string): Promise<string[]> {
  const rows = await db
    .select({ id: evalResults.id })
    .from(evalResults)
    .where(eq(evalResults.appName, appName))
    .orderBy(evalResults.id);
  return rows.map(({ id }) => id);
}

/** An evaluation result as JSON text; `undefined` where there is none. */
export async function findEvalResultText(db: Database, appName: string, id: string): Promise<string | undefined> {
  const [row] = await db
    .select({ text: sql<string>`${evalResults.payload}::text` })
    .from(evalResults)
    .where(and(eq(evalResults.appName, appName), eq(evalResults.id, id)));
  return row && unescapeJson(row.text);
}
