import type { z } from 'zod';
import type { ValidationDetail } from './error-bodies.ts';
import { valueError } from './request-errors.ts';
import { FALSE_WORDS, isIntegerText, isNumberText, TRUE_WORDS } from './parameters.ts';
import type { BodySpelling } from './spelling.ts';

/** A body with more invalid places than this gets the first ones only: 100,000 of them must not cost 100,000 entries. */
const MAX_DETAILS = 100;

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];
/** Rule, words and figures; `at` and `input` are found from the issue's path unless given. */
type Words = Pick<ValidationDetail, 'type' | 'msg' | 'ctx'>;

/**
 * Says in pydantic's words (interface inventory §4.4) why a schema refuses a body.
 * @returns `[]` when the schema accepts the body; at most 100 details, in the order of the schema
 */
export function zodDetails(
  schema: z.ZodType,
  spelling: BodySpelling,
  body: { sent: unknown; renamed: unknown },
): ValidationDetail[] {
  const result = schema.safeParse(body.renamed, { error: nameOfRefusingType });
  if (result.success) return [];
  const details: ValidationDetail[] = [];
  for (const { issue, path } of leaves(result.error.issues)) {
    if (details.length >= MAX_DETAILS) break;
    details.push(detailOf(issue, path, spelling, body.sent));
  }
  return details;
}

/** pydantic words an enumeration and a literal differently; a finished zod issue no longer tells which of them refused. */
const nameOfRefusingType = (issue: z.core.$ZodRawIssue) =>
  issue.code === 'invalid_value' ? (issue.inst as z.core.$ZodType | undefined)?._zod.def.type : undefined;

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

function detailOf(issue: Issue, path: Path, spelling: BodySpelling, sent: unknown): ValidationDetail {
  const keys = spelling.asSent(sent, path);
  const loc = ['body', ...keys];
  const input = valueAt(sent, keys);
  if (issue.code === 'custom') return valueError(loc, issue.message, input);
  if (input === undefined && issue.code !== 'unrecognized_keys') {
    return { type: 'missing', loc, msg: 'Field required', input: valueAt(sent, keys.slice(0, -1)) ?? null };
  }
  const { type, msg, ctx } = wordsFor(issue, input);
  return { type, loc, msg, input: input ?? null, ...(ctx ? { ctx } : {}) };
}

function valueAt(root: unknown, keys: readonly (string | number)[]): unknown {
  let value = root;
  for (const key of keys) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string | number, unknown>)[key];
  }
  return value;
}

function wordsFor(issue: Issue, input: unknown): Words {
  switch (issue.code) {
    case 'invalid_type':
      return typeWords(issue.expected, input);
    case 'invalid_value':
      return choiceWords(issue.values, issue.message === 'enum' ? 'enum' : 'literal_error');
    case 'too_small':
      return boundWords(issue.origin, 'small', issue.minimum, issue.inclusive ?? true, input);
    case 'too_big':
      return boundWords(issue.origin, 'big', issue.maximum, issue.inclusive ?? true, input);
    case 'unrecognized_keys':
      return { type: 'extra_forbidden', msg: 'Extra inputs are not permitted' };
    case 'invalid_format':
      return formatWords(issue);
    default:
      return { type: 'value_error', msg: `Value error, ${issue.message}`, ctx: { error: {} } };
  }
}

const TYPE_WORDS: Record<string, Words> = {
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

/** Words for a type, or for a text or number that pydantic would have tried to read as that type. */
export function typeWords(expected: string, input: unknown): Words {
  if (expected === 'int' && typeof input === 'number') {
    return {
      type: 'int_from_float',
      msg: 'Input should be a valid integer, got a number with a fractional part',
    };
  }
  if (expected === 'int' && typeof input === 'string' && !isIntegerText(input)) {
    return {
      type: 'int_parsing',
      msg: 'Input should be a valid integer, unable to parse string as an integer',
    };
  }
  if (expected === 'number' && typeof input === 'string' && !isNumberText(input)) {
    return { type: 'float_parsing', msg: 'Input should be a valid number, unable to parse string as a number' };
  }
  if (expected === 'boolean' && isNoBooleanWord(input)) {
    return { type: 'bool_parsing', msg: 'Input should be a valid boolean, unable to interpret input' };
  }
  return TYPE_WORDS[expected] ?? { type: 'value_error', msg: `Value error, expected ${expected}`, ctx: { error: {} } };
}

function isNoBooleanWord(input: unknown): boolean {
  if (typeof input === 'number') return input !== 0 && input !== 1;
  if (typeof input !== 'string') return false;
  const word = input.toLowerCase();
  return !TRUE_WORDS.has(word) && !FALSE_WORDS.has(word);
}

function choiceWords(values: readonly unknown[], type: string): Words {
  const quoted = values.map((value) => (typeof value === 'string' ? `'${value}'` : String(value)));
  const last = quoted.at(-1) ?? '';
  const expected = quoted.length > 1 ? `${quoted.slice(0, -1).join(', ')} or ${last}` : last;
  return { type, msg: `Input should be ${expected}`, ctx: { expected } };
}

const counted = (count: unknown, word: string) => `${String(count)} ${word}${count === 1 ? '' : 's'}`;

/** Words for a value beyond a bound of length, count or size; `inclusive` bounds belong to what is allowed. */
export function boundWords(
  origin: string,
  side: 'small' | 'big',
  bound: unknown,
  inclusive: boolean,
  input: unknown,
): Words {
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

function formatWords(issue: z.core.$ZodIssueInvalidStringFormat): Words {
  if (issue.format === 'url') {
    return { type: 'url_parsing', msg: 'Input should be a valid URL', ctx: { error: issue.message } };
  }
  const pattern = issue.pattern?.replace(/^\/(.*)\/[a-z]*$/s, '$1');
  if (issue.format === 'regex' && pattern !== undefined) {
    return { type: 'string_pattern_mismatch', msg: `String should match pattern '${pattern}'`, ctx: { pattern } };
  }
  return { type: 'value_error', msg: `Value error, ${issue.message}`, ctx: { error: {} } };
}
