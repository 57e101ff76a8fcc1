/**
 * Thoughts in tags: servers of open models that do not part them from the answer send `<think>We add.</think>4`. Only
 * what an answer begins with is a thought; a text that speaks of such tags stays as it is.
 */

/** A piece of an answer. */
interface Piece {
  text: string;
  thought?: true;
}

const TAGS = ['think', 'thinking', 'thought', 'reasoning'];
/** What opens a thought, with what closes it. */
const CLOSINGS = new Map([
  ...TAGS.map((tag): [string, string] => [`<${tag}>`, `</${tag}>`]),
  ['[think]', '[/think]'] as const,
]);

/** Reads the text of one answer as it comes, also where a tag is cut. */
export class ThoughtTags {
  /** `start`: nothing but thoughts and blanks so far; `thought`: in a thought; `text`: in the answer itself. */
  #place: 'start' | 'thought' | 'text' = 'start';
  #held = '';
  /** The opening tag of the thought that is open, or was last. */
  opening = '';
  #hasThought = false;

  /** True where a thought has not been closed. */
  get isOpen(): boolean {
    return this.#place === 'thought';
  }

  /** Takes the next text; returns what is known to be thought or answer. */
  read(delta: string): Piece[] {
    if (this.#place === 'text') return delta === '' ? [] : [{ text: delta }];
    this.#held += delta;
    const pieces: Piece[] = [];
    while (this.#step(pieces));
    return pieces;
  }

  /** Returns what was held back. */
  end(): Piece[] {
    const text = this.#held;
    this.#held = '';
    if (text === '') return [];
    if (this.#place === 'thought') return [{ text, thought: true }];
    this.#place = 'text';
    return this.#hasThought && text.trim() === '' ? [] : [{ text }];
  }

  /** Returns true where there may be more to do. */
  #step(pieces: Piece[]): boolean {
    return this.#place === 'thought' ? this.#readThought(pieces) : this.#readStart(pieces);
  }

  #readStart(pieces: Piece[]): boolean {
    const said = this.#held.trimStart();
    if (said === '') return false;
    const lower = said.slice(0, 16).toLowerCase();
    const opening = [...CLOSINGS.keys()].find((tag) => lower.startsWith(tag));
    if (opening !== undefined) {
      this.#place = 'thought';
      this.opening = said.slice(0, opening.length);
      this.#hasThought = true;
      this.#held = said.slice(opening.length);
      return true;
    }
    if ([...CLOSINGS.keys()].some((tag) => tag.startsWith(lower))) return false;
    this.#place = 'text';
    // Blanks between a thought and its answer are of neither.
    pieces.push({ text: this.#hasThought ? said : this.#held });
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

/** How much of the end of a text may be the beginning of a tag. */
function overlap(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--)
    if (text.endsWith(tag.slice(0, length))) return length;
  return 0;
}

/**
 * Divides an answer whose thought is only closed: templates of some models open it in the prompt. The tag ends its
 * line, and nothing before it speaks of one.
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
