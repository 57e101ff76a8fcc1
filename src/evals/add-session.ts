import type { Database } from '../db/database.ts';
import { NotFoundError } from '../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../core/session.ts';
import { findHistory } from '../sessions/history-store.ts';
import { findInitialState } from '../sessions/session-store.ts';
import { toEvalInvocations, toInitialState, withPlaceholders } from './eval-case.ts';
import { type EvalSetKey, insertEvalCase } from './eval-store.ts';

/**
 * Turns a session's conversation into a case of an evaluation set; the set is created where it is absent. The case
 * begins with the session's state at its start, and with `''` for what `instructions` name beside it.
 * @throws {NotFoundError} when the session does not exist, or the set is another's.
 * @throws {ConflictError} when the set has a case of this id.
 */
export async function addSession(
  db: Database,
  key: SessionKey,
  set: EvalSetKey,
  evalId: string,
  instructions: string[] = [],
): Promise<void> {
  const history = await findHistory(db, key);
  if (!history) throw new NotFoundError(sessionNotFound(key.sessionId));
  const { appName, userId } = key;
  const initial = await findInitialState(db, key);
  const state = withPlaceholders(initial ?? toInitialState(history.state, history.events), instructions);
  const evalCase = {
    evalId,
    conversation: toEvalInvocations(history.events),
    sessionInput: { appName, userId, state },
  };
  await insertEvalCase(db, set, evalCase, key);
}
