import type { Criterion } from '../metrics/criteria.ts';
import { MetricError, type MetricScore, type TurnScore, toStatus } from '../metrics/status.ts';
import { textOf, type TurnPair } from '../metrics/turn.ts';
import { decideVerdict, readValidity } from './final-response-match.ts';
import { type Judge, takeSamples, toTurnScore } from './judge.ts';
import { toPrompt, toTranscript } from './material.ts';

/** What a simulated user was to do. */
export interface Scenario {
  startingPrompt: string;
  conversationPlan: string;
}

const TURN = `A simulated user speaks with an agent after a plan. You check whether the user's last message is what that
user would say next.
It is valid when it follows the plan, given the dialogue so far, and says nothing that only the agent could know.`;
const END = `A simulated user spoke with an agent after a plan. You check whether the user ended at the right point.
It is valid when the plan is done, or the agent can go no further with it; invalid when steps of the plan were left out
or repeated.`;
const FORM = '{"reason": "<one sentence>", "verdict": "valid" | "invalid"}';

/** `per_turn_user_simulator_quality_v1`: the share of turns in which the simulated user kept to the plan. */
export async function simulatorQuality(
  pairs: TurnPair[],
  { judgeModelOptions, stopSignal, threshold }: Criterion<'simulator'>,
  judge: Judge,
  scenario: Scenario | undefined,
): Promise<MetricScore> {
  if (!scenario) throw new MetricError('per_turn_user_simulator_quality_v1 needs a case with a scenario.');
  const dialogue = pairs.map(({ actual }) => toTranscript(actual)).map(({ user, agent }) => ({ user, agent }));
  const decide = async (task: string, material: object): Promise<TurnScore> => {
    const prompt = toPrompt(task, { ...scenario, ...material }, FORM);
    return toTurnScore(await takeSamples(judge, prompt, judgeModelOptions, readValidity), decideVerdict);
  };
  const turns: TurnScore[] = [];
  for (const [place, { actual }] of pairs.entries()) {
    const text = textOf(actual.userContent);
    turns.push(
      place === 0
        ? { score: text.trim() === scenario.startingPrompt.trim() ? 1 : 0 }
        : await decide(TURN, { dialogue: dialogue.slice(0, place), lastMessage: text }),
    );
  }
  if (turns.length === 0) return { score: null, turns };
  const { score: ended } = await decide(END, { dialogue, stopSignal });
  if (ended === 0) turns.splice(-1, 1, { score: 0, explanation: 'The dialogue did not end where the plan ends.' });
  // Of all turns, also those whose judge could not be read: those are not known to be good.
  const passed = turns.filter(({ score }) => toStatus(score, threshold) === 'PASSED').length;
  return { score: passed / turns.length, turns };
}
