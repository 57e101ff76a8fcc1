import type { SessionKey } from '../../../core/session.ts';
import { findHistory } from '../../../conversation/sessions/history-store.ts';
import { toActualTurns } from '../cases/turns.ts';
import { toUses } from './cost.ts';
import { spendWith } from '../judges/judge-model.ts';
import type { EvalMetric } from '../metrics/criteria.ts';
import { toScoring, pairTurns, scoreCase } from './score-case.ts';
import type { ScoredCase } from './score.ts';
import type { EvalContext } from '../sets/context.ts';

/** Scores a stored session up to an event; `undefined` without it. @throws {LimitError} for a spent budget */
export async function scoreSession(
  { database, agents, config }: EvalContext,
  key: SessionKey,
  lastSequence: number,
  metrics: EvalMetric[],
  signal: AbortSignal,
): Promise<ScoredCase | undefined> {
  const agent = agents.get(key.appName);
  const history = await findHistory(database.reads, key);
  if (!agent || !history) return undefined;
  const prepared = await agent.prepare({ mcpServers: [] }, signal, key.userId);
  try {
    const judge = { ...prepared, spend: spendWith(database.db, key) };
    const scoring = { ...toScoring(judge, config.EVALS_JUDGE_MODEL, {}, signal), own: agent.evals?.metrics };
    const events = history.events.slice(0, lastSequence);
    const scored = await scoreCase(pairTurns(toActualTurns(events, agent.describe()), {}), metrics, scoring);
    return { ...scored, uses: toUses(events, agent.describe()) };
  } finally {
    await prepared.close();
  }
}
