import type { Criterion } from '../metrics/criteria.ts';
import { getFailure, type MetricScore, NOTHING_SAID, toOverall, type TurnScore } from '../metrics/status.ts';
import { getText, type Turn, type TurnPair } from '../metrics/turn.ts';
import { LimitError } from '../../../core/errors.ts';
import { callJudge, type Judge, toObjects, readJsonAnswer, toWord } from './judge.ts';
import { toSteps, toPrompt, toTranscript } from './material.ts';

const SEGMENT = `Split the text into its sentences, each on its own and unchanged. A line of a list is a sentence.`;
const LABEL = `You check whether the sentences that an agent said are founded on what it was given: its instructions,
its tools, the dialogue and the results of tools. Label each sentence, in order:
supported: what was given says so; unsupported: it does not; contradictory: it says the opposite;
disputed: it says both; not_applicable: nothing is claimed (a question, courtesy, an opinion, a next step).`;

/** Extracts the sentences from a judge's answer; empty if the answer contains no marked sentences. */
function readSentences(answer: string): string[] {
  const json = readJsonAnswer(answer)?.['sentences'];
  if (Array.isArray(json)) return json.filter((sentence) => typeof sentence === 'string');
  return between(answer, ['<sentence>', '</sentence>']).map(([sentence = '']) => sentence);
}

const BLOCK = ['sentence:', '\nlabel:', '\nrationale:', '\nsupporting_excerpt:', '\ncontradicting_excerpt:'];

/** The texts between consecutive marks. No regular expression, which takes quadratic time if a mark is missing. */
function between(text: string, marks: string[]): string[][] {
  const matches: string[][] = [];
  for (let from = 0; ; ) {
    const places: number[] = [];
    for (const mark of marks) {
      const place = text.indexOf(mark, from);
      if (place < 0) return matches;
      places.push(place);
      from = place + mark.length;
    }
    matches.push(
      places.slice(1).map((place, index) => text.slice((places[index] ?? 0) + (marks[index] ?? '').length, place)),
    );
  }
}

/** Converts the labels in a judge's answer to scores; unknown labels are left out. */
export function readLabels(answer: string): (0 | 1)[] {
  const json = toObjects(readJsonAnswer(answer)?.['labels'])?.map(({ label }) => toWord(label));
  const words = json ?? between(answer.toLowerCase(), BLOCK).map(([, label]) => toWord(label));
  return words.flatMap((word): (0 | 1)[] => {
    if (word === 'supported' || word === 'not_applicable') return [1];
    return word === 'unsupported' || word === 'contradictory' || word === 'disputed' ? [0] : [];
  });
}

interface AgentText {
  text: string;
  before: ReturnType<typeof toSteps>;
}

/** A turn's judged texts: the final response and, if `all` is true, the agent's texts before it. */
function listTexts(turn: Turn, all: boolean): AgentText[] {
  const steps = toSteps(turn);
  const early = all
    ? steps.flatMap(({ text }, place) => (text === undefined ? [] : [{ text, before: steps.slice(0, place) }]))
    : [];
  const text = getText(turn.finalResponse);
  return text ? [...early, { text, before: steps }] : early;
}

async function judgeText(agentText: AgentText, earlier: Turn[], turn: Turn, judge: Judge): Promise<TurnScore> {
  try {
    const split = toPrompt(SEGMENT, { text: agentText.text }, '{"sentences": ["<sentence>", …]}');
    const sentences = readSentences(await callJudge(judge, split));
    if (sentences.length === 0) return { score: null, explanation: 'The judge found no sentences in the text.' };
    const material = {
      given: turn.appDetails ?? {},
      dialogue: earlier.map((before) => toTranscript(before)),
      user: getText(turn.userContent),
      steps: agentText.before,
      sentences,
    };
    const form = '{"labels": [{"sentence": "<sentence>", "reason": "<one sentence>", "label": "<label>"}, …]}';
    const labels = readLabels(await callJudge(judge, toPrompt(LABEL, material, form)));
    const score = toOverall(labels);
    if (score === null) return { score, explanation: 'The labels of the judge could not be read.' };
    const isWhole = labels.length >= sentences.length;
    return {
      score,
      ...(!isWhole && { failure: `The judge labelled ${labels.length} of ${sentences.length} sentences.` }),
    };
  } catch (error) {
    if (error instanceof LimitError) throw error;
    return { score: null, explanation: error instanceof Error ? error.message : String(error) };
  }
}

/** Metric `hallucinations_v1`: the share of sentences that the agent's input supports, by two judge calls per text. */
export async function hallucinations(
  pairs: TurnPair[],
  { evaluateIntermediateNlResponses: all }: Criterion<'hallucinations'>,
  judge: Judge,
): Promise<MetricScore> {
  const turns: TurnScore[] = [];
  const earlier: Turn[] = [];
  for (const { actual } of pairs) {
    const texts: TurnScore[] = [];
    for (const agentText of listTexts(actual, all)) texts.push(await judgeText(agentText, earlier, actual, judge));
    const score = toOverall(texts.map((text) => text.score));
    const explanation = texts.find((text) => text.score === null)?.explanation ?? NOTHING_SAID;
    const failure = texts.map(getFailure).find((text) => text !== undefined);
    turns.push(score === null ? { score, explanation } : { score, ...(failure !== undefined && { failure }) });
    earlier.push(actual);
  }
  return { score: toOverall(turns.map(({ score }) => score)), turns };
}
