import { type SQL, and, eq, gt, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../../../platform/json-escape.ts';
import { evalCases, evalCaseVersions, evalSets } from '../../../platform/db/schema/schema.ts';
import { insertSelect, jsonTextOf } from '../../../platform/db/sql.ts';
import { estimatedBytes } from '../../../conversation/sessions/session-text.ts';
import { ConflictError, TooLargeError } from '../../../core/errors.ts';
import { checkCase, inParts, MAX_CASES } from './bounds.ts';
import type { EvalSetDocument } from './eval-set.ts';
import { toStoredCase } from './intermediate-data.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

export interface EvalSetKey {
  appName: string;
  evalSetId: string;
  /** Sets of other owners are not found. `undefined`: all sets are found, and a new set has no owner. */
  ownerId?: string | undefined;
}

/**
 * The next version of a case. Versions of a deleted case with the same id stay while runs reference them. A database
 * function counts them, because they may be another user's, whose rows the caller's statement does not see.
 */
export const nextVersion = ({ appName, evalSetId }: EvalSetKey, evalId: SQL): SQL =>
  sql`next_eval_case_version(${appName}, ${evalSetId}, ${evalId})`;

/** SQL `returning` clause of a statement that creates or changes a case, for {@link insertVersion}. */
export const returnCase = sql`
  returning ${evalCases.id} as id, ${evalCases.version} as version, ${evalCases.ownerId} as owner_id`;

/** Inserts a version of the case `created(id, version, owner_id)`; the caller appends the `from` clause. */
export const insertVersion = ({ appName, evalSetId }: EvalSetKey, payload: SQL): SQL =>
  insertSelect(evalCaseVersions, {
    appName,
    evalSetId,
    evalId: sql`created.id`,
    version: sql`created.version`,
    hash: sql`encode(sha256(convert_to(((${payload}) - 'creationTimestamp')::text, 'UTF8')), 'hex')`,
    payload,
    ownerId: sql`created.owner_id`,
  });

export const isOfSet = sql`${evalCases.appName} = ${evalSets.appName} and ${evalCases.evalSetId} = ${evalSets.id}`;
export const isNewest = sql`${evalCaseVersions.appName} = ${evalCases.appName}
  and ${evalCaseVersions.evalSetId} = ${evalCases.evalSetId} and ${evalCaseVersions.evalId} = ${evalCases.id}
  and ${evalCaseVersions.version} = ${evalCases.version}`;
export const isSet = ({ appName, evalSetId, ownerId }: EvalSetKey) =>
  and(eq(evalSets.appName, appName), eq(evalSets.id, evalSetId), isOwnedBy(ownerId));
/** SQL condition that selects the sets of an owner; no condition if `ownerId` is undefined. */
const isOwnedBy = (ownerId: string | undefined) => (ownerId === undefined ? undefined : eq(evalSets.ownerId, ownerId));

export const evalSetExists = async (db: Database, key: EvalSetKey): Promise<boolean> =>
  (await db.$count(evalSets, isSet(key))) > 0;

export const evalSetNotFound = ({ evalSetId }: EvalSetKey) => `Eval set \`${evalSetId}\` not found.`;

/** Execution modes of a set's runs; null if the set does not specify one. */
export type SetModes = Pick<typeof evalSets.$inferSelect, 'modelExecutionMode' | 'toolExecutionMode'>;

type NewEvalSet = Pick<EvalSetDocument, 'eval_cases'> &
  Partial<Pick<EvalSetDocument, 'name' | 'description' | 'model_execution_mode' | 'tool_execution_mode'>>;

/**
 * Inserts a set with its cases in one statement. A set without a name gets its id as the name, as in ADK.
 * @throws {ConflictError} if the application already has a set with this id, or if two cases have the same id.
 * @throws {TooLargeError} if there are too many cases, or if a case is too large.
 */
export async function insertEvalSet(
  db: Database,
  { appName, evalSetId, ownerId }: EvalSetKey,
  set: NewEvalSet,
): Promise<void> {
  const { name, description, eval_cases: cases } = set;
  if (cases.length > MAX_CASES) throw new TooLargeError(`An eval set has at most ${MAX_CASES} cases.`);
  cases.forEach(checkCase);
  if (new Set(cases.map(({ evalId }) => evalId)).size < cases.length) {
    throw new ConflictError('Two of the eval cases have one id.');
  }
  const insertSet = insertSelect(evalSets, {
    appName,
    id: evalSetId,
    ownerId: ownerId ?? null,
    name: name ?? evalSetId,
    description: description ?? null,
    modelExecutionMode: set.model_execution_mode ?? null,
    toolExecutionMode: set.tool_execution_mode ?? null,
  });
  const key = { appName, evalSetId };
  const evalId = sql`payload ->> 'evalId'`;
  const time = sql`jsonb_build_object('creationTimestamp', extract(epoch from set_created.create_time))`;
  const elements = sql`set_created, jsonb_array_elements(${escapeJson(cases.map(toStoredCase))}::jsonb) as payload`;
  const insertCases = insertSelect(evalCases, {
    ...key,
    id: evalId,
    version: nextVersion(key, evalId),
    ownerId: ownerId ?? null,
  });
  const { rows } = await db.execute(sql`
    with set_created as (
      ${insertSet} on conflict do nothing returning ${evalSets.id} as id, ${evalSets.createTime} as create_time),
    created as (${insertCases} from ${elements} ${returnCase}),
    new_versions as (${insertVersion(key, sql`${time} || payload`)} from created, ${elements} where ${evalId} = created.id)
    select from set_created`);
  if (rows.length === 0) throw new ConflictError(`EvalSet ${evalSetId} already exists for app ${appName}.`);
}

/** An application's set ids after the id `after`, sorted by code point; if `ownerId` is given, only this owner's. */
export async function listEvalSetIds(
  db: Database,
  appName: string,
  { ownerId, after = '', limit }: { ownerId: string | undefined; after?: string | undefined; limit: number },
): Promise<string[]> {
  const { rows } = await db.execute<{ ids: string[] }>(sql`
    select coalesce(json_agg(page.id order by page.id), '[]') as ids from (
      select ${evalSets.id} as id from ${evalSets}
      where ${and(eq(evalSets.appName, appName), isOwnedBy(ownerId), gt(evalSets.id, after))}
      order by ${evalSets.id} limit ${limit}) page`);
  return rows[0]?.ids ?? [];
}

/** Finds a set, with its cases as JSON in batches, oldest first; `undefined` if the set does not exist. */
export async function findEvalSet(
  db: Database,
  key: EvalSetKey,
): Promise<{ set: Omit<EvalSetDocument, 'eval_cases'>; cases: AsyncGenerator<string[]> } | undefined> {
  const bytes = sql`json_build_object('id', ${evalCases.id}, 'bytes', ${estimatedBytes(evalCaseVersions.payload)})`;
  const { rows } = await db.execute<{ text: string | null; cases: { id: string; bytes: number }[] }>(sql`
    select (json_object_agg(key, value) filter (where value is not null))::text as text,
      (select coalesce(json_agg(${bytes} order by ${evalCases.createTime}, ${evalCases.id}), '[]')
       from ${evalCases} join ${evalCaseVersions} on ${isNewest}
       where ${evalCases.appName} = ${key.appName} and ${evalCases.evalSetId} = ${key.evalSetId}) as cases
    from ${evalSets} cross join lateral (values
      ('eval_set_id', to_json(${evalSets.id})), ('name', to_json(${evalSets.name})),
      ('description', to_json(${evalSets.description})),
      ('creation_timestamp', to_json(extract(epoch from ${evalSets.createTime}))),
      ('model_execution_mode', to_json(${evalSets.modelExecutionMode})),
      ('tool_execution_mode', to_json(${evalSets.toolExecutionMode}))) as member(key, value)
    where ${isSet(key)}`);
  const [row] = rows;
  if (row?.text == null) return undefined;
  const set = parseExactJson(unescapeJson(row.text)) as Omit<EvalSetDocument, 'eval_cases'>;
  return { set, cases: readCases(db, key, inParts(row.cases)) };
}

async function* readCases(db: Database, key: EvalSetKey, parts: { id: string }[][]): AsyncGenerator<string[]> {
  for (const part of parts) {
    const ids = part.map(({ id }) => id);
    const rows = await db
      .select({ text: jsonTextOf(evalCaseVersions.payload) })
      .from(evalCases)
      .innerJoin(evalCaseVersions, isNewest)
      .where(
        and(eq(evalCases.appName, key.appName), eq(evalCases.evalSetId, key.evalSetId), inArray(evalCases.id, ids)),
      )
      .orderBy(evalCases.createTime, evalCases.id);
    yield rows.map(({ text }) => text);
  }
}

/** @returns false if the set does not exist */
export async function deleteEvalSet(db: Database, key: EvalSetKey): Promise<boolean> {
  const rows = await db.delete(evalSets).where(isSet(key)).returning({ id: evalSets.id });
  return rows.length > 0;
}
