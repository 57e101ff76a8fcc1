import type { ValidationDetail } from '../operation/request-errors.ts';
import { parseScalar, type ScalarRefusal, type ScalarType } from './parameters.ts';

/**
 * The rules' names and words of pydantic (interface inventory §4.4), and how pydantic reads text: clients of FastAPI
 * services match on them. Compared with FastAPI 0.165 and pydantic 2.14 on 131 requests. We differ on purpose: a
 * body's text and booleans are never read as numbers, nor its text and numbers as booleans; `null` counts as no body;
 * `NaN` and the like are no JSON; media types other than JSON are 415.
 */

/** A rule's name, what it says and its figures. */
export type RuleMessage = Pick<ValidationDetail, 'type' | 'msg' | 'ctx'>;

const SCALAR_MESSAGES: Record<ScalarRefusal, string> = {
  int_parsing: 'Input should be a valid integer, unable to parse string as an integer',
  int_parsing_size: 'Unable to parse input string as an integer, exceeded maximum size',
  float_parsing: 'Input should be a valid number, unable to parse string as a number',
  bool_parsing: 'Input should be a valid boolean, unable to interpret input',
};

/** The message for a text that is no scalar. */
export const scalarMessage = (type: ScalarRefusal): RuleMessage => ({ type, msg: SCALAR_MESSAGES[type] });

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

/** The type that zod expects → the type that pydantic would have tried to read a text as. */
const READ_AS: Record<string, ScalarType> = {
  int: 'integer',
  number: 'number',
  boolean: 'boolean',
};

/** Returns the message for a wrong type; unlike pydantic, texts of numbers or booleans are refused: bodies are JSON. */
export function typeMessage(expected: string, input: unknown): RuleMessage {
  if (expected === 'int' && typeof input === 'number') return INT_FROM_FLOAT;
  if (expected === 'boolean' && Number.isInteger(input) && input !== 0 && input !== 1)
    return scalarMessage('bool_parsing');
  const type = READ_AS[expected];
  const reading = type && typeof input === 'string' ? parseScalar(type, input) : undefined;
  if (reading && 'refusal' in reading) return scalarMessage(reading.refusal);
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
