/** Where two JSON values part first. */
export interface JsonDifference {
  /** A JSON pointer (RFC 6901); '' for the whole. */
  path: string;
  /** `null` where there is nothing. */
  before: unknown;
  after: unknown;
}

/**
 * The first difference of two JSON values, in the order of the members of the earlier one; `undefined` for none. Each
 * value is looked at once, however deep it is.
 */
export function jsonDifference(before: unknown, after: unknown, path = ''): JsonDifference | undefined {
  if (Object.is(before, after)) return undefined;
  if (!isContainer(before) || !isContainer(after) || Array.isArray(before) !== Array.isArray(after))
    return { path, before: before ?? null, after: after ?? null };
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const pointer = `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    const found = jsonDifference(getMember(before, name), getMember(after, name), pointer);
    if (found) return found;
  }
  return undefined;
}

const isContainer = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;

const getMember = (value: Record<string, unknown>, name: string): unknown =>
  Object.hasOwn(value, name) ? value[name] : undefined;
