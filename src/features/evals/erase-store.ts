import { type SQL, and, eq, sql } from 'drizzle-orm';
import type { PgTable } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
import { lockSession } from '../../conversation/sessions/session-row.ts';
import type { Database } from '../../platform/db/database.ts';
import {
  evalCases,
  evalCaseVersions,
  evalRunCases,
  evalRuns,
  evalSets,
  evalVerdicts,
  sessionVerdicts,
} from '../../platform/db/schema/schema.ts';
import { isOpenCase } from './runs/eval-run-store.ts';

/** Locks the sessions and runs of open cases before the cases are deleted, in the order in which their ends lock them. */
async function lockRuns(tx: Database, cases: SQL): Promise<void> {
  const { appName, runId, sessionUserId: userId, sessionId } = evalRunCases;
  const open = await tx
    .select({ appName, userId, sessionId })
    .from(evalRunCases)
    .where(sql`${cases} and ${isOpenCase}`)
    .orderBy(userId, sessionId);
  // The end of a turn locks its session before the run's jobs.
  for (const one of open) if (one.sessionId !== null) await lockSession(tx, { ...one, sessionId: one.sessionId });
  await tx.execute(sql`
    select ${evalRuns.id} from ${evalRuns} where (${evalRuns.appName}, ${evalRuns.id}) in (
      select ${appName}, ${runId} from ${evalRunCases} where ${cases} and ${isOpenCase})
    order by ${evalRuns.id} for no key update`);
}

/**
 * Deletes all versions of a session's cases and their rows in runs, before the rows that they reference.
 * @returns the sessions in which runs replayed the conversation
 */
export async function deleteSessionCases(
  tx: Database,
  { appName, userId, sessionId }: SessionKey,
): Promise<SessionKey[]> {
  const sessions: SessionKey[] = [];
  const cases = await tx
    .delete(evalCases)
    .where(
      and(eq(evalCases.appName, appName), eq(evalCases.sourceUserId, userId), eq(evalCases.sourceSessionId, sessionId)),
    )
    .returning({ evalSetId: evalCases.evalSetId, evalId: evalCases.id });
  const ids = {
    setIds: sql.param(cases.map((one) => one.evalSetId)),
    evalIds: sql.param(cases.map((one) => one.evalId)),
  };
  await lockRuns(
    tx,
    sql`${evalRunCases.appName} = ${appName} and (${evalRunCases.evalSetId}, ${evalRunCases.evalId}) in (
      select * from unnest(${ids.setIds}::text[], ${ids.evalIds}::text[]))`,
  );
  for (const { evalSetId, evalId } of cases) {
    const isOfCase = (table: typeof evalRunCases | typeof evalCaseVersions) =>
      and(eq(table.appName, appName), eq(table.evalSetId, evalSetId), eq(table.evalId, evalId));
    const runCases = await tx
      .delete(evalRunCases)
      .where(isOfCase(evalRunCases))
      .returning({ userId: evalRunCases.sessionUserId, sessionId: evalRunCases.sessionId });
    for (const one of runCases)
      if (one.sessionId !== null) sessions.push({ appName, ...one, sessionId: one.sessionId });
    await tx.delete(evalCaseVersions).where(isOfCase(evalCaseVersions));
  }
  return sessions;
}

type User = Pick<SessionKey, 'appName' | 'userId'>;

/** Few run cases per statement, because each may contain a whole conversation. */
const RUN_CASES = 200;

/**
 * Evaluation rows of a user: from the user's sessions, run in the user's name, or created by the user. For deleted
 * cases and sets only the table of case versions still names the quoted user and the owner.
 */
function conditionsFor({ appName, userId }: User) {
  const isOfApp = (table: typeof evalSets | typeof evalCases | typeof evalCaseVersions | typeof evalRuns) =>
    eq(table.appName, appName);
  // Separate selects joined by `union`, because PostgreSQL then uses an index for each condition.
  const union = (columns: SQL, table: PgTable, ways: SQL[]) =>
    sql.join(
      ways.map((way) => sql`select ${columns} from ${table} where ${way}`),
      sql` union `,
    );
  const ownSets = sql`${isOfApp(evalSets)} and ${evalSets.ownerId} = ${userId}`;
  const sets = sql`select ${evalSets.id} from ${evalSets} where ${ownSets}`;
  const runs = union(sql`${evalRuns.id}`, evalRuns, [
    sql`${isOfApp(evalRuns)} and ${evalRuns.requestedBy} = ${userId}`,
    sql`${isOfApp(evalRuns)} and ${evalRuns.evalSetId} in (${sets})`,
  ]);
  const caseKey = sql`${evalCases.evalSetId}, ${evalCases.id}`;
  const cases = union(caseKey, evalCases, [
    sql`${isOfApp(evalCases)} and ${evalCases.sourceUserId} = ${userId}`,
    sql`${isOfApp(evalCases)} and ${evalCases.ownerId} = ${userId}`,
    sql`${isOfApp(evalCases)} and ${evalCases.evalSetId} in (${sets})`,
  ]);
  const hasCase = sql`exists (
    select from ${evalCases} where ${evalCases.appName} = ${evalCaseVersions.appName}
      and ${evalCases.evalSetId} = ${evalCaseVersions.evalSetId} and ${evalCases.id} = ${evalCaseVersions.evalId})`;
  const versionKey = sql`${evalCaseVersions.evalSetId}, ${evalCaseVersions.evalId}, ${evalCaseVersions.version}`;
  const versions = union(versionKey, evalCaseVersions, [
    sql`${isOfApp(evalCaseVersions)} and ${evalCaseVersions.ownerId} = ${userId}`,
    sql`${isOfApp(evalCaseVersions)} and ${evalCaseVersions.evalSetId} in (${sets})`,
    sql`${isOfApp(evalCaseVersions)} and (${evalCaseVersions.evalSetId}, ${evalCaseVersions.evalId}) in (${cases})`,
    sql`${isOfApp(evalCaseVersions)} and not ${hasCase}
      and ${evalCaseVersions.payload} #>> '{sessionInput,userId}' = ${userId}`,
  ]);
  const isOfRunCases = eq(evalRunCases.appName, appName);
  const ofVersion = sql`${evalRunCases.evalSetId}, ${evalRunCases.evalId}, ${evalRunCases.caseVersion}`;
  const runCaseKey = sql`${evalRunCases.runId}, ${evalRunCases.place}, ${evalRunCases.trial}`;
  const runCases = union(runCaseKey, evalRunCases, [
    sql`${isOfRunCases} and ${evalRunCases.sessionUserId} = ${userId}`,
    sql`${isOfRunCases} and ${evalRunCases.ownerId} = ${userId}`,
    sql`${isOfRunCases} and ${evalRunCases.runId} in (${runs})`,
    sql`${isOfRunCases} and (${ofVersion}) in (${versions})`,
  ]);
  const verdicts = and(eq(evalVerdicts.appName, appName), eq(evalVerdicts.author, userId)) as SQL;
  const sessionVerdictsBy = and(eq(sessionVerdicts.appName, appName), eq(sessionVerdicts.author, userId)) as SQL;
  return {
    sets: ownSets,
    runs: sql`${isOfApp(evalRuns)} and ${evalRuns.id} in (${runs})`,
    cases: sql`${isOfApp(evalCases)} and (${caseKey}) in (${cases})`,
    versions: sql`${isOfApp(evalCaseVersions)} and (${versionKey}) in (${versions})`,
    runCases: sql`${isOfRunCases} and (${runCaseKey}) in (${runCases})`,
    verdicts,
    sessionVerdictsBy,
  };
}

/** Counts a user's evaluation rows by table, with one statement per table. */
export async function countEvaluations(db: Database, user: User): Promise<Record<string, number>> {
  const of = conditionsFor(user);
  return {
    eval_run_cases: await db.$count(evalRunCases, of.runCases),
    eval_cases: await db.$count(evalCases, of.cases),
    eval_case_versions: await db.$count(evalCaseVersions, of.versions),
    eval_sets: await db.$count(evalSets, of.sets),
    eval_runs: await db.$count(evalRuns, of.runs),
    eval_verdicts: await db.$count(evalVerdicts, of.verdicts),
    session_verdicts: await db.$count(sessionVerdicts, of.sessionVerdictsBy),
  };
}

/** Deletes one batch. @returns the sessions in which the cases ran, and the number of deleted cases */
export async function deleteRunCases(tx: Database, user: User): Promise<{ count: number; sessions: SessionKey[] }> {
  const { runCases } = conditionsFor(user);
  await lockRuns(tx, runCases);
  const { rows } = await tx.execute<{ userId: string; sessionId: string | null }>(sql`
    delete from ${evalRunCases} where ctid = any(array(
      select ${evalRunCases}.ctid from ${evalRunCases} where ${runCases} limit ${RUN_CASES}))
    returning ${evalRunCases.sessionUserId} as "userId", ${evalRunCases.sessionId} as "sessionId"`);
  const { appName } = user;
  const sessions = rows.flatMap(({ userId, sessionId }) =>
    sessionId === null ? [] : [{ appName, userId, sessionId }],
  );
  return { count: rows.length, sessions };
}

/** Deletes a user's evaluation rows after all run cases. @returns the number of deleted rows by table */
export async function deleteEvaluations(tx: Database, user: User): Promise<Record<string, number>> {
  const of = conditionsFor(user);
  const countRows = async (statement: PromiseLike<{ rowCount: number | null }>) => (await statement).rowCount ?? 0;
  const verdicts = await countRows(tx.delete(evalVerdicts).where(of.verdicts));
  const sessionVerdictCount = await countRows(tx.delete(sessionVerdicts).where(of.sessionVerdictsBy));
  const runs = await countRows(tx.delete(evalRuns).where(of.runs));
  // The versions must be found before their cases and sets are deleted, because the conditions join those.
  const { rows } = await tx.execute<{ place: string }>(
    sql`select ${evalCaseVersions}.ctid::text as place from ${evalCaseVersions} where ${of.versions} for update`,
  );
  const cases = await countRows(tx.delete(evalCases).where(of.cases));
  const places = sql.param(rows.map(({ place }) => place));
  const isFound = sql`${evalCaseVersions}.ctid = any(${places}::tid[])`;
  const versions = rows.length === 0 ? 0 : await countRows(tx.delete(evalCaseVersions).where(isFound));
  const sets = await countRows(tx.delete(evalSets).where(of.sets));
  return {
    eval_verdicts: verdicts,
    session_verdicts: sessionVerdictCount,
    eval_runs: runs,
    eval_cases: cases,
    eval_case_versions: versions,
    eval_sets: sets,
  };
}
