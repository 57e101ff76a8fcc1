import type { Database } from '../../../platform/db/database.ts';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { Event } from '../../../core/event.ts';
import { findHistory } from '../../../conversation/sessions/history-store.ts';
import { checkReached, findInitialState } from '../../../conversation/sessions/session-store.ts';
import { type EvalCase, toEvalInvocations, toInitialState, withPlaceholders } from './eval-case.ts';
import type { EvalSetKey } from '../sets/eval-set-store.ts';
import { insertEvalCase } from './eval-case-store.ts';

/** What of a session becomes a case. */
interface CaseSource {
  evalId: string;
  /** Of all agents: what they name in the state is there. */
  instructions: string[];
  /** Number of events that are the history of the case and no part of its conversation [0]. */
  fromSequence?: number | undefined;
}

/**
 * Turns a session's conversation into a case of an evaluation set; the set is created where it is absent. The case
 * begins with the session's state at its start, and with `''` for what `instructions` name beside it.
 * @throws {NotFoundError} when the session does not exist, or the set is another's.
 * @throws {ConflictError} when the set has a case of this id. @throws {InvalidError} for a history that ends within an
 * invocation, or that the session does not have.
 */
export async function addSession(db: Database, key: SessionKey, set: EvalSetKey, source: CaseSource): Promise<void> {
  const evalCase = await toCase(db, key, source);
  const isAdded = evalCase && (await insertEvalCase(db, set, evalCase, key));
  if (!isAdded) throw new NotFoundError(sessionNotFound(key.sessionId));
}

/** A session as a case; `undefined` where there is no such session. @throws {InvalidError} as {@link addSession}. */
export async function toCase(
  db: Database,
  key: SessionKey,
  { evalId, instructions, fromSequence = 0 }: CaseSource,
): Promise<EvalCase | undefined> {
  const history = await findHistory(db, key);
  if (!history) return undefined;
  const { appName, userId, sessionId } = key;
  checkStart(history.events, fromSequence);
  const conversation = toEvalInvocations(history.events.slice(fromSequence));
  if (fromSequence > 0) {
    const sessionInput = { appName, userId, state: {}, sessionId, sequence: fromSequence };
    return { evalId, conversation, sessionInput };
  }
  const initial = await findInitialState(db, key);
  const state = withPlaceholders(initial ?? toInitialState(history.state, history.events), instructions);
  return { evalId, conversation, sessionInput: { appName, userId, state } };
}

/** A history ends with an invocation: a run goes on behind it with what the user says. */
function checkStart(events: Event[], fromSequence: number): void {
  checkReached(events.length, fromSequence);
  const begun = new Set(events.slice(0, fromSequence).map(({ invocationId }) => invocationId));
  const isWithin = events
    .slice(fromSequence)
    .some(({ invocationId }) => invocationId != null && begun.has(invocationId));
  if (isWithin)
    throw new InvalidError(`The invocation of event ${fromSequence} goes on behind it: name its last event.`);
}
