/**
 * JSON whose integers keep their digits. `JSON.parse` rounds an integer beyond 2^53 to the nearest float, so an id of
 * 19 digits would name another record. Here such an integer becomes an {@link ExactInteger}: `JSON.stringify` writes it
 * digit by digit, so that it passes through events, the store and every wire unchanged. Numbers with a point or an
 * exponent are floats by their spelling and are read as always.
 */

/** An integer that no float holds: opaque to code, exact for `JSON.stringify`. */
export interface ExactInteger {
  readonly rawJSON: string;
}

/** ES2026; the types of TypeScript do not have it yet. */
interface SourceText {
  parse(
    text: string,
    reviver: (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): ExactInteger;
  isRawJSON(value: unknown): value is ExactInteger;
}
const json = JSON as unknown as SourceText;

/** Shorter runs of digits are exact. A text without a longer one needs no reviver, which costs ten times as much. */
const MAY_BE_INEXACT = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** Maximum digits of an integer, far above any id; jsonb has a limit too. */
const MAX_DIGITS = 1_000;

/**
 * Parses JSON text; integers that a float would round become {@link ExactInteger}s.
 * @throws {SyntaxError} also for an integer of more than 1,000 digits
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

/** Maximum digits of a number meant as an integer. PostgreSQL writes out all digits of a float such as 1e+300. */
const MAX_MEANT = 64;

/** True where `JSON.stringify` would write other digits. */
const isRounded = (value: number, source: string): boolean =>
  !Number.isSafeInteger(value) &&
  INTEGER.test(source) &&
  (source.length > MAX_MEANT ? toDigits(value) : String(value)) !== source;

/** Writes a float without a fraction as digits without an exponent. */
function toDigits(value: number): string {
  const [mantissa = '', exponent] = String(value).split('e+');
  if (exponent === undefined) return mantissa;
  const [whole = '', fraction = ''] = mantissa.split('.');
  return whole + fraction.padEnd(Number(exponent), '0');
}

export const isExactInteger = (value: unknown): value is ExactInteger => json.isRawJSON(value);

/** Returns a number if it holds these digits. */
export const toExactInteger = (digits: string): ExactInteger | number =>
  isRounded(Number(digits), digits) ? json.rawJSON(digits) : Number(digits);

/** True if a value has an exact integer at any depth. */
export function hasExactIntegers(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (isExactInteger(value)) return true;
  if (Array.isArray(value)) return value.some(hasExactIntegers);
  for (const key of Object.keys(value)) if (hasExactIntegers((value as Record<string, unknown>)[key])) return true;
  return false;
}

/**
 * Copies a JSON value deeply. `structuredClone` does not do, because it makes objects of exact integers. A `bigint`
 * becomes an exact integer.
 */
export function cloneJson<Value>(value: Value): Value;
export function cloneJson(value: unknown): unknown {
  if (typeof value === 'bigint') return toExactInteger(String(value));
  if (typeof value !== 'object' || value === null) return structuredClone(value);
  if (isExactInteger(value)) return value;
  if (Array.isArray(value)) return value.map((each: unknown) => cloneJson(each));
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return structuredClone(value);
  // fromEntries makes own properties, also of a key named `__proto__`.
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, cloneJson<unknown>(each)]));
}

/**
 * Replaces exact integers, for readers of plain JSON: validators, structured clones, code of an agent's author. Returns
 * the value itself if it has none.
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

/** For a check of the size only. */
export const toRounded = ({ rawJSON }: ExactInteger): number => Number(rawJSON);

const MARK = 'agent-runtime/integer:';
const MARKED = /^agent-runtime\/integer:(-?\d+)$/;
const MARKED_IN_TEXT = /"agent-runtime\/integer:(-?\d+)"/g;

/** Replaces exact integers by texts, for a library that would round them; {@link unmark} undoes it. */
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

/** {@link mark} for a text; one that is no JSON is returned unchanged. */
export function markText(text: string): string {
  if (!MAY_BE_INEXACT.test(text)) return text;
  try {
    return JSON.stringify(mark(parseExactJson(text)));
  } catch {
    return text;
  }
}

export const unmarkText = (text: string): string => text.replaceAll(MARKED_IN_TEXT, '$1');
