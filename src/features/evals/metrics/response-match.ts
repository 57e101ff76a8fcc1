import type { Content } from '../../../core/content.ts';
import { MetricError } from './status.ts';
import { stem } from './stem.ts';
import { getText } from './turn.ts';

/** Longest text that is compared, in characters: to compare two of them takes 50 ms. */
const MAX_CHARACTERS = 65_536;

/** A character of a script without blanks between words that is a word: Chinese, Japanese, Korean. */
const ALONE = String.raw`[\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af]`;
/** One that is a word together with its marks: Thai, Lao, Khmer, Burmese. */
const FIRST = String.raw`[[\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f]--\p{M}]`;
const LETTER = String.raw`[[\p{L}\p{N}\p{M}]--${ALONE}]`;
const WORD = new RegExp(`${ALONE}|(?:${FIRST}|${LETTER})[${LETTER}--${FIRST}]*`, 'gv');
/** No English word is longer than these. */
const ENGLISH = /^[a-z0-9]{4,255}$/;

/**
 * The words of a text as `response_match_score` counts them: of any script, lower case, English ones as stems.
 * @throws {MetricError} for a longer text than is compared.
 */
export function toWords(text: string): string[] {
  const plain = text.length > MAX_CHARACTERS ? text : text.normalize('NFKC').toLowerCase();
  if (plain.length > MAX_CHARACTERS) {
    throw new MetricError(`A response of over ${MAX_CHARACTERS} characters is not compared by its words.`);
  }
  return (plain.match(WORD) ?? []).map((each) => (ENGLISH.test(each) ? stem(each) : each));
}

/** How much two texts agree, each from 0 to 1. */
export interface Overlap {
  /** Share of the actual words that the reference has. */
  precision: number;
  /** Share of the reference's words that were said. */
  recall: number;
  fmeasure: number;
}

/** ROUGE-1: the words that two texts share, counted as often as both have them. Two empty texts score 0. */
export function rouge1(actual: string, reference: string): Overlap {
  const [said, wanted] = [toWords(actual), toWords(reference)];
  const left = new Map<string, number>();
  for (const word of wanted) left.set(word, (left.get(word) ?? 0) + 1);
  let hits = 0;
  for (const word of said) {
    const count = left.get(word) ?? 0;
    if (count > 0) hits += 1;
    left.set(word, count - 1);
  }
  const precision = hits / Math.max(1, said.length);
  const recall = hits / Math.max(1, wanted.length);
  const fmeasure = hits === 0 ? 0 : (2 * precision * recall) / (precision + recall);
  return { precision, recall, fmeasure };
}

/** `response_match_score` of one turn: ROUGE-1 F of the texts of two final responses, thoughts included. */
export const responseMatch = (actual: Content | null | undefined, expected: Content | null | undefined): number =>
  rouge1(getText(actual), getText(expected)).fmeasure;
