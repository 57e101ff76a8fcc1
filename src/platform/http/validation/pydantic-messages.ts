import type { ValidationDetail } from '../operation/error-bodies.ts';

/**
 * The rules' names and words of pydantic (interface inventory §4.4), and how pydantic reads text: clients of FastAPI
 * services match on them. Compared with FastAPI 0.165 and pydantic 2.14 on 131 requests. We differ on purpose: a
 * body's text and booleans are never read as numbers, nor its text and numbers as booleans; `null` counts as no body;
 * of a body that is not JSON neither the place nor Python's words are given; media types other than JSON are 415.
 */

/** A rule's name, what it says and its figures. */
export type RuleMessage = Pick<ValidationDetail, 'type' | 'msg' | 'ctx'>;

const TRUE_TEXTS: ReadonlySet<string> = new Set(['true', 't', 'yes', 'y', 'on', '1']);
const FALSE_TEXTS: ReadonlySet<string> = new Set(['false', 'f', 'no', 'n', 'off', '0']);

const INTEGER_TEXT = /^[+-]?\d+(?:_\d+)*(?:\.0+)?$/;
const NUMBER_TEXT = /^[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$/;
/** Python refuses to read more digits than this at once (CVE-2020-10735). */
const MAX_INTEGER_DIGITS = 4300;

const INT_PARSING: RuleMessage = {
  type: 'int_parsing',
  msg: 'Input should be a valid integer, unable to parse string as an integer',
};
const INT_PARSING_SIZE: RuleMessage = {
  type: 'int_parsing_size',
  msg: 'Unable to parse input string as an integer, exceeded maximum size',
};
const FLOAT_PARSING: RuleMessage = {
  type: 'float_parsing',
  msg: 'Input should be a valid number, unable to parse string as a number',
};
const BOOL_PARSING: RuleMessage = {
  type: 'bool_parsing',
  msg: 'Input should be a valid boolean, unable to interpret input',
};

const toNumber = (text: string) => Number(text.replaceAll('_', ''));
const toInteger = (text: string) =>
  Math.max(Number.MIN_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, toNumber(text)));

/** What a parameter is read as. */
export type ScalarType = 'string' | 'integer' | 'number' | 'boolean';

/**
 * Reads text as pydantic does. Integers: `5`, ` 7 `, `+7`, `-1`, `1.0`, `1_000`, and not `1.5`, `1e2`, `0x1` or
 * nothing; those beyond 2^53 come out as the nearest integer that a double holds exactly. Booleans: true/false, t/f,
 * yes/no, y/n, on/off, 1/0 in any case.
 */
export function parseScalar(type: ScalarType, text: string): { value: unknown } | { refused: RuleMessage } {
  switch (type) {
    case 'string':
      return { value: text };
    case 'integer':
      if (!INTEGER_TEXT.test(text.trim())) return { refused: INT_PARSING };
      return text.length > MAX_INTEGER_DIGITS ? { refused: INT_PARSING_SIZE } : { value: toInteger(text) };
    case 'number': {
      const value = NUMBER_TEXT.test(text.trim()) ? toNumber(text) : Number.NaN;
      return Number.isFinite(value) ? { value } : { refused: FLOAT_PARSING };
    }
    default: {
      const word = text.toLowerCase();
      const isTrue = TRUE_TEXTS.has(word);
      return isTrue || FALSE_TEXTS.has(word) ? { value: isTrue } : { refused: BOOL_PARSING };
    }
  }
}

const TYPE_MESSAGES: Record<string, RuleMessage> = {
  string: { type: 'string_type', msg: 'Input should be a valid string' },
  int: { type: 'int_type', msg: 'Input should be a valid integer' },
  number: { type: 'float_type', msg: 'Input should be a valid number' },
  boolean: { type: 'bool_type', msg: 'Input should be a valid boolean' },
  object: {
    type: 'model_attributes_type',
    msg: 'Input should be a valid dictionary or object to extract fields from',
  },
  record: { type: 'dict_type', msg: 'Input should be a valid dictionary' },
  array: { type: 'list_type', msg: 'Input should be a valid list' },
  tuple: { type: 'tuple_type', msg: 'Input should be a valid tuple' },
  null: { type: 'none_required', msg: 'Input should be None' },
};

const INT_FROM_FLOAT: RuleMessage = {
  type: 'int_from_float',
  msg: 'Input should be a valid integer, got a number with a fractional part',
};

/** What zod expects → what pydantic would have tried to read a text as. */
const READ_AS: Record<string, ScalarType> = {
  int: 'integer',
  number: 'number',
  boolean: 'boolean',
};

/**
 * The message for a value of a wrong type. Text that pydantic would read as a number or boolean is refused here too:
 * bodies are JSON and have numbers and booleans of their own.
 */
export function typeMessage(expected: string, input: unknown): RuleMessage {
  if (expected === 'int' && typeof input === 'number') return INT_FROM_FLOAT;
  if (expected === 'boolean' && Number.isInteger(input) && input !== 0 && input !== 1) return BOOL_PARSING;
  const type = READ_AS[expected];
  const reading = type && typeof input === 'string' ? parseScalar(type, input) : undefined;
  if (reading && 'refused' in reading) return reading.refused;
  return (
    TYPE_MESSAGES[expected] ?? { type: 'value_error', msg: `Value error, expected ${expected}`, ctx: { error: {} } }
  );
}

/** The message for a value that is none of those allowed; `type` is `enum` or `literal_error`. */
export function choiceMessage(values: readonly unknown[], type: string): RuleMessage {
  const quoted = values.map((value) => (typeof value === 'string' ? `'${value}'` : String(value)));
  const last = quoted.at(-1) ?? '';
  const expected = quoted.length > 1 ? `${quoted.slice(0, -1).join(', ')} or ${last}` : last;
  return { type, msg: `Input should be ${expected}`, ctx: { expected } };
}

/** The message for a text that is not base64. */
export const bytesMessage = (error: string): RuleMessage => ({
  type: 'bytes_invalid_encoding',
  msg: `Data should be valid base64: ${error}`,
  ctx: { encoding: 'base64', encoding_error: error },
});

const counted = (count: unknown, word: string) => `${String(count)} ${word}${count === 1 ? '' : 's'}`;

/** The message for a value beyond a bound of length, count or size; `inclusive` bounds belong to what is allowed. */
export function rangeMessage(
  origin: string,
  side: 'small' | 'big',
  bound: unknown,
  inclusive: boolean,
  input: unknown,
): RuleMessage {
  const most = side === 'small' ? 'least' : 'most';
  const length = side === 'small' ? 'min_length' : 'max_length';
  if (origin === 'string') {
    const type = side === 'small' ? 'string_too_short' : 'string_too_long';
    return { type, msg: `String should have at ${most} ${counted(bound, 'character')}`, ctx: { [length]: bound } };
  }
  if (origin === 'array') {
    const actual = Array.isArray(input) ? input.length : 0;
    return {
      type: side === 'small' ? 'too_short' : 'too_long',
      msg: `List should have at ${most} ${counted(bound, 'item')} after validation, not ${actual}`,
      ctx: { field_type: 'List', [length]: bound, actual_length: actual },
    };
  }
  const than = side === 'small' ? 'greater than' : 'less than';
  const short = side === 'small' ? ['ge', 'gt'] : ['le', 'lt'];
  return {
    type: `${than.replace(' ', '_')}${inclusive ? '_equal' : ''}`,
    msg: `Input should be ${than}${inclusive ? ' or equal to' : ''} ${String(bound)}`,
    ctx: { [short[inclusive ? 0 : 1] as string]: bound },
  };
}
