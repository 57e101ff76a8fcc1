import type { JsonObject } from '../../../core/content.ts';
import { InvalidError } from '../../../core/errors.ts';
import { listAgents } from '../../../conversation/apps/agent-description.ts';
import type { ChosenSession } from '../../../conversation/sessions/choose-sessions.ts';
import { toCase } from './add-session.ts';
import type { EvalCase } from './eval-case.ts';
import { evalCaseSchema } from '../sets/eval-set.ts';
import type { EvalSetKey } from '../sets/eval-set-store.ts';
import { insertEvalCase } from './eval-case-store.ts';
import type { EvalRunContext } from '../sets/context.ts';

/**
 * Makes cases of sessions, masked where their application says how, and adds all of them to a set or none. A session
 * that is deleted since it was chosen is left out, as if it had been deleted before.
 * @returns their ids: those of the sessions, with a number behind one that comes again.
 * @throws {InvalidError} for a mask that makes something else than a case. @throws {ConflictError} when the set has one
 * of the cases. @throws {NotFoundError} when the set is another's.
 */
export async function copySessions(
  { database, agents }: EvalRunContext,
  set: EvalSetKey,
  chosen: ChosenSession[],
): Promise<string[]> {
  const { appName } = set;
  const agent = agents.get(appName);
  const instructions = agent ? listAgents(agent.describe()).map(({ instruction }) => instruction) : [];
  const seen = new Map<string, number>();
  const cases: { evalCase: EvalCase; source: ChosenSession }[] = [];
  for (const source of chosen) {
    const times = (seen.get(source.sessionId) ?? 0) + 1;
    seen.set(source.sessionId, times);
    const evalId = times === 1 ? source.sessionId : `${source.sessionId}-${times}`;
    const plain = await toCase(database.reads, { appName, ...source }, { evalId, instructions });
    if (!plain) continue;
    const masked = agent?.evals?.mask ? await agent.evals.mask(structuredClone(plain) as unknown as JsonObject) : plain;
    if (!evalCaseSchema.safeParse(masked).success || masked.evalId !== evalId) {
      throw new InvalidError(`The mask of ${appName} made no eval case of session ${source.sessionId}.`);
    }
    cases.push({ evalCase: masked as unknown as EvalCase, source });
  }
  return database.transaction(async (tx) => {
    const added: string[] = [];
    for (const { evalCase, source } of cases) {
      if (await insertEvalCase(tx, set, evalCase, source)) added.push(evalCase.evalId);
    }
    return added;
  });
}
