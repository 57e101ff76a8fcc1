import { expect, test } from 'vitest';
import type { Part } from '../../../../../src/core/content.ts';
import { responseMatch, rouge1, toWords } from '../../../../../src/features/evals/metrics/response-match.ts';
import { toOverall, toStatus } from '../../../../../src/features/evals/metrics/status.ts';
import { checkAll, near, vectorsOf } from '../vectors.ts';

interface PairVector {
  reference: string;
  actual: string;
  precision: number;
  recall: number;
  fmeasure: number;
  referenceTokens?: string[];
  actualTokens?: string[];
}
type Said = string | Part[] | null;
interface ConversationVector {
  threshold: number;
  turns: { reference: Said; actual: Said }[];
  overallScore: number | null;
  overallStatus: string;
  perInvocation: { score: number | null; status: string }[];
}
const vectors = vectorsOf('rouge') as {
  pairs: PairVector[];
  tokens: [text: string, words: string[]][];
  conversations: ConversationVector[];
};

test('two texts agree by the words that they share', () =>
  checkAll('rouge.pairs', vectors.pairs, ({ reference, actual, precision, recall, fmeasure, ...words }) => {
    expect(rouge1(actual, reference)).toEqual({
      precision: near(precision),
      recall: near(recall),
      fmeasure: near(fmeasure),
    });
    if (words.referenceTokens) expect(toWords(reference)).toEqual(words.referenceTokens);
    if (words.actualTokens) expect(toWords(actual)).toEqual(words.actualTokens);
  }));

test('words and their stems are those of the library', () =>
  checkAll('rouge.tokens', vectors.tokens, ([text, words]) => expect(toWords(text)).toEqual(words)));

const toContent = (said: Said) =>
  said === null ? undefined : { parts: typeof said === 'string' ? [{ text: said }] : said };

test('a conversation has the mean of its turns', () =>
  checkAll('rouge.conversations', vectors.conversations, (vector) => {
    const scores = vector.turns.map(({ actual, reference }) => responseMatch(toContent(actual), toContent(reference)));
    const overall = toOverall(scores);
    expect(overall).toEqual(near(vector.overallScore));
    expect(toStatus(overall, vector.threshold)).toBe(vector.overallStatus);
    expect(scores.map((score) => ({ score, status: toStatus(score, vector.threshold) }))).toEqual(
      vector.perInvocation.map(({ score, status }) => ({ score: near(score), status })),
    );
  }));

test('two silent turns score 0: nothing was said right', () => {
  expect(responseMatch(undefined, { parts: [{ text: '' }] })).toBe(0);
});

test('a stem has a vowel, and a suffix before `ly` is taken off as well', () => {
  expect(toWords('sing string bled conditionally')).toEqual(['sing', 'string', 'bled', 'condit']);
});
