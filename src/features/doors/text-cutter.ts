import { getParts, type Content } from '../../core/content.ts';

/** Minimum length of a piece, in characters: the piece ends at the next blank. */
const PIECE_LENGTH = 16;
/** Minimum lengths of a text's first pieces: shorter, because a reader wants to see the first words early. */
const FIRST_LENGTHS = [6, 6];
/** Maximum length of a piece, in characters, for text without blanks. */
const MAX_PIECE_LENGTH = 64;

export interface Piece {
  /** Number of the piece within its event, from 1. */
  number: number;
  /** Index of the piece's text within its event, from 0: reasoning and answer are separate texts. */
  part: number;
  isThought: boolean;
  text: string;
}

interface Text {
  isThought: boolean;
  text: string;
}

/**
 * Cuts an event's text into pieces that depend only on the text, not on the chunks of the model. A reader can therefore
 * count pieces and resume after the last received one, even if the event is complete by then.
 */
export class TextCutter {
  #texts: Text[] = [];
  /** Index of the text, and offset within this text, at which the next piece starts. */
  #part = 0;
  #at = 0;
  /** Number of the next piece within its text, from 0. */
  #inText = 0;
  #number = 0;

  /** Adds partial text, and yields the pieces that later text cannot change. */
  *add(content: Content | null | undefined): Generator<Piece> {
    this.#texts = join([...this.#texts, ...toTexts(content)]);
    yield* this.#cut(false);
  }

  /** True if the text so far is a prefix of the complete event's text. */
  isBeginningOf(content: Content | null | undefined): boolean {
    const whole = join(toTexts(content));
    return this.#texts.every(({ isThought, text }, place) => {
      const other = whole[place];
      if (other?.isThought !== isThought) return false;
      return place < this.#texts.length - 1 ? other.text === text : other.text.startsWith(text);
    });
  }

  /** Takes the content of the complete event, and yields the remaining pieces. */
  *finish(content: Content | null | undefined): Generator<Piece> {
    this.#texts = join(toTexts(content));
    yield* this.#cut(true);
  }

  *#cut(isWhole: boolean): Generator<Piece> {
    for (; this.#part < this.#texts.length; this.#part += 1, this.#at = 0, this.#inText = 0) {
      const { isThought, text } = this.#texts[this.#part] as Text;
      const isComplete = isWhole || this.#part < this.#texts.length - 1;
      while (this.#at < text.length) {
        const least = FIRST_LENGTHS[this.#inText] ?? PIECE_LENGTH;
        const end = findEnd(text, this.#at, least) ?? (isComplete ? text.length : undefined);
        if (end === undefined) return;
        this.#number += 1;
        this.#inText += 1;
        yield { number: this.#number, part: this.#part, isThought, text: text.slice(this.#at, end) };
        this.#at = end;
      }
      if (!isComplete) return;
    }
  }
}

/** Returns the texts of a complete event. Each text's index equals the `part` of its pieces. */
export const joinTexts = (content: Content | null | undefined): Text[] => join(toTexts(content));

const toTexts = (content: Content | null | undefined): Text[] =>
  getParts(content).flatMap(({ text, thought }) => (text ? [{ isThought: thought === true, text }] : []));

/** Joins adjacent texts of the same kind, because a stream's parts differ from those of the complete event. */
function join(texts: readonly Text[]): Text[] {
  const result: Text[] = [];
  for (const { isThought, text } of texts) {
    const last = result.at(-1);
    if (last?.isThought === isThought) result[result.length - 1] = { isThought, text: last.text + text };
    else result.push({ isThought, text });
  }
  return result;
}

/** The end offset of the piece from `from`; `undefined` if the end depends on text that has not come yet. */
function findEnd(text: string, from: number, least: number): number | undefined {
  const limit = from + MAX_PIECE_LENGTH;
  for (let at = from + least - 1; at < limit && at < text.length; at += 1) {
    if (text[at] === ' ' || text[at] === '\n') return at + 1;
  }
  if (limit > text.length) return undefined;
  const isHalfPair = /[\uD800-\uDBFF]/.test(text.charAt(limit - 1));
  return isHalfPair ? limit - 1 : limit;
}
