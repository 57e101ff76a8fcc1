/** The first error of a text that is not JSON, in the words of Python's `json` up to 3.12, as FastAPI answers it. */

/** The first error of a text: Python's sentence, and its place in characters of Unicode. */
export interface JsonError {
  error: string;
  place: number;
}

const BLANKS = /[ \t\n\r]*/y;
const SCALAR = /null|true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING_STOP = /["\\\u0000-\u001f]/g;
/** Several at once, which is faster; Python wants something behind the digits of the last one. */
const ESCAPES = /(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4}(?=[^]))){1,256}/y;
const NAME = 'Expecting property name enclosed in double quotes';

/**
 * Finds the first error of a text that `JSON.parse` has refused: `NaN` and the like, which Python takes, count as one.
 * One pass; it recurses, so the depth of the text must be bounded.
 */
export function findJsonError(text: string): JsonError {
  try {
    return fail('Extra data', skip(BLANKS, text, readValue(text, skip(BLANKS, text, 0))));
  } catch (error) {
    const { message, cause } = error as Error;
    if (typeof cause !== 'number') throw error;
    return { error: message, place: countCharacters(text, cause) };
  }
}

/** Ends the parsing at the first error. */
function fail(error: string, at: number): never {
  throw new Error(error, { cause: at });
}

/** Returns the place behind the value that begins at a place. */
function readValue(text: string, start: number): number {
  const opening = text.charAt(start);
  if (opening === '"') return readString(text, start);
  if (opening === '{' || opening === '[') return readMembers(text, start, opening === '{');
  const end = skip(SCALAR, text, start);
  if (end === start) fail('Expecting value', start);
  return end;
}

/** Returns the place behind an object or array. */
function readMembers(text: string, start: number, isObject: boolean): number {
  const closing = isObject ? '}' : ']';
  let at = skip(BLANKS, text, start + 1);
  if (text.charAt(at) === closing) return at + 1;
  for (;;) {
    at = skip(BLANKS, text, readValue(text, isObject ? readName(text, at) : at));
    if (text.charAt(at) === closing) return at + 1;
    if (text.charAt(at) !== ',') fail("Expecting ',' delimiter", at);
    at = skip(BLANKS, text, at + 1);
  }
}

/** Returns the place of the value that belongs to the name at a place. */
function readName(text: string, start: number): number {
  if (text.charAt(start) !== '"') fail(NAME, start);
  const at = skip(BLANKS, text, readString(text, start));
  if (text.charAt(at) !== ':') fail("Expecting ':' delimiter", at);
  return skip(BLANKS, text, at + 1);
}

function readString(text: string, start: number): number {
  for (let at = start + 1; ; ) {
    STRING_STOP.lastIndex = at;
    const stop = STRING_STOP.exec(text);
    if (!stop || (stop[0] === '\\' && stop.index === text.length - 1)) {
      fail('Unterminated string starting at', start);
    }
    if (stop[0] === '"') return stop.index + 1;
    if (stop[0] !== '\\') fail('Invalid control character at', stop.index);
    at = skip(ESCAPES, text, stop.index);
    if (at > stop.index) continue;
    const isUnicode = text.charAt(at + 1) === 'u';
    fail(isUnicode ? String.raw`Invalid \uXXXX escape` : String.raw`Invalid \escape`, at + Number(isUnicode));
  }
}

/** Returns the place behind what matches at a place; that place where nothing does. */
function skip(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}

function countCharacters(text: string, end: number): number {
  let count = 0;
  for (let at = 0; at < end; at++) if ((text.charCodeAt(at) & 0xfc00) !== 0xdc00) count += 1;
  return count;
}
