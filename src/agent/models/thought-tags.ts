/**
 * Separates thoughts in tags from the answer, because some servers of open models send `<think>We add.</think>4` as one
 * text. Only tags at the start of the output count, so that a text that only mentions such tags is not split.
 */

interface Piece {
  text: string;
  thought?: true;
}

const TAGS = ['think', 'thinking', 'thought', 'reasoning'];
const CLOSINGS = new Map([
  ...TAGS.map((tag): [string, string] => [`<${tag}>`, `</${tag}>`]),
  ['[think]', '[/think]'] as const,
]);

/** Splits one model output into thoughts and answer while it streams, even if a tag is spread over several chunks. */
export class ThoughtTags {
  /** `start`: only thoughts and blanks have been read. `thought`: reading a thought. `text`: reading the answer. */
  #place: 'start' | 'thought' | 'text' = 'start';
  #held = '';
  /** Opening tag of the current or the last thought. */
  opening = '';
  #hasThought = false;

  get isOpen(): boolean {
    return this.#place === 'thought';
  }

  /** Adds output text; returns the pieces that are certainly thought or certainly answer, and holds back the rest. */
  read(delta: string): Piece[] {
    if (this.#place === 'text') return delta === '' ? [] : [{ text: delta }];
    this.#held += delta;
    const pieces: Piece[] = [];
    while (this.#step(pieces));
    return pieces;
  }

  end(): Piece[] {
    const text = this.#held;
    this.#held = '';
    if (text === '') return [];
    if (this.#place === 'thought') return [{ text, thought: true }];
    this.#place = 'text';
    return this.#hasThought && text.trim() === '' ? [] : [{ text }];
  }

  /** Processes the held-back text up to the next tag; true if more of it can be processed. */
  #step(pieces: Piece[]): boolean {
    return this.#place === 'thought' ? this.#readThought(pieces) : this.#readStart(pieces);
  }

  #readStart(pieces: Piece[]): boolean {
    const trimmed = this.#held.trimStart();
    if (trimmed === '') return false;
    const lower = trimmed.slice(0, 16).toLowerCase();
    const opening = [...CLOSINGS.keys()].find((tag) => lower.startsWith(tag));
    if (opening !== undefined) {
      this.#place = 'thought';
      this.opening = trimmed.slice(0, opening.length);
      this.#hasThought = true;
      this.#held = trimmed.slice(opening.length);
      return true;
    }
    if ([...CLOSINGS.keys()].some((tag) => tag.startsWith(lower))) return false;
    this.#place = 'text';
    // Blanks between a thought and the answer are removed.
    pieces.push({ text: this.#hasThought ? trimmed : this.#held });
    this.#held = '';
    return false;
  }

  #readThought(pieces: Piece[]): boolean {
    const closing = CLOSINGS.get(this.opening.toLowerCase()) ?? '';
    const lower = this.#held.toLowerCase();
    const end = lower.indexOf(closing);
    const cut = end >= 0 ? end : this.#held.length - overlap(lower, closing);
    if (cut > 0) pieces.push({ text: this.#held.slice(0, cut), thought: true });
    this.#held = this.#held.slice(end >= 0 ? end + closing.length : cut);
    if (end < 0) return false;
    this.#place = 'start';
    return this.#held !== '';
  }
}

/** Returns how many characters at the end of the text may be the beginning of the tag. */
function overlap(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--)
    if (text.endsWith(tag.slice(0, length))) return length;
  return 0;
}

/**
 * Splits an output with a closing thought tag but no opening one, because some chat templates put the opening tag into
 * the prompt. The closing tag must be at the end of its line, and the text before it must not mention such a tag.
 */
export function splitUnopened(text: string): { thought: string; text: string } | undefined {
  const [closing] = /<\/think(?:ing)?>(?=[^\S\n]*\n)/i.exec(text) ?? [];
  if (closing === undefined) return undefined;
  const at = text.indexOf(closing);
  const thought = text.slice(0, at);
  if (/<think(?:ing)?>|`/i.test(thought)) return undefined;
  const rest = text.slice(at + closing.length).trimStart();
  return rest === '' ? undefined : { thought, text: rest };
}
