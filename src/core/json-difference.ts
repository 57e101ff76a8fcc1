import { isExactInteger } from './exact-json.ts';

export interface JsonDifference {
  /** Where the values differ, as a JSON pointer (RFC 6901); `''` for the whole value. */
  path: string;
  /** The earlier value; `null` if it is absent. */
  before: unknown;
  after: unknown;
}

export const jsonDifference = (before: unknown, after: unknown, path = ''): JsonDifference | undefined =>
  listJsonDifferences(before, after, path).next().value ?? undefined;

/** Yields the differences between two JSON values, in the order of the members of `before`. Visits each value once. */
export function* listJsonDifferences(
  before: unknown,
  after: unknown,
  path = '',
): Generator<JsonDifference, undefined, undefined> {
  if (Object.is(before, after) || isSameInteger(before, after)) return;
  if (!isContainer(before) || !isContainer(after) || Array.isArray(before) !== Array.isArray(after)) {
    yield { path, before: before ?? null, after: after ?? null };
    return;
  }
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    yield* listJsonDifferences(getMember(before, name), getMember(after, name), path + toPointer(name));
  }
}

/** The JSON pointer (RFC 6901) to a member. */
export const toPointer = (name: string): string => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;

const isContainer = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !isExactInteger(value);

const isSameInteger = (one: unknown, other: unknown): boolean =>
  isExactInteger(one) && isExactInteger(other) && one.rawJSON === other.rawJSON;

const getMember = (value: Record<string, unknown>, name: string): unknown =>
  Object.hasOwn(value, name) ? value[name] : undefined;
