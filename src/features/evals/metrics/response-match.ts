import type { Content } from '../../../core/content.ts';
import { stem } from './stem.ts';
import { getText } from './turn.ts';

/** Scripts without blanks between words: of these each character is a word. */
const IDEOGRAPH = /[\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af]/;
/** Scripts in which each character is a word together with its marks. */
const SYLLABLE = /[\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f]/;

/** The words of a text as `response_match_score` counts them: of any script, lower case, English ones as stems. */
export function toWords(text: string): string[] {
  const words: string[] = [];
  let word = '';
  const finish = () => {
    if (word) words.push(word);
    word = '';
  };
  for (const character of text.normalize('NFKC').toLowerCase()) {
    const isMark = /\p{M}/u.test(character);
    const isIdeograph = IDEOGRAPH.test(character);
    if (isIdeograph || (SYLLABLE.test(character) && !isMark) || !/[\p{L}\p{N}\p{M}]/u.test(character)) finish();
    if (isIdeograph || SYLLABLE.test(character) || /[\p{L}\p{N}\p{M}]/u.test(character)) word += character;
    if (isIdeograph) finish();
  }
  finish();
  return words.map((each) => (/^[a-z0-9]{4,}$/.test(each) ? stem(each) : each));
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
