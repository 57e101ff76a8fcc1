import type { Content } from '../../../core/content.ts';
import { MetricError } from './status.ts';
import { getText } from './turn.ts';

/** Maximum number of characters of a compared text. The comparison of two texts of this size takes 50 ms. */
const MAX_CHARACTERS = 65_536;

/** Characters that each count as a word: those of Chinese, Japanese and Korean, which are written without blanks. */
const ALONE = String.raw`[\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af]`;
/** Characters that each count as a word together with their combining marks: those of Thai, Lao, Khmer and Burmese. */
const FIRST = String.raw`[[\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f]--\p{M}]`;
const LETTER = String.raw`[[\p{L}\p{N}\p{M}]--${ALONE}]`;
const WORD = new RegExp(`${ALONE}|(?:${FIRST}|${LETTER})[${LETTER}--${FIRST}]*`, 'gv');
/** Matches the words that are stemmed. Longer texts are no English words. */
const ENGLISH = /^[a-z0-9]{4,255}$/;

/** Words for `response_match_score`: any script, lower case, English stemmed. @throws {MetricError} for a long text */
export function toWords(text: string): string[] {
  const plain = text.length > MAX_CHARACTERS ? text : text.normalize('NFKC').toLowerCase();
  if (plain.length > MAX_CHARACTERS)
    throw new MetricError(`A response of over ${MAX_CHARACTERS} characters is not compared by its words.`);
  return (plain.match(WORD) ?? []).map((each) => (ENGLISH.test(each) ? stem(each) : each));
}

/** Agreement of two texts. Each value is from 0 to 1. */
export interface Overlap {
  /** Share of the actual words that the reference contains. */
  precision: number;
  /** Share of the reference's words that the actual text contains. */
  recall: number;
  fmeasure: number;
}

/** Computes ROUGE-1. A word that occurs several times in both texts counts several times. Two empty texts score 0. */
export function rouge1(actual: string, reference: string): Overlap {
  const actualWords = toWords(actual);
  const referenceWords = toWords(reference);
  const unmatched = new Map<string, number>();
  for (const word of referenceWords) unmatched.set(word, (unmatched.get(word) ?? 0) + 1);
  let hits = 0;
  for (const word of actualWords) {
    const count = unmatched.get(word) ?? 0;
    if (count > 0) hits += 1;
    unmatched.set(word, count - 1);
  }
  const precision = hits / Math.max(1, actualWords.length);
  const recall = hits / Math.max(1, referenceWords.length);
  const fmeasure = hits === 0 ? 0 : (2 * precision * recall) / (precision + recall);
  return { precision, recall, fmeasure };
}

/** The metric `response_match_score`: the F-measure of ROUGE-1 of the two final responses, thoughts included. */
export const responseMatch = (actual: Content | null | undefined, expected: Content | null | undefined): number =>
  rouge1(getText(actual), getText(expected)).fmeasure;

/**
 * Stems of words that are exceptions of the stemmer. The stemmer is Porter's of 1980 in the variant of the Python
 * package NLTK, because ADK computes `response_match_score` with it. No npm package has this variant.
 */
const IRREGULAR = new Map([
  ...['sky', 'news', 'inning', 'outing', 'canning', 'howe', 'proceed', 'exceed', 'succeed'].map(
    (word): [string, string] => [word, word],
  ),
  ['skies', 'sky'],
  ['dying', 'die'],
  ['lying', 'lie'],
  ['tying', 'tie'],
  ['innings', 'inning'],
  ['outings', 'outing'],
  ['cannings', 'canning'],
]);

/** Maps letters to `c` and `v`; a `y` after a consonant counts as a vowel. */
function kinds(word: string): string {
  let result = '';
  for (const letter of word) {
    const isVowel = 'aeiou'.includes(letter) || (letter === 'y' && result.endsWith('c'));
    result += isVowel ? 'v' : 'c';
  }
  return result;
}

/** Porter's measure m: the number of times that a vowel is followed by a consonant. */
const measure = (word: string) => kinds(word).split('vc').length - 1;
/** True for an end of consonant, vowel, consonant but w, x or y; in NLTK also for a word of vowel and consonant. */
const endsShort = (word: string) => (kinds(word).endsWith('cvc') && !/[wxy]$/.test(word)) || kinds(word) === 'vc';
const endsDouble = (word: string) => /(.)\1$/.test(word) && kinds(word).endsWith('c');

type Rule = [suffix: string, replacement: string];

/** Applies the first rule whose suffix matches. If that rule rejects the stem, the word stays unchanged. */
function replaceFirst(word: string, rules: Rule[], takes: (before: string, suffix: string) => boolean): string {
  const rule = rules.find(([suffix]) => word.endsWith(suffix));
  if (!rule) return word;
  const before = word.slice(0, word.length - rule[0].length);
  return takes(before, rule[0]) ? before + rule[1] : word;
}

const rules = (text: string): Rule[] =>
  text.split(' ').map((pair) => {
    const [suffix = '', replacement = ''] = pair.split('>');
    return [suffix, replacement];
  });
const PLURALS = rules('sses>ss ies>i ss>ss s>');
const STEP_2 = rules(
  'ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize ' +
    'ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble fulli>ful logi>log',
);
const STEP_3 = rules('icate>ic ative> alize>al iciti>ic ical>ic ful> ness>');
const STEP_4 = rules(
  'al> ance> ence> er> ic> able> ible> ant> ement> ment> ent> ion> ou> ism> ate> iti> ous> ive> ize>',
);

function pastAndGerund(word: string): string {
  if (word.endsWith('ied')) return word.slice(0, word.length === 4 ? -1 : -2);
  if (word.endsWith('eed')) return measure(word.slice(0, -3)) > 0 ? word.slice(0, -1) : word;
  const before = /^(.*)(?:ed|ing)$/.exec(word)?.[1];
  if (before === undefined || !kinds(before).includes('v')) return word;
  if (/(?:at|bl|iz)$/.test(before)) return `${before}e`;
  if (endsDouble(before)) return /[lsz]$/.test(before) ? before : before.slice(0, -1);
  return measure(before) === 1 && endsShort(before) ? `${before}e` : before;
}

function step2(word: string): string {
  if (word.endsWith('alli') && measure(word.slice(0, -4)) > 0) return step2(word.slice(0, -2));
  return replaceFirst(word, STEP_2, (before, suffix) => measure(suffix === 'logi' ? `${before}l` : before) > 0);
}

function finalLetters(word: string): string {
  const before = word.slice(0, -1);
  const dropsE = word.endsWith('e') && (measure(before) > 1 || (measure(before) === 1 && !endsShort(before)));
  const result = dropsE ? before : word;
  return result.endsWith('ll') && measure(result.slice(0, -1)) > 1 ? result.slice(0, -1) : result;
}

/** Stems a lower-case word of ASCII letters and digits; words of one or two letters stay unchanged. */
function stem(word: string): string {
  const irregular = IRREGULAR.get(word);
  if (irregular !== undefined || word.length < 3) return irregular ?? word;
  let result = /^.ies$/.test(word) ? word.slice(0, -1) : replaceFirst(word, PLURALS, () => true);
  result = pastAndGerund(result);
  if (/..y$/.test(result) && kinds(result.slice(0, -1)).endsWith('c')) result = `${result.slice(0, -1)}i`;
  result = replaceFirst(step2(result), STEP_3, (before) => measure(before) > 0);
  result = replaceFirst(
    result,
    STEP_4,
    (before, suffix) => measure(before) > 1 && (suffix !== 'ion' || /[st]$/.test(before)),
  );
  return finalLetters(result);
}
