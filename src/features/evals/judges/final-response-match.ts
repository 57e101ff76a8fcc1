import type { Criterion } from '../metrics/criteria.ts';
import { MetricError, type MetricScore, toOverall, type TurnScore } from '../metrics/status.ts';
import { textOf, type TurnPair } from '../metrics/turn.ts';
import { type Judge, majority, takeSamples, toTurnScore } from './judge.ts';
import { readJsonAnswer, wordOf } from './json-answer.ts';
import { answerOf, toPrompt } from './material.ts';

const TASK = `You grade the answer of an agent against a reference answer that is known to be good.
The answer is valid when it gives the user what the reference gives: the same facts, figures, names and results.
Wording, order, format, length and courtesy do not matter, nor do further statements that contradict nothing.
It is invalid when something that the reference says is missing, different or contradicted.`;

/** Asks whether an answer is as good as the reference, given the question that the reference answers. */
export function finalResponsePrompt({ actual, expected }: TurnPair, whole: boolean): string {
  if (!expected) throw new MetricError('final_response_match_v2 needs a case with an expected conversation.');
  const material = {
    question: textOf(expected.userContent),
    reference: answerOf(expected, whole),
    answer: answerOf(actual, whole),
  };
  return toPrompt(TASK, material, '{"reason": "<one sentence>", "verdict": "valid" | "invalid"}');
}

const VALID = ['valid', 'true'];
const INVALID = ['invalid', 'false', 'almost', 'partially_valid', 'partially'];
const toVerdict = (word: string | undefined): 0 | 1 | undefined => {
  if (word === undefined) return undefined;
  if (VALID.includes(word)) return 1;
  return INVALID.includes(word) ? 0 : undefined;
};

/**
 * Finds a member's value in JSON-like text: bare, quoted or in brackets, no blanks, before a comma, brace or line feed.
 * Each repetition is short: a judge that was talked into a thousand blanks would keep an open one busy for hours.
 */
function looseMember(name: string, flags = ''): (answer: string) => string | undefined {
  const place = `"${name}"${flags ? '\\s?' : ''}:\\s?`;
  const value = '\\[{0,9}\\s?"{0,9}([^"\\[\\]\\s,}]{0,99})"{0,9}\\s?\\]{0,9}\\s?[,\\n}]';
  const pattern = new RegExp(place + value, flags);
  return (answer) => pattern.exec(answer.replaceAll(/\s+/g, (blanks) => (blanks.includes('\n') ? '\n' : ' ')))?.[1];
}
const judgedValid = looseMember('is_the_agent_response_valid');
const judgedInvalid = looseMember('is_the_agent_response_invalid');
const isValid = looseMember('is_valid', 'i');

/** 1 for valid, 0 for invalid, `undefined` for an unreadable answer: our JSON first, then the words of ADK's judge. */
export function readFinalResponseVerdict(answer: string): 0 | 1 | undefined {
  const verdict = toVerdict(wordOf(readJsonAnswer(answer)?.['verdict']));
  if (verdict !== undefined) return verdict;
  const valid = judgedValid(answer);
  if (valid !== undefined) return toVerdict(valid);
  const invalid = judgedInvalid(answer);
  if (invalid === undefined) return undefined;
  return invalid === 'true' || invalid === 'invalid' ? 0 : 1;
}

/** Like {@link readFinalResponseVerdict}, for whether a simulated user kept to the plan; case does not matter. */
export function readValidity(answer: string): 0 | 1 | undefined {
  const json = toVerdict(wordOf(readJsonAnswer(answer)?.['verdict']));
  return json ?? toVerdict(isValid(answer)?.toLowerCase());
}

/** What the majority of a turn's samples says. */
export const decideVerdict = (votes: (0 | 1)[]): TurnScore => ({ score: majority(votes) });

/** `final_response_match_v2`: the share of turns whose answer a judge finds as good as the expected one. */
export async function finalResponseMatch(
  pairs: TurnPair[],
  criterion: Criterion<'judge'>,
  judge: Judge,
): Promise<MetricScore> {
  const turns: TurnScore[] = [];
  for (const pair of pairs) {
    const prompt = finalResponsePrompt(pair, criterion.includeIntermediateResponsesInFinal);
    const samples = await takeSamples(judge, prompt, criterion.judgeModelOptions, readFinalResponseVerdict);
    turns.push(toTurnScore(samples, decideVerdict));
  }
  return { score: toOverall(turns.map(({ score }) => score)), turns };
}
