import type { JsonLimits } from './limits.ts';

/** Measures a JSON text without parsing or recursion: ten million brackets must cost neither the stack nor memory. */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
/** `[` and `{` differ in this bit only, and so do `]` and `}`, and `E` and `e`. */
const CASE_BIT = 0x20;
/** Digits that can at most make an integer below 1.8e308, the largest double. */
const SAFE_DIGITS = 308;

/**
 * Counts levels, values and members of JSON that may come in pieces, and looks for numbers that `JSON.parse` would turn
 * into `Infinity` or 0. It is faster than a walk over the parsed value. Commas and brackets count the values.
 */
export class JsonScan {
  /** The exceeded bound, at which the scan stops. */
  excess: 'depth' | 'values' | undefined;
  /** True if a number may be too large or small for a double: it has an exponent or a very long run of digits. */
  mayOverflow = false;
  /** Members of all objects, duplicates included. */
  members = 0;
  /** Elements or members of the outermost value. */
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
        // A bracket that closes nothing must not hide a level behind it.
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

  /** Ends a line between two pieces, and with it an open text. */
  endLine(): void {
    this.#isInText = false;
    this.#isEscaped = false;
  }

  /** Returns the place behind the text that `from` is in, or the end if it continues in the next piece. */
  #endOfText(bytes: Uint8Array, from: number): number {
    let at = from;
    for (; at < bytes.length && bytes[at] !== QUOTE; at++) if (bytes[at] === BACKSLASH) at++;
    this.#isInText = at >= bytes.length;
    this.#isEscaped = at > bytes.length;
    return at + 1;
  }
}
