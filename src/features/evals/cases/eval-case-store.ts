import {
  type EvalSetKey,
  nextVersion,
  returnCase,
  insertVersion,
  isOfSet,
  isNewest,
  isSet,
  evalSetExists,
  evalSetNotFound,
  type SetModes,
} from '../sets/eval-set-store.ts';
import { type SQL, type SQLWrapper, and, eq, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/db/database.ts';
import { escapeJson } from '../../../platform/json-escape.ts';
import { evalCases, evalCaseVersions, evalSets } from '../../../platform/db/schema/schema.ts';
import { assignments, excluded, insertSelect, names } from '../../../platform/db/sql.ts';
import { ConflictError, NotFoundError, TooLargeError } from '../../../core/errors.ts';
import { sessionLock } from '../../../conversation/sessions/session-row.ts';
import { checkCase, MAX_CASES } from '../sets/bounds.ts';
import type { EvalCase } from './eval-case.ts';
import type { EvalCaseBody } from '../sets/eval-set.ts';
import { toStoredCase } from '../sets/intermediate-data.ts';

/**
 * Inserts a case, and its set if missing, in one statement, because a refused case must not leave an empty set. It
 * locks the source session: a concurrent deletion also deletes the case, or prevents its insertion.
 * @returns false if the session was deleted; nothing is written then.
 * @throws {ConflictError} if the set already has a case with this id.
 * @throws {NotFoundError} if the set belongs to another user.
 * @throws {TooLargeError} if the case is too large or the set is full.
 */
export async function insertEvalCase(
  db: Database,
  key: EvalSetKey,
  evalCase: EvalCase,
  source: { userId: string; sessionId: string },
): Promise<boolean> {
  checkCase(evalCase);
  const { appName, evalSetId, ownerId } = key;
  const count = sql`(select count(*) from ${evalCases}
    where ${evalCases.appName} = ${appName} and ${evalCases.evalSetId} = ${evalSetId})`;
  const time = sql`jsonb_build_object('creationTimestamp', extract(epoch from clock_timestamp()))`;
  const isOwn = ownerId === undefined ? sql`true` : sql`${evalSets.ownerId} = ${ownerId}`;
  const insert = insertSelect(evalCases, {
    appName,
    evalSetId,
    id: evalCase.evalId,
    version: nextVersion({ appName, evalSetId }, sql`${evalCase.evalId}`),
    sourceUserId: source.userId,
    sourceSessionId: source.sessionId,
    ownerId: sql`used_set.owner_id`,
  });
  // An update that changes nothing locks the caller's existing set, even one that was just created concurrently.
  const { rows } = await db.execute<{ hasSession: boolean; isCreated: boolean; isFull: boolean }>(sql`
    with source_session as (${sessionLock({ appName, ...source })}), used_set as (
      ${insertSelect(evalSets, { appName, id: evalSetId, name: evalSetId, ownerId: ownerId ?? null })} from source_session
      on conflict (${names(evalSets.appName, evalSets.id)})
      do update set ${assignments(evalSets, { id: excluded(evalSets.id) })}
      where ${isOwn} returning ${evalSets.ownerId} as owner_id),
    created as (${insert} from used_set where ${count} < ${MAX_CASES} on conflict do nothing ${returnCase}),
    new_version as (${insertVersion({ appName, evalSetId }, sql`${escapeJson(evalCase)}::jsonb || ${time}`)} from created)
    select exists (select from source_session) as "hasSession", exists (select from created) as "isCreated",
           ${count} >= ${MAX_CASES} as "isFull"`);
  const [{ hasSession, isCreated, isFull } = { hasSession: false, isCreated: false, isFull: false }] = rows;
  if (isCreated || !hasSession) return isCreated;
  if (!(await evalSetExists(db, key))) throw new NotFoundError(evalSetNotFound(key));
  if (isFull) throw new TooLargeError(`The eval set \`${evalSetId}\` has ${MAX_CASES} cases, and may have no more.`);
  throw new ConflictError(`Eval id \`${evalCase.evalId}\` already exists in \`${evalSetId}\` eval set.`);
}

/** A set's case ids, sorted by code point (collation "C"); `undefined` if the set does not exist. */
export async function listEvalCaseIds(db: Database, key: EvalSetKey): Promise<string[] | undefined> {
  const { rows } = await db.execute<{ ids: string[] }>(sql`
    select array(select ${evalCases.id} from ${evalCases} where ${isOfSet} order by ${evalCases.id})::text[] as ids
    from ${evalSets} where ${isSet(key)}`);
  return rows[0]?.ids;
}

export async function findEvalCase(db: Database, key: EvalSetKey, evalId: string): Promise<EvalCaseBody | undefined> {
  const [row] = await db
    .select({ payload: evalCaseVersions.payload })
    .from(evalCases)
    .innerJoin(evalCaseVersions, isNewest)
    .where(isCase(key, evalId));
  return row?.payload as EvalCaseBody | undefined;
}

/** The case's new version has the same creation time. @throws {NotFoundError} if the set or the case is missing */
export async function replaceEvalCase(db: Database, key: EvalSetKey, evalCase: EvalCaseBody): Promise<void> {
  checkCase(evalCase);
  const { appName, evalSetId } = key;
  // The creation time of any version, because all have the same one and the newest may not be visible yet.
  const time = sql`(
    select jsonb_build_object('creationTimestamp', ${evalCaseVersions.payload} -> 'creationTimestamp')
    from ${evalCaseVersions} where ${evalCaseVersions.appName} = ${appName}
      and ${evalCaseVersions.evalSetId} = ${evalSetId} and ${evalCaseVersions.evalId} = ${evalCase.evalId} limit 1)`;
  const payload = sql`(${time} || ${escapeJson(toStoredCase(evalCase))}::jsonb)`;
  const update = sql`(
    update ${evalCases} set ${names(evalCases.version)} = ${evalCases.version} + 1
    where ${isCase(key, evalCase.evalId)} ${returnCase})`;
  const insertion = sql`, new_version as (${insertVersion(key, payload)} from changed as created)`;
  await changeEvalCase(db, key, evalCase.evalId, update, insertion);
}

/** @throws {NotFoundError} if the set or the case does not exist */
export async function deleteEvalCase(db: Database, key: EvalSetKey, evalId: string): Promise<void> {
  const deleted = db.delete(evalCases).where(isCase(key, evalId)).returning({ id: evalCases.id });
  await changeEvalCase(db, key, evalId, deleted);
}

const isCase = (key: EvalSetKey, evalId: string) =>
  and(
    eq(evalCases.appName, key.appName),
    eq(evalCases.evalSetId, key.evalSetId),
    eq(evalCases.id, evalId),
    key.ownerId === undefined ? undefined : sql`exists (select from ${evalSets} where ${isSet(key)})`,
  );

/** Looks the set up and runs `change` in the same statement. `change` must return the changed rows. */
async function changeEvalCase(
  db: Database,
  key: EvalSetKey,
  evalId: string,
  change: SQLWrapper,
  otherParts: SQL = sql``,
): Promise<void> {
  const { rows } = await db.execute<{ changed: number }>(sql`
    with changed as ${change}${otherParts}
    select (select count(*)::int from changed) as changed from ${evalSets} where ${isSet(key)}`);
  const set = rows[0];
  if (!set) throw new NotFoundError(evalSetNotFound(key));
  if (set.changed === 0) throw new NotFoundError(`Eval case \`${evalId}\` not found in eval set \`${key.evalSetId}\`.`);
}

export interface RunnableCase {
  evalId: string;
  version: number;
  /** Application and user named by the case; null if it names none. */
  appName: string | null;
  userId: string | null;
  /** True if the initial state has `app:` keys, which all users share. */
  writesSharedState: boolean;
}

/** Reads what a run of a set needs, the cases in the order of the set. @returns `undefined` if there is no such set */
export async function findRunnableSet(
  db: Database,
  key: EvalSetKey,
): Promise<(SetModes & { cases: RunnableCase[] }) | undefined> {
  const input = (name: 'appName' | 'userId') =>
    sql<string | null>`${evalCaseVersions.payload} #>> ${`{sessionInput,${name}}`}`;
  const { modelExecutionMode, toolExecutionMode } = evalSets;
  const rows = await db
    .select({
      modes: { modelExecutionMode, toolExecutionMode },
      evalId: evalCases.id,
      version: evalCases.version,
      appName: input('appName'),
      userId: input('userId'),
      writesSharedState: sql<boolean>`coalesce(jsonb_path_exists(${evalCaseVersions.payload},
        'lax $.sessionInput.state.keyvalue().key ? (@ starts with "app:")', '{}', true), false)`,
    })
    .from(evalSets)
    .leftJoin(evalCases, isOfSet)
    .leftJoin(evalCaseVersions, isNewest)
    .where(isSet(key))
    .orderBy(evalCases.createTime, evalCases.id);
  const cases = rows.flatMap(({ modes: _modes, evalId, version, ...one }) =>
    evalId === null || version === null ? [] : [{ evalId, version, ...one }],
  );
  return rows[0] && { ...rows[0].modes, cases };
}
