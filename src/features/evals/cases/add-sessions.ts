import { type HostedAgent, listAgents } from '../../../conversation/apps/hosted-agent.ts';
import type { ChosenSession } from '../../../conversation/sessions/session-list.ts';
import { findHistory } from '../../../conversation/sessions/history.ts';
import { checkReached, findInitialState } from '../../../conversation/sessions/session-store.ts';
import type { JsonObject } from '../../../core/content.ts';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { EvalContext } from '../sets/context.ts';
import { evalCaseSchema } from '../sets/eval-set.ts';
import type { EvalSetKey } from '../sets/eval-set-store.ts';
import { type EvalCase, withPlaceholders } from './eval-case.ts';
import { toEvalInvocations } from './turns.ts';
import { insertEvalCase } from './eval-case-store.ts';
import { cloneJson } from '../../../core/exact-json.ts';

interface CaseSource {
  evalId: string;
  /** Instructions of all agents of the application. Their placeholders become keys of the case's initial state. */
  instructions: string[];
  /** Number of the session's first events that become the case's history, not its conversation; default: 0. */
  fromSequence?: number | null | undefined;
}

/**
 * Makes a case from a session's conversation, and creates the set if it does not exist. The case starts with the
 * session's initial state, and with an empty text for each further placeholder in `instructions`.
 * @throws {NotFoundError} if the session does not exist, or if the set belongs to another user.
 * @throws {ConflictError} if the set already has a case with this id.
 * @throws {InvalidError} if `fromSequence` lies within an invocation or exceeds the session's number of events.
 */
export async function addSession(db: Database, key: SessionKey, set: EvalSetKey, source: CaseSource): Promise<void> {
  const evalCase = await toCase(db, key, source);
  const isAdded = evalCase && (await insertEvalCase(db, set, evalCase, key));
  if (!isAdded) throw new NotFoundError(sessionNotFound(key.sessionId));
}

/**
 * Makes cases from sessions, and adds either all of them to a set or none. If the application defines a mask function,
 * it is applied to each case. Sessions deleted in the meantime are skipped.
 * @returns the case ids: the session ids, with a number appended to repeated ids
 * @throws {InvalidError} if the mask function does not return a case.
 * @throws {ConflictError} if the set already has a case with one of these ids.
 * @throws {NotFoundError} if the set belongs to another user.
 */
export async function addSessions(
  { database, agents }: EvalContext,
  set: EvalSetKey,
  sources: ChosenSession[],
): Promise<string[]> {
  const { appName } = set;
  const agent = agents.get(appName);
  const instructions = listInstructions(agent);
  const counts = new Map<string, number>();
  const cases: { evalCase: EvalCase; source: ChosenSession }[] = [];
  for (const source of sources) {
    const times = (counts.get(source.sessionId) ?? 0) + 1;
    counts.set(source.sessionId, times);
    const evalId = times === 1 ? source.sessionId : `${source.sessionId}-${times}`;
    const plain = await toCase(database.reads, { appName, ...source }, { evalId, instructions });
    if (!plain) continue;
    const maskedCase = agent?.evals?.mask ? await agent.evals.mask(cloneJson(plain) as unknown as JsonObject) : plain;
    if (!evalCaseSchema.safeParse(maskedCase).success || maskedCase.evalId !== evalId)
      throw new InvalidError(`The mask of ${appName} made no eval case of session ${source.sessionId}.`);
    cases.push({ evalCase: maskedCase as unknown as EvalCase, source });
  }
  return database.transaction(async (tx) => {
    const evalIds: string[] = [];
    for (const { evalCase, source } of cases) {
      if (await insertEvalCase(tx, set, evalCase, source)) evalIds.push(evalCase.evalId);
    }
    return evalIds;
  });
}

/** Lists the instructions of all agents of an application; empty if this process does not host the application. */
export const listInstructions = (agent: HostedAgent | undefined): string[] =>
  agent ? listAgents(agent.describe()).map(({ instruction }) => instruction) : [];

/** Converts a session to a case; `undefined` if it does not exist. @throws {InvalidError} as {@link addSession}. */
async function toCase(
  db: Database,
  key: SessionKey,
  { evalId, instructions, fromSequence }: CaseSource,
): Promise<EvalCase | undefined> {
  const history = await findHistory(db, key);
  if (!history) return undefined;
  const { appName, userId, sessionId } = key;
  const sequence = fromSequence ?? 0;
  checkStart(history.events, sequence);
  const conversation = toEvalInvocations(history.events.slice(sequence));
  if (sequence > 0) return { evalId, conversation, sessionInput: { appName, userId, state: {}, sessionId, sequence } };
  const initial = await findInitialState(db, key);
  if (!initial) return undefined;
  const state = withPlaceholders(initial, instructions);
  return { evalId, conversation, sessionInput: { appName, userId, state } };
}

/** Refuses a history that ends within an invocation, because a run continues the history with a message of the user. */
function checkStart(events: Event[], fromSequence: number): void {
  checkReached(events.length, fromSequence);
  const historyIds = new Set(events.slice(0, fromSequence).map(({ invocationId }) => invocationId));
  const isOfHistory = ({ invocationId }: Event) => invocationId != null && historyIds.has(invocationId);
  if (events.slice(fromSequence).some(isOfHistory))
    throw new InvalidError(`The invocation of event ${fromSequence} goes on behind it: name its last event.`);
}
