import { and, eq } from 'drizzle-orm';
import type { SessionKey } from '../core/session.ts';
import type { Database } from '../db/database.ts';
import { evalCases, evalCaseVersions, evalRunCases } from '../db/schema.ts';

/**
 * Deletes the cases that were made from a session: all versions, and of runs the rows that are about them. What is
 * deleted must be gone before what it refers to. @returns the sessions in which runs said the same again
 */
export async function deleteCasesOf(tx: Database, { appName, userId, sessionId }: SessionKey): Promise<SessionKey[]> {
  const repeated: SessionKey[] = [];
  const deleted = await tx
    .delete(evalCases)
    .where(
      and(eq(evalCases.appName, appName), eq(evalCases.sourceUserId, userId), eq(evalCases.sourceSessionId, sessionId)),
    )
    .returning({ evalSetId: evalCases.evalSetId, evalId: evalCases.id });
  for (const { evalSetId, evalId } of deleted) {
    const isOfCase = (table: typeof evalRunCases | typeof evalCaseVersions) =>
      and(eq(table.appName, appName), eq(table.evalSetId, evalSetId), eq(table.evalId, evalId));
    const runCases = await tx
      .delete(evalRunCases)
      .where(isOfCase(evalRunCases))
      .returning({ userId: evalRunCases.sessionUserId, sessionId: evalRunCases.sessionId });
    for (const one of runCases)
      if (one.sessionId !== null) repeated.push({ appName, ...one, sessionId: one.sessionId });
    await tx.delete(evalCaseVersions).where(isOfCase(evalCaseVersions));
  }
  return repeated;
}
