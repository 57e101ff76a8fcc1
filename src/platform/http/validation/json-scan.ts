/** Measures a JSON text without parsing or recursion: ten million brackets must cost neither the stack nor memory. */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
/** `[` and `{` differ in this bit only, and so do `]` and `}`, and `E` and `e`. */
const CASE_BIT = 0x20;
/** Digits that can at most make an integer below 1.8e308, the largest double. */
const SAFE_DIGITS = 308;

/** Limits of a JSON text; values are counted by their commas and opening brackets. */
export interface JsonLimits {
  /** Levels of arrays and objects. */
  maxDepth: number;
  maxValues: number;
}

/** The result of one pass over the bytes of a JSON text. */
export interface JsonScan {
  /** True when more levels are open at once than allowed. */
  isTooDeep: boolean;
  /** True when there are more values than allowed: members, elements, and the arrays and objects that hold them. */
  hasTooMany: boolean;
  /** True when a number may be too large or small for a double: it has an exponent or a very long run of digits. */
  mayOverflow: boolean;
  /** Members of all objects, also those that are there twice. */
  members: number;
}

/**
 * Looks for nesting, many values, members, and numbers that `JSON.parse` would turn into `Infinity` or 0, in any bytes;
 * faster than a walk over the parsed value.
 */
export function scanJson(bytes: Uint8Array, { maxDepth, maxValues }: JsonLimits): JsonScan {
  let depth = 0;
  let values = 1;
  let digits = 0;
  let mayOverflow = false;
  let members = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte >= 0x30 && byte <= 0x39) {
      if (++digits > SAFE_DIGITS) mayOverflow = true;
      continue;
    }
    if (byte === QUOTE) {
      for (at++; at < bytes.length && bytes[at] !== QUOTE; at++) if (bytes[at] === BACKSLASH) at++;
    } else if ((byte | CASE_BIT) === 0x7b) {
      values++;
      if (++depth > maxDepth) return { isTooDeep: true, hasTooMany: false, mayOverflow, members };
    } else if ((byte | CASE_BIT) === 0x7d) {
      depth--;
    } else if (byte === COLON) {
      members++;
    } else if (byte === COMMA) {
      if (++values > maxValues) return { isTooDeep: false, hasTooMany: true, mayOverflow, members };
    } else if ((byte | CASE_BIT) === 0x65 && digits > 0) {
      mayOverflow = true;
    }
    digits = 0;
  }
  return { isTooDeep: false, hasTooMany: values > maxValues, mayOverflow, members };
}
