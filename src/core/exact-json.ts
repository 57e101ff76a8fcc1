/**
 * JSON whose integers keep all their digits. `JSON.parse` rounds an integer beyond 2^53, so an id of 19 digits would
 * become the id of another record. Here it becomes an {@link ExactInteger}, which `JSON.stringify` writes digit by
 * digit. A number with a point or an exponent is a float, parsed as by `JSON.parse`.
 */

/** An integer that a float cannot represent. Opaque; `JSON.stringify` writes all its digits. */
export interface ExactInteger {
  readonly rawJSON: string;
}

/** The additions of ES2026 to `JSON`, which TypeScript's types do not have yet. */
interface SourceText {
  parse(
    text: string,
    reviver: (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): ExactInteger;
  isRawJSON(value: unknown): value is ExactInteger;
}
const json = JSON as unknown as SourceText;

/**
 * JSON text that may contain an integer beyond 2^53. Other text needs no reviver, which makes parsing ten times slower.
 */
const MAY_BE_INEXACT = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** Maximum number of digits of an integer, far above any id. PostgreSQL's jsonb has a limit too. */
const MAX_DIGITS = 1_000;

/**
 * Integers that a float would round become {@link ExactInteger}s.
 * @throws {SyntaxError} if the text is not JSON, or an integer has more than 1,000 digits
 */
export function parseExactJson(text: string): unknown {
  if (!MAY_BE_INEXACT.test(text)) return JSON.parse(text);
  return json.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined && isRounded(value, source) ? toRaw(source) : value,
  );
}

function toRaw(source: string): ExactInteger {
  if (source.length > MAX_DIGITS) throw new SyntaxError(`An integer has more than ${MAX_DIGITS} digits.`);
  return json.rawJSON(source);
}

/**
 * Maximum digits of a client's integer. A longer one may be a float such as 1e+300, written by PostgreSQL without
 * exponent.
 */
const MAX_MEANT = 64;

/** True if `JSON.stringify` would write the number with other digits than `source`. */
const isRounded = (value: number, source: string): boolean =>
  !Number.isSafeInteger(value) &&
  INTEGER.test(source) &&
  (source.length > MAX_MEANT ? toDigits(value) : String(value)) !== source;

/** Returns a float without a fraction as digits without an exponent. */
function toDigits(value: number): string {
  const [mantissa = '', exponent] = String(value).split('e+');
  if (exponent === undefined) return mantissa;
  const [whole = '', fraction = ''] = mantissa.split('.');
  return whole + fraction.padEnd(Number(exponent), '0');
}

export const isExactInteger = (value: unknown): value is ExactInteger => json.isRawJSON(value);

/** Converts digits to a number if a float can represent them, else to an exact integer. */
export const toExactInteger = (digits: string): ExactInteger | number =>
  isRounded(Number(digits), digits) ? json.rawJSON(digits) : Number(digits);

export function hasExactIntegers(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (isExactInteger(value)) return true;
  if (Array.isArray(value)) return value.some(hasExactIntegers);
  for (const key of Object.keys(value)) if (hasExactIntegers((value as Record<string, unknown>)[key])) return true;
  return false;
}

/** Copies JSON. `structuredClone` would turn exact integers into plain objects. A `bigint` becomes an exact integer. */
export function cloneJson<Value>(value: Value): Value;
export function cloneJson(value: unknown): unknown {
  if (typeof value === 'bigint') return toExactInteger(String(value));
  if (typeof value !== 'object' || value === null) return structuredClone(value);
  if (isExactInteger(value)) return value;
  if (Array.isArray(value)) return value.map((each: unknown) => cloneJson(each));
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return structuredClone(value);
  // `fromEntries` creates own properties, even for a key named `__proto__`.
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, cloneJson<unknown>(each)]));
}

/**
 * Replaces integers beyond 2^53, which are kept as {@link ExactInteger}, for code that expects plain JSON, such as
 * validators. Returns the same object if it has none.
 */
export function mapExactIntegers(value: unknown, convert: (integer: ExactInteger) => unknown): unknown {
  return hasExactIntegers(value) ? mapAll(value, convert) : value;
}

function mapAll(value: unknown, convert: (integer: ExactInteger) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (isExactInteger(value)) return convert(value);
  if (Array.isArray(value)) return value.map((each) => mapAll(each, convert));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, mapAll(each, convert)]));
}

/** Converts an exact integer to the nearest float. Only for comparing its size with a bound. */
export const toRounded = ({ rawJSON }: ExactInteger): number => Number(rawJSON);

const MARK = 'agent-runtime/integer:';
const MARKED = /^agent-runtime\/integer:(-?\d+)$/;
const MARKED_IN_TEXT = /"agent-runtime\/integer:(-?\d+)"/g;

/** Replaces exact integers by marked texts for a library that would round them. {@link unmark} restores them. */
export const mark = (value: unknown): unknown => mapExactIntegers(value, ({ rawJSON }) => `${MARK}${rawJSON}`);

export function unmark(value: unknown): unknown {
  if (typeof value === 'string') {
    const digits = MARKED.exec(value)?.[1];
    return digits === undefined ? value : toExactInteger(digits);
  }
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return value;
  if (Array.isArray(value)) return value.map(unmark);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, unmark(each)]));
}

/** Like {@link mark}, for JSON text. A text that is not JSON is returned unchanged. */
export function markText(text: string): string {
  if (!MAY_BE_INEXACT.test(text)) return text;
  try {
    return JSON.stringify(mark(parseExactJson(text)));
  } catch {
    return text;
  }
}

export const unmarkText = (text: string): string => text.replaceAll(MARKED_IN_TEXT, '$1');

/** A replacer of `JSON.stringify` that sorts object members, so that their order in the source makes no difference. */
export const sortMembers = (_name: string, value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
    : value;
