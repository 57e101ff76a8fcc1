import { getParts, type Content } from '../../core/content.ts';

/** A piece ends behind the first blank from this many characters on, … */
const PIECE_LENGTH = 16;
/** … or from so many for the first pieces of a text: who waits reads a first word or two as soon as they are there … */
const FIRST_LENGTHS = [6, 6];
/** … or after this many. */
const MAX_PIECE_LENGTH = 64;

/** A piece of the text of one event. */
export interface Piece {
  /** Its number within the event, from 1. */
  number: number;
  /** Which text of the event it is of, from 0: reasoning and answer are two. */
  part: number;
  isThought: boolean;
  text: string;
}

interface Text {
  isThought: boolean;
  text: string;
}

/**
 * Cuts the text of one event into pieces that depend on nothing but the text, however it came: a reader that counts
 * them goes on behind the last one it has, also when the event is whole.
 */
export class TextCutter {
  #texts: Text[] = [];
  /** The place of the next piece. */
  #part = 0;
  #at = 0;
  /** Its number within its text, from 0. */
  #inText = 0;
  #number = 0;

  /** Adds text of an event to come, and yields the pieces that nothing to come can change. */
  *add(content: Content | null | undefined): Generator<Piece> {
    this.#texts = join([...this.#texts, ...toTexts(content)]);
    yield* this.#cut(false);
  }

  /** True where all the text that came is a beginning of that of the whole event. */
  isBeginningOf(content: Content | null | undefined): boolean {
    const whole = join(toTexts(content));
    return this.#texts.every(({ isThought, text }, place) => {
      const other = whole[place];
      if (other?.isThought !== isThought) return false;
      return place < this.#texts.length - 1 ? other.text === text : other.text.startsWith(text);
    });
  }

  /** Takes the whole event, and yields the pieces that are left. */
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

/** Returns the texts of a whole event, by the `part` of their pieces. */
export const joinTexts = (content: Content | null | undefined): Text[] => join(toTexts(content));

const toTexts = (content: Content | null | undefined): Text[] =>
  getParts(content).flatMap(({ text, thought }) => (text ? [{ isThought: thought === true, text }] : []));

/** Joins neighbours of one kind: how an answer is split into parts differs between a stream and its whole event. */
function join(texts: readonly Text[]): Text[] {
  const joined: Text[] = [];
  for (const { isThought, text } of texts) {
    const last = joined.at(-1);
    if (last?.isThought === isThought) joined[joined.length - 1] = { isThought, text: last.text + text };
    else joined.push({ isThought, text });
  }
  return joined;
}

/** Finds where the piece ends that begins at a place; `undefined` where that depends on text to come. */
function findEnd(text: string, from: number, least: number): number | undefined {
  const limit = from + MAX_PIECE_LENGTH;
  for (let at = from + least - 1; at < limit && at < text.length; at += 1) {
    if (text[at] === ' ' || text[at] === '\n') return at + 1;
  }
  if (limit > text.length) return undefined;
  const isHalfPair = /[\uD800-\uDBFF]/.test(text.charAt(limit - 1));
  return isHalfPair ? limit - 1 : limit;
}
