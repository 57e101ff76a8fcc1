import { type SQL, and, eq, gt, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { escapeJson, escapeText, unescapeJson } from '../../../platform/db/json-escape.ts';
import { evalCases, evalCaseVersions, evalSets } from '../../../platform/db/schema/schema.ts';
import { insertSelect } from '../../../platform/db/sql.ts';
import { estimatedBytes } from '../../../conversation/sessions/session-text.ts';
import { ConflictError, NotFoundError, TooLargeError } from '../../../core/errors.ts';
import { checkCase, inParts, MAX_CASES } from './bounds.ts';
import type { EvalSetDocument } from './eval-set.ts';
import { toStoredCase } from './intermediate-data.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** The key of an evaluation set. */
export interface EvalSetKey {
  appName: string;
  evalSetId: string;
  /** The owner that is meant: another's set is as absent. `undefined`: any owner; a set made so has none. */
  ownerId?: string | undefined;
}

/**
 * The number of the next version of a case: those of a deleted case of this id stay where runs are about them. A
 * function of the database, which sees all rows: that case may have been another user's.
 */
export const nextVersion = ({ appName, evalSetId }: EvalSetKey, evalId: SQL): SQL =>
  sql`next_eval_case_version(${appName}, ${evalSetId}, ${evalId})`;

/** The columns of a case that was made or changed, for its version. */
export const madeCase = sql`
  returning ${evalCases.id} as id, ${evalCases.version} as version, ${evalCases.ownerId} as owner_id`;

/** Inserts a payload as the version of the case `created(id, version, owner_id)`; `from` follows. */
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

/** The condition that joins a case to its set. */
export const isOfSet = sql`${evalCases.appName} = ${evalSets.appName} and ${evalCases.evalSetId} = ${evalSets.id}`;
/** The condition that joins a case to its newest version. */
export const isNewest = sql`${evalCaseVersions.appName} = ${evalCases.appName}
  and ${evalCaseVersions.evalSetId} = ${evalCases.evalSetId} and ${evalCaseVersions.evalId} = ${evalCases.id}
  and ${evalCaseVersions.version} = ${evalCases.version}`;
export const isSet = ({ appName, evalSetId, ownerId }: EvalSetKey) =>
  and(eq(evalSets.appName, appName), eq(evalSets.id, evalSetId), isOwnedBy(ownerId));
/** The condition that a set belongs to a user; none where `ownerId` is undefined. */
const isOwnedBy = (ownerId: string | undefined) => (ownerId === undefined ? undefined : eq(evalSets.ownerId, ownerId));

/** The modes that a set gives its runs; `undefined` without such a set. */
export async function findSetModes(db: Database, key: EvalSetKey): Promise<SetModes | undefined> {
  const { modelExecutionMode, toolExecutionMode } = evalSets;
  const [row] = await db.select({ modelExecutionMode, toolExecutionMode }).from(evalSets).where(isSet(key));
  return row;
}

/** True where there is such a set. */
export const evalSetExists = async (db: Database, key: EvalSetKey): Promise<boolean> =>
  (await findSetModes(db, key)) !== undefined;

/** The text of the 404 of an evaluation set. */
export const evalSetNotFound = ({ evalSetId }: EvalSetKey) => `Eval set \`${evalSetId}\` not found.`;

/** Where the runs of a set take their answers from; null where the set does not say. */
export type SetModes = Pick<typeof evalSets.$inferSelect, 'modelExecutionMode' | 'toolExecutionMode'>;

type NewEvalSet = Pick<EvalSetDocument, 'eval_cases'> &
  Partial<Pick<EvalSetDocument, 'name' | 'description' | 'model_execution_mode' | 'tool_execution_mode'>>;

/**
 * Inserts a set with its cases in one statement; without a name its id is its name, as in ADK.
 * @throws {ConflictError} when the application has a set of this id, or two of the cases have one id.
 * @throws {TooLargeError} for too many cases, or too large ones.
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
    name: escapeText(name ?? evalSetId),
    description: description == null ? null : escapeText(description),
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
    created as (${insertCases} from ${elements} ${madeCase}),
    said as (${insertVersion(key, sql`${time} || payload`)} from created, ${elements} where ${evalId} = created.id)
    select from set_created`);
  if (rows.length === 0) throw new ConflictError(`EvalSet ${evalSetId} already exists for app ${appName}.`);
}

/** Lists the ids of an application's sets, of one owner where it is given, sorted by code point, after one of them. */
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

/** A set without its cases, and these as JSON, oldest first, some at a time; `undefined` without such a set. */
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
      .select({ text: sql<string>`${evalCaseVersions.payload}::text` })
      .from(evalCases)
      .innerJoin(evalCaseVersions, isNewest)
      .where(
        and(eq(evalCases.appName, key.appName), eq(evalCases.evalSetId, key.evalSetId), inArray(evalCases.id, ids)),
      )
      .orderBy(evalCases.createTime, evalCases.id);
    yield rows.map(({ text }) => unescapeJson(text));
  }
}

/** Deletes a set with its cases. @throws {NotFoundError} when there is none. */
export async function deleteEvalSet(db: Database, key: EvalSetKey): Promise<void> {
  const deleted = await db.delete(evalSets).where(isSet(key)).returning({ id: evalSets.id });
  if (deleted.length === 0) throw new NotFoundError(evalSetNotFound(key));
}
