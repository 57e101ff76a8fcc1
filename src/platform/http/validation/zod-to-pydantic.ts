import type { z } from 'zod';
import { safeParse } from 'zod/v4/core';
import { base64Error } from '../../../core/base64.ts';
import { toErrorText } from '../../../core/errors.ts';
import { type ValidationDetail, valueError } from '../operation/request-errors.ts';
import type { KeyAliases } from './key-aliases.ts';
import { type RefusedParameter, parseScalar, type ScalarRefusal, type ScalarType } from './parameters.ts';

/**
 * The rules' names and words of pydantic (interface inventory §4.4), and how pydantic reads text: clients of FastAPI
 * services match on them. Compared with FastAPI 0.165 and pydantic 2.14 on 131 requests. We differ on purpose: a
 * body's text and booleans are never read as numbers, nor its text and numbers as booleans; `null` counts as no body;
 * `NaN` and the like are no JSON; media types other than `application/json` are 415.
 */

/** A rule's name, what it says and its figures. */
type RuleMessage = Pick<ValidationDetail, 'type' | 'msg' | 'ctx'>;

const SCALAR_MESSAGES: Record<ScalarRefusal, string> = {
  int_parsing: 'Input should be a valid integer, unable to parse string as an integer',
  int_parsing_size: 'Unable to parse input string as an integer, exceeded maximum size',
  float_parsing: 'Input should be a valid number, unable to parse string as a number',
  bool_parsing: 'Input should be a valid boolean, unable to interpret input',
};

/** The message for a text that is no scalar. */
const scalarMessage = (type: ScalarRefusal): RuleMessage => ({ type, msg: SCALAR_MESSAGES[type] });

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

/** The message of a pattern for the text of an integer from 1 to this one. */
const TEXT_OF_INTEGER = 'int_parsing';
const MAX_INTEGER_TEXT = 999_999_999;

/** The type that zod expects → the type that pydantic would have tried to read a text as. */
const READ_AS: Record<string, ScalarType> = {
  int: 'integer',
  number: 'number',
  boolean: 'boolean',
};

/** Returns the message for a wrong type; unlike pydantic, texts of numbers or booleans are refused: bodies are JSON. */
function typeMessage(expected: string, input: unknown): RuleMessage {
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
function choiceMessage(values: readonly unknown[], type: string): RuleMessage {
  const quoted = values.map((value) => (typeof value === 'string' ? `'${value}'` : String(value)));
  const last = quoted.at(-1) ?? '';
  const expected = quoted.length > 1 ? `${quoted.slice(0, -1).join(', ')} or ${last}` : last;
  return { type, msg: `Input should be ${expected}`, ctx: { expected } };
}

/** The message for a text that is not base64. */
const bytesMessage = (error: string): RuleMessage => ({
  type: 'bytes_invalid_encoding',
  msg: `Data should be valid base64: ${error}`,
  ctx: { encoding: 'base64', encoding_error: error },
});

const counted = (count: unknown, word: string) => `${String(count)} ${word}${count === 1 ? '' : 's'}`;

/** The message for a value beyond a bound of length, count or size; `inclusive` bounds belong to what is allowed. */
function rangeMessage(
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

/** The maximum number of details of a body: 100,000 invalid places must not cost 100,000 entries. */
export const MAX_DETAILS = 100;
/** Longer inputs are left out of the answer: pydantic would send a body of 10 MB back once for every missing member. */
const MAX_ECHO_LENGTH = 4096;

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/**
 * Says in pydantic's words why a schema refuses a body: at most 100 details, in the order of the schema.
 * @param issues those of a parse with {@link nameRefusingType}
 */
export function toBodyDetails(issues: readonly Issue[], aliases: KeyAliases, sent: unknown): ValidationDetail[] {
  const details: ValidationDetail[] = [];
  for (const { issue, path } of leaves(issues)) {
    if (details.length >= MAX_DETAILS) break;
    details.push(toDetail(issue, path, aliases, sent));
  }
  return details;
}

/** Names in the message the schema that refused: a finished zod issue no longer tells, and pydantic's words vary. */
export function nameRefusingType(issue: z.core.$ZodRawIssue): string | undefined {
  const definition = (issue.inst as z.core.$ZodType | undefined)?._zod.def as
    | { type?: string; format?: string }
    | undefined;
  if (issue.code === 'invalid_value') return definition?.type;
  return issue.code === 'invalid_type' && definition?.format?.includes('int') ? 'int' : undefined;
}

/** Issues with their full paths: a union is replaced by the issues of the branch that was most likely meant. */
function* leaves(issues: readonly Issue[], prefix: Path = []): Generator<{ issue: Issue; path: Path }> {
  for (const issue of issues) {
    const path = [...prefix, ...issue.path];
    const branch = issue.code === 'invalid_union' ? likelyBranch(issue.errors) : undefined;
    if (branch) yield* leaves(branch, path);
    else if (issue.code === 'unrecognized_keys') for (const key of issue.keys) yield { issue, path: [...path, key] };
    else yield { issue, path };
  }
}

/** The branch with the fewest issues that is not refused as a whole, for instance for not being null. */
function likelyBranch(branches: readonly (readonly Issue[])[]): readonly Issue[] | undefined {
  const cost = (branch: readonly Issue[]) =>
    branch.length + (branch[0]?.path.length === 0 && branch[0].code === 'invalid_type' ? 1000 : 0);
  const isNull = (branch: readonly Issue[]) => branch[0]?.code === 'invalid_type' && branch[0].expected === 'null';
  return branches.filter((branch) => !isNull(branch)).toSorted((a, b) => cost(a) - cost(b))[0];
}

function toDetail(issue: Issue, path: Path, aliases: KeyAliases, sent: unknown): ValidationDetail {
  const keys = aliases.toSentPath(sent, path);
  const loc = ['body', ...keys.map((key) => (typeof key === 'string' ? toErrorText(key) : key))];
  const input = valueAt(sent, keys);
  if (issue.code === 'custom') return valueError(loc, issue.message, echo(input));
  if (input === undefined)
    return { type: 'missing', loc, msg: 'Field required', input: echo(valueAt(sent, keys.slice(0, -1)) ?? null) };
  return withContext(toMessage(issue, input), loc, echo(input));
}

/** Says in pydantic's words why a parameter is refused. */
export function toParameterDetails({ loc, schema, text, value, refusal }: RefusedParameter): ValidationDetail[] {
  if (text === undefined) return [{ type: 'missing', loc, msg: 'Field required', input: null }];
  if (refusal) return [withContext(scalarMessage(refusal), loc, text)];
  const { error } = safeParse(schema, value, { error: nameRefusingType });
  return (error?.issues ?? []).map((issue) =>
    issue.code === 'custom' ? valueError(loc, issue.message, text) : withContext(toMessage(issue, value), loc, text),
  );
}

/** The members in the order of FastAPI. */
const withContext = ({ type, msg, ctx }: RuleMessage, loc: (string | number)[], input: unknown): ValidationDetail => ({
  type,
  loc,
  msg,
  input,
  ...(ctx ? { ctx } : {}),
});

/** `undefined`, which leaves `input` out, for what is too large to send back (a hundred times, if need be). */
export const echo = (value: unknown) => (remainingEcho(value, MAX_ECHO_LENGTH) < 0 ? undefined : value);

/** Returns the rest of a budget of characters after writing a value; stops at the first value that does not fit. */
function remainingEcho(value: unknown, budget: number): number {
  if (typeof value === 'string') return budget - value.length;
  if (typeof value !== 'object' || value === null) return budget - 8;
  let left = budget;
  for (const key in value) {
    if (left < 0) return left;
    left = remainingEcho((value as Record<string, unknown>)[key], left - key.length);
  }
  return left;
}

function valueAt(root: unknown, keys: readonly (string | number)[]): unknown {
  let value = root;
  for (const key of keys) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string | number, unknown>)[key];
  }
  return value;
}

function toMessage(issue: Issue, input: unknown): RuleMessage {
  switch (issue.code) {
    case 'invalid_type':
      return typeMessage(issue.message === 'int' ? 'int' : issue.expected, input);
    case 'invalid_value':
      return choiceMessage(issue.values, issue.message === 'enum' ? 'enum' : 'literal_error');
    case 'too_small':
      return rangeMessage(issue.origin, 'small', issue.minimum, issue.inclusive ?? true, input);
    case 'too_big':
      return rangeMessage(issue.origin, 'big', issue.maximum, issue.inclusive ?? true, input);
    case 'unrecognized_keys':
      return { type: 'extra_forbidden', msg: 'Extra inputs are not permitted' };
    case 'invalid_format':
      return formatMessage(issue, input);
    default:
      return { type: 'value_error', msg: `Value error, ${issue.message}`, ctx: { error: {} } };
  }
}

/** Says why a text is none of the integers that zod let a pattern choose; pydantic reads the text first. */
function integerMessage(input: string): RuleMessage {
  const reading = parseScalar('integer', input);
  if ('refusal' in reading) return scalarMessage(reading.refusal);
  return Number(input) < 1
    ? rangeMessage('number', 'small', 1, true, input)
    : rangeMessage('number', 'big', MAX_INTEGER_TEXT, true, input);
}

function formatMessage(issue: z.core.$ZodIssueInvalidStringFormat, input: unknown): RuleMessage {
  if (issue.format === 'byte') return bytesMessage(base64Error(String(input)) ?? '');
  if (issue.format === 'url')
    return { type: 'url_parsing', msg: 'Input should be a valid URL', ctx: { error: issue.message } };
  const pattern = issue.pattern?.replace(/^\/(.*)\/[a-z]*$/s, '$1');
  if (issue.message === TEXT_OF_INTEGER) return integerMessage(String(input));
  // What a pattern refuses in an empty text is that it is empty.
  if (issue.format === 'regex' && input === '') return rangeMessage('string', 'small', 1, true, input);
  if (issue.format === 'regex' && pattern !== undefined && issue.message.startsWith('Invalid string'))
    return { type: 'string_pattern_mismatch', msg: `String should match pattern '${pattern}'`, ctx: { pattern } };
  return { type: 'value_error', msg: `Value error, ${issue.message}`, ctx: { error: {} } };
}
