import type { JsonLimits } from './limits.ts';

/** Measures JSON text without parsing and recursion, so that ten million brackets cost neither stack nor memory. */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
/** The bit in which `[` differs from `{`, `]` from `}`, and `E` from `e`. */
const CASE_BIT = 0x20;
/** Maximum number of digits with which every integer is below 1.8e308, the largest double. */
const SAFE_DIGITS = 308;

/**
 * Counts levels, values and members of JSON text, which may arrive in chunks, by its brackets, commas and colons:
 * faster than a walk over the parsed value. Detects numbers that `JSON.parse` would turn into `Infinity` or 0.
 */
export class JsonScan {
  /** The limit that the text exceeds; the scan stops there. */
  excess: 'depth' | 'values' | undefined;
  /** True if a number may be outside the range of a double, because it has an exponent or more than 308 digits. */
  mayOverflow = false;
  /** Number of members of all objects in the text, members with the same name included. */
  members = 0;
  /** Number of elements or members of the outermost array or object. */
  elements = 1;
  readonly #limits: JsonLimits;
  #depth = 0;
  #values = 1;
  #digits = 0;
  #isInText = false;
  #isEscaped = false;

  constructor(limits: JsonLimits) {
    this.#limits = limits;
  }

  add(bytes: Uint8Array): this {
    const { depth: maxDepth, values: maxValues } = this.#limits;
    let depth = this.#depth;
    let values = this.#values;
    let digits = this.#digits;
    if (this.excess) return this;
    for (let at = this.#isInText ? this.#endOfText(bytes, this.#isEscaped ? 1 : 0) : 0; at < bytes.length; at++) {
      const byte = bytes[at] as number;
      if (byte >= 0x30 && byte <= 0x39) {
        if (++digits > SAFE_DIGITS) this.mayOverflow = true;
        continue;
      }
      if (byte === QUOTE) at = this.#endOfText(bytes, at + 1) - 1;
      else if ((byte | CASE_BIT) === 0x7b) {
        values++;
        if (++depth > maxDepth) this.excess ??= 'depth';
      } else if ((byte | CASE_BIT) === 0x7d) {
        // A closing bracket without an opening one must not hide a level that follows it.
        if (depth > 0) depth--;
      } else if (byte === COLON) this.members++;
      else if (byte === COMMA) {
        values++;
        if (depth === 1) this.elements++;
      } else if ((byte | CASE_BIT) === 0x65 && digits > 0) this.mayOverflow = true;
      digits = 0;
      if (values > maxValues) this.excess ??= 'values';
      if (this.excess) break;
    }
    this.#depth = depth;
    this.#values = values;
    this.#digits = digits;
    return this;
  }

  /** Ends a line of JSON Lines between two chunks, and with it a string that was not closed. */
  endLine(): void {
    this.#isInText = false;
    this.#isEscaped = false;
  }

  /** Returns the index after the string's end; the index after the chunk if the string continues in the next chunk. */
  #endOfText(bytes: Uint8Array, from: number): number {
    let at = from;
    for (; at < bytes.length && bytes[at] !== QUOTE; at++) if (bytes[at] === BACKSLASH) at++;
    this.#isInText = at >= bytes.length;
    this.#isEscaped = at > bytes.length;
    return at + 1;
  }
}
