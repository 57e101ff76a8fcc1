import { isUtf8 } from 'node:buffer';
import { JsonScan } from './json-scan.ts';
import type { JsonObject } from './content.ts';
import { isExactInteger, parseExactJson } from './exact-json.ts';
import { INPUT_LIMITS, type JsonLimits } from './limits.ts';

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
/** Bytes from which a text waits for its turn to be parsed. */
export const LARGE_BYTES = 65_536;

/** The message is the end of a sentence, as in "The body is not UTF-8". */
export class JsonRefusedError extends Error {
  readonly kind: 'encoding' | 'depth' | 'values' | 'syntax' | 'inexact';
  /** Keys that lead to the inexact value. */
  readonly path: (string | number)[];
  constructor(kind: JsonRefusedError['kind'], message: string, path: JsonRefusedError['path'] = []) {
    super(message);
    this.kind = kind;
    this.path = path;
  }
}

/**
 * Parses JSON that came from outside, large integers exactly. Refuses, in this order: bytes that are not UTF-8, too
 * many levels or values before anything is parsed, text that is not JSON and, if `exact`, values that would not be
 * written again as they were sent.
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
  // Every character is examined for the place of an inexact value only if there is a sign of one.
  const mayBeInexact = exact && (scan.mayOverflow || countMembers(value) !== scan.members);
  const inexact = mayBeInexact ? findInexact(text) : undefined;
  if (inexact) throw new JsonRefusedError('inexact', inexact.reason, inexact.path);
  return value;
}

/** Parses the arguments of a call; `undefined` if they are no JSON object. */
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
    // An integer of too many digits: an exact reader names its place.
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
 * The parts of a JSON text that `JSON.parse` loses: duplicate members (the last one wins), negative zeros (they become
 * 0 when they are written again), and numbers beyond the range of a 64-bit float. A number with a point or an exponent
 * is a float by its spelling, in Python's `json` too, and is rounded to the nearest one; an integer is kept.
 */

/** The first value or member of a JSON text that would change: its keys, and the reason for the client. */
interface Inexact {
  path: (string | number)[];
  reason: string;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const NUMBER = /-?\d[\d.eE+-]*/y;
const WORD_OR_SPACE = /[^"\d{}[\],:-]+/y;

/** An open array or object. */
interface Level {
  /** Members so far; `undefined` for an array. */
  keys: Set<string> | undefined;
  step: string | number;
  isKeyNext: boolean;
}

/**
 * Finds the first value or member that `JSON.parse` would change, in one pass without recursion; it takes as long as
 * parsing.
 * @param text JSON that `JSON.parse` has taken already
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

/** Takes one sign into `levels`; false for a word or blanks. */
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
 * Counts the members of all objects in a parsed value; NaN if parsing may have changed a number. Fewer members than
 * colons outside of strings mean duplicates. Recurses, so the depth must be bounded.
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
