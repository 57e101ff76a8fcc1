import { MAX_IDENTIFIER_BYTES, MAX_IDENTIFIER_LENGTH } from '../sessions/session.ts';
import { pathParameters } from './document.ts';
import type { ValidationDetail } from './error-bodies.ts';
import type { Operation, QueryParameter } from './operation.ts';
import { valueError } from './request-errors.ts';

/**
 * Path and query parameters arrive as text. They are read here by pydantic's rules and not by a coercing validator: Ajv takes
 * `1e2` for 100, and express-openapi-validator hands on `0` as text (stack notes §5, traps 3 and 4).
 */

/** Words that pydantic reads as a boolean, in lower case; any case is accepted. */
export const TRUE_WORDS: ReadonlySet<string> = new Set(['true', 't', 'yes', 'y', 'on', '1']);
export const FALSE_WORDS: ReadonlySet<string> = new Set(['false', 'f', 'no', 'n', 'off', '0']);

const INTEGER_TEXT = /^[+-]?\d+(?:_\d+)*(?:\.0+)?$/;
const NUMBER_TEXT = /^[+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
/** Python refuses to read more digits than this at once (CVE-2020-10735). */
const MAX_INTEGER_DIGITS = 4300;
const INT32_MAX = 2 ** 31 - 1;

/** True for text that pydantic reads as an integer: `5`, ` 7 `, `+7`, `-1`, `1.0`, `1_000`; not `1.5`, `1e2`, `0x1`, ``. */
export const isIntegerText = (text: string): boolean => INTEGER_TEXT.test(text.trim());

/** True for text that pydantic reads as a finite number. */
export const isNumberText = (text: string): boolean =>
  NUMBER_TEXT.test(text.trim()) && Number.isFinite(Number(text.replaceAll('_', '')));

/** Parameters of one request: what was read, and what is wrong with the rest, in the order of the operation. */
export interface Parameters {
  path: Record<string, string>;
  /** `undefined` for a well-formed integer outside PostgreSQL's `integer`. */
  integers: Record<string, number | undefined>;
  /** Known parameters coerced by their type; unknown ones are left out, as FastAPI does. */
  query: Record<string, unknown>;
  details: ValidationDetail[];
}

/** Reads what an operation declares out of decoded path segments and a parsed query string. */
export function readParameters(
  operation: Operation,
  path: Record<string, unknown>,
  query: Record<string, unknown>,
): Parameters {
  const read: Parameters = { path: {}, integers: {}, query: {}, details: [] };
  for (const name of pathParameters(operation.path)) {
    const text = String(path[name]);
    read.path[name] = text;
    const integer = operation.integerPath?.includes(name) ?? false;
    const detail = integer ? integerRefusal(['path', name], text) : identifierRefusal(name, text);
    if (detail) read.details.push(detail);
    else if (integer) read.integers[name] = toInt32(text);
  }
  for (const parameter of operation.query ?? []) {
    const sent = query[parameter.name];
    if (sent === undefined) continue;
    readQuery(parameter, String(Array.isArray(sent) ? sent.at(-1) : sent), read);
  }
  return read;
}

function toInt32(text: string): number | undefined {
  const value = toNumber(text);
  return Math.abs(value) <= INT32_MAX ? value : undefined;
}

const toNumber = (text: string) => Number(text.replaceAll('_', ''));

function integerRefusal(loc: string[], text: string): ValidationDetail | undefined {
  const msg = 'Input should be a valid integer, unable to parse string as an integer';
  if (!isIntegerText(text)) return { type: 'int_parsing', loc, msg, input: text };
  if (text.length <= MAX_INTEGER_DIGITS) return undefined;
  const tooLong = 'Unable to parse input string as an integer, exceeded maximum size';
  return { type: 'int_parsing_size', loc, msg: tooLong, input: text };
}

/** Identifiers become keys of tables: PostgreSQL cannot store NUL, and an index row has a size limit (see `session.ts`). */
function identifierRefusal(name: string, text: string): ValidationDetail | undefined {
  const loc = ['path', name];
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f]/.test(text)) return valueError(loc, 'control characters are not allowed', text);
  if (text.length > MAX_IDENTIFIER_LENGTH && [...text].length > MAX_IDENTIFIER_LENGTH) {
    const msg = `String should have at most ${MAX_IDENTIFIER_LENGTH} characters`;
    return { type: 'string_too_long', loc, msg, input: text, ctx: { max_length: MAX_IDENTIFIER_LENGTH } };
  }
  if (Buffer.byteLength(text) <= MAX_IDENTIFIER_BYTES) return undefined;
  return valueError(loc, `at most ${MAX_IDENTIFIER_BYTES} bytes of UTF-8 are allowed`, text);
}

function readQuery({ name, schema }: QueryParameter, text: string, read: Parameters): void {
  const loc = ['query', name];
  const refuse = (detail: ValidationDetail | undefined) => (detail ? read.details.push(detail) > 0 : false);
  if (schema.type === 'string') {
    read.query[name] = text;
  } else if (schema.type === 'integer') {
    if (!refuse(integerRefusal(loc, text))) read.query[name] = toNumber(text);
  } else if (schema.type === 'number') {
    const msg = 'Input should be a valid number, unable to parse string as a number';
    if (!refuse(isNumberText(text) ? undefined : { type: 'float_parsing', loc, msg, input: text })) {
      read.query[name] = toNumber(text);
    }
  } else {
    const word = text.toLowerCase();
    const isWord = TRUE_WORDS.has(word) || FALSE_WORDS.has(word);
    const msg = 'Input should be a valid boolean, unable to interpret input';
    if (!refuse(isWord ? undefined : { type: 'bool_parsing', loc, msg, input: text })) {
      read.query[name] = TRUE_WORDS.has(word);
    }
  }
}
