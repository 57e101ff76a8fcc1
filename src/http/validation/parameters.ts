import { pathParameters } from '../operation/paths.ts';
import { MAX_IDENTIFIER_BYTES, MAX_IDENTIFIER_LENGTH } from '../../core/session.ts';
import type { ValidationDetail } from '../operation/error-bodies.ts';
import type { Operation, QueryParameter } from '../operation/operation.ts';
import { type Words, boundWords, readText } from './pydantic-messages.ts';
import { valueError } from '../operation/request-errors.ts';

/**
 * Path and query parameters arrive as text. They are read here by pydantic's rules and not by a coercing validator: Ajv takes
 * `1e2` for 100, and express-openapi-validator hands on `0` as text (stack notes §5, traps 3 and 4).
 */

const INT32_MAX = 2 ** 31 - 1;

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
    if (operation.integerPath?.includes(name)) readInteger(name, text, read);
    else read.details.push(...identifierRefusals(name, text));
  }
  for (const parameter of operation.query ?? []) {
    const sent = query[parameter.name];
    // Of a parameter that is repeated, the last one counts, as in FastAPI.
    if (sent !== undefined) readQuery(parameter, String(Array.isArray(sent) ? sent.at(-1) : sent), read);
  }
  return read;
}

function refuse(read: Parameters, loc: string[], { type, msg, ctx }: Words, input: string): void {
  read.details.push({ type, loc, msg, input, ...(ctx ? { ctx } : {}) });
}

function readInteger(name: string, text: string, read: Parameters): void {
  const reading = readText('integer', text);
  if ('refused' in reading) return refuse(read, ['path', name], reading.refused, text);
  const value = reading.value as number;
  read.integers[name] = Math.abs(value) <= INT32_MAX ? value : undefined;
}

/** Identifiers become keys of tables: PostgreSQL cannot store NUL, and an index row has a size limit (see `session.ts`). */
function identifierRefusals(name: string, text: string): ValidationDetail[] {
  const loc = ['path', name];
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f]/.test(text)) return [valueError(loc, 'control characters are not allowed', text)];
  if (text.length > MAX_IDENTIFIER_LENGTH && codePoints(text) > MAX_IDENTIFIER_LENGTH) {
    const { type, msg, ctx } = boundWords('string', 'big', MAX_IDENTIFIER_LENGTH, true, text);
    return [{ type, loc, msg, input: text, ...(ctx ? { ctx } : {}) }];
  }
  if (Buffer.byteLength(text) <= MAX_IDENTIFIER_BYTES) return [];
  return [valueError(loc, `at most ${MAX_IDENTIFIER_BYTES} bytes of UTF-8 are allowed`, text)];
}

/** pydantic and JSON Schema count code points, JavaScript UTF-16 units. */
const codePoints = (text: string) => Array.from(text).length;

function readQuery({ name, schema }: QueryParameter, text: string, read: Parameters): void {
  const loc = ['query', name];
  const reading = readText(schema.type, text);
  if ('refused' in reading) return refuse(read, loc, reading.refused, text);
  const { value } = reading;
  const { minimum, maximum } = schema;
  read.query[name] = value;
  if (typeof value !== 'number') return;
  if (minimum !== undefined && value < minimum)
    refuse(read, loc, boundWords('number', 'small', minimum, true, value), text);
  if (maximum !== undefined && value > maximum)
    refuse(read, loc, boundWords('number', 'big', maximum, true, value), text);
}
