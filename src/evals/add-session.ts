import type { Database } from '../db/database.ts';
import { NotFoundError } from '../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../core/session.ts';
import { findHistory } from '../sessions/history-store.ts';
import { findInitialState } from '../sessions/session-store.ts';
import { type EvalCase, toEvalInvocations, toInitialState, withPlaceholders } from './eval-case.ts';
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
  const evalCase = await toCase(db, key, evalId, instructions);
  const isAdded = evalCase && (await insertEvalCase(db, set, evalCase, key));
  if (!isAdded) throw new NotFoundError(sessionNotFound(key.sessionId));
}

/** A session as a case; `undefined` where there is no such session. */
export async function toCase(
  db: Database,
  key: SessionKey,
  evalId: string,
  instructions: string[],
): Promise<EvalCase | undefined> {
  const history = await findHistory(db, key);
  if (!history) return undefined;
  const { appName, userId } = key;
  const initial = await findInitialState(db, key);
  const state = withPlaceholders(initial ?? toInitialState(history.state, history.events), instructions);
  return {
    evalId,
    conversation: toEvalInvocations(history.events),
    sessionInput: { appName, userId, state },
  };
}
