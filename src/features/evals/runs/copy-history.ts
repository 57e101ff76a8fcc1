import { InvalidError, isSessionTooLarge, NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import { findForkPoint, insertFork } from '../../../conversation/sessions/fork-store.ts';
import { checkReached } from '../../../conversation/sessions/session-store.ts';
import type { StoredCase } from '../cases/case-text.ts';

/** Largest history of a case, bytes of its events: each trial of a run copies it. */
const MAX_HISTORY_BYTES = 4_194_304;

/**
 * Makes the session of a case with the history that it begins with: the first events of a session of the same user,
 * whom the caller of the run may act for, and its state of then. Artifacts of that session are not copied.
 * @throws {NotFoundError} where that session is gone. @throws {InvalidError} where it has not come so far, or its
 * history is too large.
 */
export async function copyHistory(
  db: Database,
  key: SessionKey,
  { sessionId, sequence }: NonNullable<StoredCase['history']>,
): Promise<void> {
  const source = { ...key, sessionId };
  const point = await findForkPoint(db, source, sequence);
  if (point) checkReached(point.reached, sequence);
  const fork = { sessionId: key.sessionId, atSequence: sequence, labels: {}, maxBytes: MAX_HISTORY_BYTES };
  try {
    // False where the owner before made it, too, or the answer to the first try was lost; its id is nobody else's.
    if (point && (await insertFork(db, source, fork))) return;
  } catch (error) {
    if (!isSessionTooLarge(error)) throw error;
    throw new InvalidError(`The history of the case is larger than ${MAX_HISTORY_BYTES} bytes.`);
  }
  if (!(await findForkPoint(db, key, 0))) throw new NotFoundError(sessionNotFound(sessionId));
}
