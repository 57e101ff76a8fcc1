import { isUtf8 } from 'node:buffer';
import { JsonScan } from './json-scan.ts';
import type { JsonObject } from './content.ts';
import { isExactInteger, parseExactJson } from './exact-json.ts';
import { INPUT_LIMITS, type JsonLimits } from './limits.ts';

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
/** Size in bytes from which JSON texts are parsed one at a time. */
export const LARGE_BYTES = 65_536;

/** JSON that was refused. `message` is the end of a sentence, as in "The body is not UTF-8". */
export class JsonRefusedError extends Error {
  readonly kind: 'encoding' | 'depth' | 'values' | 'syntax' | 'inexact';
  /** Object keys and array indexes that lead to the inexact value. */
  readonly path: (string | number)[];
  constructor(kind: JsonRefusedError['kind'], message: string, path: JsonRefusedError['path'] = []) {
    super(message);
    this.kind = kind;
    this.path = path;
  }
}

/**
 * Parses JSON from outside, large integers exactly. Refuses bytes that are not UTF-8, then (before parsing) too many
 * levels or values, then text that is not JSON, and with `exact` values that would be written differently from how they
 * were sent.
 * @throws {JsonRefusedError}
 */
export function parseJson(sent: Buffer, limits: JsonLimits, { exact }: { exact: boolean }): unknown {
  if (!isUtf8(sent)) throw new JsonRefusedError('encoding', 'is not UTF-8');
  const bytes = sent.subarray(0, 3).equals(BYTE_ORDER_MARK) ? sent.subarray(3) : sent;
  const scan = new JsonScan(limits).add(bytes);
  if (scan.excess === 'depth') throw new JsonRefusedError('depth', `has more than ${limits.depth} levels of nesting`);
  if (scan.excess) throw new JsonRefusedError('values', `has more than ${limits.values} values`);
  const text = bytes.toString();
  const value = parse(text, exact);
  // The whole text is searched for the inexact value only if there is a sign of one.
  const mayBeInexact = exact && (scan.mayOverflow || countMembers(value) !== scan.members);
  const inexact = mayBeInexact ? findInexact(text) : undefined;
  if (inexact) throw new JsonRefusedError('inexact', inexact.reason, inexact.path);
  return value;
}

/** Parses the arguments of a tool call; `undefined` if they are not a JSON object. */
export function parseArguments(input: string): JsonObject | undefined {
  if (input.trim() === '') return {};
  try {
    const args = parseJson(Buffer.from(input), INPUT_LIMITS.argumentsOfACall, { exact: false });
    return typeof args === 'object' && args !== null && !Array.isArray(args) && !isExactInteger(args)
      ? (args as JsonObject)
      : undefined;
  } catch {
    return undefined;
  }
}

function parse(text: string, exact: boolean): unknown {
  try {
    return parseExactJson(text);
  } catch {
    // The text may have an integer with too many digits. With `exact`, `findInexact` reports where it is.
    if (exact) return parseLoosely(text);
    throw new JsonRefusedError('syntax', 'is not valid JSON');
  }
}

function parseLoosely(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new JsonRefusedError('syntax', 'is not valid JSON');
  }
}

/**
 * `JSON.parse` loses all but the last of duplicate members, the sign of a negative zero, and numbers outside the range
 * of a 64-bit float. A number with a point or an exponent may be rounded to the nearest float, as by Python's `json`;
 * an integer may not.
 */

/** The first value or member that parsing would change: its path, and the reason for the client. */
interface Inexact {
  path: (string | number)[];
  reason: string;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const NUMBER = /-?\d[\d.eE+-]*/y;
const WORD_OR_SPACE = /[^"\d{}[\],:-]+/y;

/** An array or object that is not closed yet. */
interface Level {
  /** Names of the object's members so far; `undefined` for an array. */
  keys: Set<string> | undefined;
  step: string | number;
  isKeyNext: boolean;
}

/**
 * Finds the first value or member that `JSON.parse` would change, without recursion. Takes as long as parsing.
 * @param text JSON text that `JSON.parse` accepts
 */
function findInexact(text: string): Inexact | undefined {
  const levels: Level[] = [];
  const found = (reason: string): Inexact => ({ path: levels.map(({ step }) => step), reason });
  for (let at = 0; at < text.length; ) {
    const char = text.charAt(at);
    const level = levels.at(-1);
    if (char === '"') {
      const end = endOfString(text, at);
      if (level?.isKeyNext && !isNewKey(level, JSON.parse(text.slice(at, end)) as string))
        return found('the member is there twice');
      at = end;
    } else if (char === '-' || (char >= '0' && char <= '9')) {
      const token = tokenAt(NUMBER, text, at);
      const reason = whyInexact(token);
      if (reason !== undefined) return found(reason);
      at += token.length;
    } else {
      at += openOrClose(levels, char) ? 1 : tokenAt(WORD_OR_SPACE, text, at).length;
    }
  }
  return undefined;
}

/** Processes one bracket, comma or colon; returns false for any other character. */
function openOrClose(levels: Level[], char: string): boolean {
  const level = levels.at(-1);
  if (char === '{') levels.push({ keys: new Set(), step: '', isKeyNext: true });
  else if (char === '[') levels.push({ keys: undefined, step: 0, isKeyNext: false });
  else if (char === '}' || char === ']') levels.pop();
  else if (char === ',' && level) {
    level.isKeyNext = level.keys !== undefined;
    if (typeof level.step === 'number') level.step += 1;
  } else return char === ':';
  return true;
}

function isNewKey(level: Level, key: string): boolean {
  level.step = key;
  level.isKeyNext = false;
  const isNew = level.keys?.has(key) === false;
  level.keys?.add(key);
  return isNew;
}

function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (let code = text.charCodeAt(at); code !== QUOTE; code = text.charCodeAt(at)) at += code === BACKSLASH ? 2 : 1;
  return at + 1;
}

function tokenAt(pattern: RegExp, text: string, at: number): string {
  pattern.lastIndex = at;
  const [token] = pattern.exec(text) ?? [];
  if (token === undefined) throw new TypeError('findInexact takes JSON only');
  return token;
}

function whyInexact(token: string): string | undefined {
  const value = Number(token);
  if (!Number.isFinite(value)) return 'the number is too large for a 64-bit float';
  if (value === 0) {
    if (/^[^eE]*[1-9]/.test(token)) return 'the number is too small for a 64-bit float';
    return token.startsWith('-') ? 'a negative zero is not kept: send 0' : undefined;
  }
  return undefined;
}

/**
 * Counts the members of all objects in a parsed value; a text with more colons has duplicate members. Returns NaN if
 * parsing may have changed a number. Recursive, so the value's depth must be limited.
 */
function countMembers(value: unknown): number {
  if (typeof value === 'number') return Object.is(value, -0) || !Number.isFinite(value) ? Number.NaN : 0;
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return 0;
  let count = 0;
  if (Array.isArray(value)) {
    for (const element of value) count += countMembers(element);
    return count;
  }
  for (const key of Object.keys(value)) count += 1 + countMembers((value as Record<string, unknown>)[key]);
  return count;
}
