import { countCharacters, TEXT_FORMATS } from '../../../core/text-format.ts';
import type { ValidationDetail, ValidationType } from '../operation/request-errors.ts';
import { parseScalar, type ScalarRefusal, type ScalarType } from './parameters.ts';

/**
 * Explains why a schema of the OpenAPI document refuses a value, with pydantic's error types and messages (interface
 * inventory §4.4), because clients of FastAPI services match on them.
 *
 * Compared with FastAPI 0.165 and pydantic 2.14 on 131 requests. Deliberate differences: in a body, text is never
 * parsed as a number or boolean, and numbers are never read as booleans; `null` counts as a missing body; `NaN` and
 * `Infinity` are invalid JSON; media types other than `application/json` get 415.
 */

export type JsonSchema = Record<string, unknown>;

/** A validation error in pydantic's terms: error type, message and context (the limits that the message names). */
export interface Words {
  type: ValidationType;
  msg: string;
  ctx?: Record<string, unknown>;
}

/** Keys and indexes that lead from a body to a value in it. */
export type JsonPath = readonly PropertyKey[];

/** A validation error with its path, in the schema's names. */
export interface Mistake {
  path: (string | number)[];
  words: Words;
}

const toWords = (type: ValidationType, msg: string, ctx?: Record<string, unknown>): Words => ({
  type,
  msg,
  ...(ctx && { ctx }),
});

/** Returns a validation error as in a 422 body, its members in FastAPI's order. */
export const toDetail = (
  { type, msg, ctx }: Words,
  loc: ValidationDetail['loc'],
  input: unknown,
): ValidationDetail => ({
  type,
  loc,
  msg,
  input,
  ...(ctx && { ctx }),
});

const plural = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`;

export const MISSING = toWords('missing', 'Field required');
const EXTRA = toWords('extra_forbidden', 'Extra inputs are not permitted');
const FRACTION = toWords('int_from_float', 'Input should be a valid integer, got a number with a fractional part');
/** The error of a rule that pydantic does not have, in the format that pydantic uses for custom validators. */
const ofValue = (reason: string) => toWords('value_error', `Value error, ${reason}`, { error: {} });

/** JSON type (`model`: an object with named members) → the error for a value of another type. */
const TYPES: Record<string, Words> = {
  string: toWords('string_type', 'Input should be a valid string'),
  integer: toWords('int_type', 'Input should be a valid integer'),
  number: toWords('float_type', 'Input should be a valid number'),
  boolean: toWords('bool_type', 'Input should be a valid boolean'),
  array: toWords('list_type', 'Input should be a valid list'),
  object: toWords('dict_type', 'Input should be a valid dictionary'),
  model: toWords('model_attributes_type', 'Input should be a valid dictionary or object to extract fields from'),
  null: toWords('none_required', 'Input should be None'),
};

/** Messages for a text that cannot be parsed as a number or boolean. */
const UNREADABLE: Record<ScalarRefusal, string> = {
  int_parsing: 'Input should be a valid integer, unable to parse string as an integer',
  int_parsing_size: 'Unable to parse input string as an integer, exceeded maximum size',
  float_parsing: 'Input should be a valid number, unable to parse string as a number',
  bool_parsing: 'Input should be a valid boolean, unable to interpret input',
};
export const ofUnreadable = (refusal: ScalarRefusal): Words => toWords(refusal, UNREADABLE[refusal]);

const textLength = (type: ValidationType, most: string, figure: string) => (bound: number) =>
  toWords(type, `String should have at ${most} ${plural(bound, 'character')}`, { [figure]: bound });
const ofShortText = textLength('string_too_short', 'least', 'min_length');
const ofLongText = textLength('string_too_long', 'most', 'max_length');
const listLength =
  (type: ValidationType, most: string, figure: string) =>
  (bound: number, { length }: unknown[]) =>
    toWords(type, `List should have at ${most} ${plural(bound, 'item')} after validation, not ${length}`, {
      field_type: 'List',
      [figure]: bound,
      actual_length: length,
    });
const range = (type: ValidationType, figure: string) => (bound: number) =>
  toWords(type, `Input should be ${type.replace('_equal', ' or equal to').replace('_', ' ')} ${bound}`, {
    [figure]: bound,
  });
const ofSmall = range('greater_than_equal', 'ge');
const ofLarge = range('less_than_equal', 'le');

/** How to check a keyword: the type of values it applies to, the test for a violation, and the error. */
interface Rule {
  kind: 'string' | 'number' | 'array';
  refuses: (bound: never, value: never) => boolean;
  say: (bound: never, value: never) => Words;
}

/** Keyword → its check. For each value only the first violation in this order is reported. */
const RULES: Record<string, Rule> = {
  minLength: {
    kind: 'string',
    refuses: (least: number, text: string) => countCharacters(text) < least,
    say: ofShortText,
  },
  maxLength: {
    kind: 'string',
    refuses: (most: number, text: string) => text.length > most && countCharacters(text) > most,
    say: ofLongText,
  },
  pattern: {
    kind: 'string',
    refuses: (pattern: string, text: string) => !new RegExp(pattern, 'u').test(text),
    // An empty text that violates a pattern is reported as empty.
    say: (pattern: string, text: string) =>
      text === ''
        ? ofShortText(1)
        : toWords('string_pattern_mismatch', `String should match pattern '${pattern}'`, { pattern }),
  },
  format: {
    kind: 'string',
    refuses: (format: string, text: string) => TEXT_FORMATS.get(format)?.(text) !== undefined,
    say: (format: string, text: string) => (FORMATS[format] ?? ofValue)(TEXT_FORMATS.get(format)?.(text) ?? '', text),
  },
  minimum: { kind: 'number', refuses: (least: number, value: number) => value < least, say: ofSmall },
  exclusiveMinimum: {
    kind: 'number',
    refuses: (below: number, value: number) => value <= below,
    say: range('greater_than', 'gt'),
  },
  maximum: { kind: 'number', refuses: (most: number, value: number) => value > most, say: ofLarge },
  exclusiveMaximum: {
    kind: 'number',
    refuses: (above: number, value: number) => value >= above,
    say: range('less_than', 'lt'),
  },
  minItems: {
    kind: 'array',
    refuses: (least: number, { length }: unknown[]) => length < least,
    say: listLength('too_short', 'least', 'min_length'),
  },
  maxItems: {
    kind: 'array',
    refuses: (most: number, { length }: unknown[]) => length > most,
    say: listLength('too_long', 'most', 'max_length'),
  },
};

/** Formats for which pydantic has an error type; the others are reported as `value_error`. */
const FORMATS: Record<string, (reason: string, text: string) => Words> = {
  byte: (reason) =>
    toWords('bytes_invalid_encoding', `Data should be valid base64: ${reason}`, {
      encoding: 'base64',
      encoding_error: reason,
    }),
  // pydantic parses a text of this format as an integer first.
  'positive-integer': (_reason, text) => {
    const read = parseScalar('integer', text);
    if ('refusal' in read) return ofUnreadable(read.refusal);
    return Number(text) < 1 ? ofSmall(1) : ofLarge(MAX_INTEGER_TEXT);
  },
};
const MAX_INTEGER_TEXT = 999_999_999;

/** Maximum number of values visited for one explanation, because each takes 3 µs. */
const MAX_VISITED = 20_000;

/** The state of the walk: its limits, the errors found so far and the current path. */
interface Walk {
  resolve: (schema: JsonSchema) => JsonSchema;
  /** Maximum number of errors, after which the walk ends. */
  most: number;
  /** Number of values that may still be visited; shared with walks into branches of a union. */
  left: { values: number };
  found: Mistake[];
  path: (string | number)[];
}

/**
 * Returns the first errors of a value, in the schema's order. Empty if all errors are behind the first 20,000 values,
 * or if only a keyword outside the table refuses the value.
 * @param resolve returns the schema that a reference points to, any other schema unchanged
 */
export function explain(schema: JsonSchema, value: unknown, resolve: Walk['resolve'], most: number): Mistake[] {
  const walk: Walk = { resolve, most, left: { values: MAX_VISITED }, found: [], path: [] };
  visit(walk, schema, value);
  return walk.found;
}

const isOver = ({ found, most, left }: Walk) => found.length >= most || left.values <= 0;

function say({ found, path }: Walk, words: Words, key?: string): void {
  found.push({ path: key === undefined ? [...path] : [...path, key], words });
}

function visit(walk: Walk, reference: JsonSchema, value: unknown): void {
  if (isOver(walk)) return;
  walk.left.values -= 1;
  const schema = walk.resolve(reference);
  const branches = branchesOf(schema);
  if (branches) return visitUnion(walk, branches.map(walk.resolve), value);
  const choices = choicesOf(schema);
  if (choices) return choices.includes(value) ? undefined : say(walk, ofChoice('const' in schema, choices));
  if (!isOfType(schema, value)) return say(walk, ofType(schema, value));
  if (Array.isArray(value)) visitElements(walk, schema, value);
  else if (typeof value === 'object' && value !== null) visitMembers(walk, schema, value as Record<string, unknown>);
  const kind = kindOf(value);
  for (const keyword in RULES) {
    const rule = RULES[keyword] as Rule;
    if (!(keyword in schema) || rule.kind !== kind) continue;
    const bound = schema[keyword] as never;
    if (rule.refuses(bound, value as never)) return say(walk, rule.say(bound, value as never));
  }
}

function visitAt(walk: Walk, key: string | number, schema: JsonSchema, value: unknown): void {
  walk.path.push(key);
  visit(walk, schema, value);
  walk.path.pop();
}

function visitElements(walk: Walk, { items }: JsonSchema, values: unknown[]): void {
  if (typeof items !== 'object') return;
  for (let index = 0; index < values.length && !isOver(walk); index += 1)
    visitAt(walk, index, items as JsonSchema, values[index]);
}

function visitMembers(walk: Walk, schema: JsonSchema, value: Record<string, unknown>): void {
  const members = (schema['properties'] ?? {}) as Record<string, JsonSchema>;
  const required = schema['required'] as string[] | undefined;
  for (const name in members) {
    if (Object.hasOwn(value, name)) visitAt(walk, name, members[name] as JsonSchema, value[name]);
    else if (required?.includes(name)) say(walk, MISSING, name);
  }
  const others = schema['additionalProperties'];
  if (others === undefined || others === true) return;
  for (const name in value) {
    if (isOver(walk)) return;
    if (Object.hasOwn(members, name)) continue;
    if (others === false) say(walk, EXTRA, name);
    else visitAt(walk, name, others as JsonSchema, value[name]);
  }
}

/** Reports the errors of a union's branch that was probably meant, by the value's tag, otherwise by its type. */
function visitUnion(walk: Walk, branches: JsonSchema[], value: unknown): void {
  const tag = kindOf(value) === 'object' ? tagOf(branches) : undefined;
  if (tag !== undefined) {
    const sent = (value as Record<string, unknown>)[tag];
    const meant = branches.find((branch) => tagValues(branch, tag)?.includes(sent));
    if (meant) return visit(walk, meant, value);
    const values = branches.flatMap((branch) => tagValues(branch, tag) ?? []);
    return say(walk, sent === undefined ? MISSING : ofTag(tag, values), tag);
  }
  const meant = branches.filter((branch) => isOfType(branch, value) || branchesOf(branch));
  const [first = {}, ...others] = meant.length > 0 ? meant : branches;
  if (others.length === 0 || meant.length === 0) return visit(walk, first, value);
  const tries = meant.map((branch) => {
    const tried: Walk = { ...walk, found: [], most: walk.most - walk.found.length };
    visit(tried, branch, value);
    return tried.found;
  });
  const [best = []] = tries.toSorted((one, other) => one.length - other.length);
  walk.found.push(...best);
}

const branchesOf = ({ anyOf, oneOf }: JsonSchema) => (anyOf ?? oneOf) as JsonSchema[] | undefined;
const choicesOf = (schema: JsonSchema) =>
  'const' in schema ? [schema['const']] : (schema['enum'] as unknown[] | undefined);

/** Returns the member whose value tells a union's object branches apart, if there are at least two. */
function tagOf(branches: JsonSchema[]): string | undefined {
  const objects = branches.filter(({ type }) => type === 'object');
  if (objects.length < 2) return undefined;
  return Object.keys(objects[0]?.['properties'] ?? {}).find((name) => objects.every((each) => tagValues(each, name)));
}

function tagValues({ properties }: JsonSchema, name: string): unknown[] | undefined {
  const member = (properties as Record<string, JsonSchema> | undefined)?.[name];
  return member && choicesOf(member);
}

const kindOf = (value: unknown) => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);
const typesOf = ({ type }: JsonSchema) => (type === undefined ? [] : [type].flat());

function isOfType(schema: JsonSchema, value: unknown): boolean {
  const kind = kindOf(value);
  const types = typesOf(schema);
  return types.length === 0 || types.some((type) => type === kind || (type === 'integer' && Number.isInteger(value)));
}

/**
 * The error for a value of another type. Unparseable text has its own message, because pydantic parses text as numbers.
 */
function ofType(schema: JsonSchema, value: unknown): Words {
  const type = typesOf(schema).find((each) => each !== 'null') ?? 'null';
  if (type === 'integer' && typeof value === 'number') return FRACTION;
  if (type === 'boolean' && Number.isInteger(value) && value !== 0 && value !== 1) return ofUnreadable('bool_parsing');
  if (typeof value === 'string' && ['integer', 'number', 'boolean'].includes(type as string)) {
    const read = parseScalar(type as ScalarType, value);
    if ('refusal' in read) return ofUnreadable(read.refusal);
  }
  const isModel = schema['properties'] !== undefined || schema['additionalProperties'] === false;
  return TYPES[type === 'object' && isModel ? 'model' : (type as string)] as Words;
}

const quote = (value: unknown) => (typeof value === 'string' ? `'${value}'` : String(value));
const toList = (values: unknown[], last: string) =>
  values.length < 2
    ? values.map(quote).join()
    : `${values.slice(0, -1).map(quote).join(', ')} ${last} ${quote(values.at(-1))}`;

function ofChoice(isLiteral: boolean, choices: unknown[]): Words {
  const expected = toList(choices, 'or');
  return toWords(isLiteral ? 'literal_error' : 'enum', `Input should be ${expected}`, { expected });
}

const ofTag = (tag: string, values: unknown[]) => ofValue(`the ${tag} is one of ${toList(values, 'and')}`);
