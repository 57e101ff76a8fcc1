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

/** Shorter runs of digits are exact; a text without a longer one is not revived, which costs ten times as much. */
const MAY_BE_INEXACT = /\d{16}/;
const INTEGER = /^-?\d+$/;

/** Parses JSON text; integers that a float would round become {@link ExactInteger}s. @throws {SyntaxError} */
export function parseExactJson(text: string): unknown {
  if (!MAY_BE_INEXACT.test(text)) return JSON.parse(text);
  return json.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined && isRounded(value, source) ? json.rawJSON(source) : value,
  );
}

const isRounded = (value: number, source: string): boolean =>
  !Number.isSafeInteger(value) && INTEGER.test(source) && (!Number.isFinite(value) || BigInt(value) !== BigInt(source));

export const isExactInteger = (value: unknown): value is ExactInteger => json.isRawJSON(value);

/** Returns the integer of these digits, as a number if a number holds it. */
export const toExactInteger = (digits: string): ExactInteger | number =>
  isRounded(Number(digits), digits) ? json.rawJSON(digits) : Number(digits);

/**
 * Returns a copy in which exact integers are what `convert` makes of them; the value itself if it has none. For readers
 * that know plain JSON only: validators, structured clones, code of an agent's author.
 */
export function mapExactIntegers(value: unknown, convert: (integer: ExactInteger) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (isExactInteger(value)) return convert(value);
  let isSame = true;
  const map = (each: unknown) => {
    const mapped = mapExactIntegers(each, convert);
    if (mapped !== each) isSame = false;
    return mapped;
  };
  const copy = Array.isArray(value)
    ? value.map(map)
    : Object.fromEntries(Object.entries(value).map(([key, each]) => [key, map(each)]));
  return isSame ? value : copy;
}

/** Rounds an exact integer, for a check that asks only whether it is an integer of some size. */
export const toRounded = ({ rawJSON }: ExactInteger): number => Number(rawJSON);
