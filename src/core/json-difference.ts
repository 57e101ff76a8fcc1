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
  const names: string[] = [];
  const found = findDifference(before, after, names);
  const pointer = names.toReversed().map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`);
  return found && { path: path + pointer.join(''), before: found.before ?? null, after: found.after ?? null };
}

/** Adds the names that lead to the difference, the innermost first. */
function findDifference(before: unknown, after: unknown, names: string[]): Omit<JsonDifference, 'path'> | undefined {
  if (Object.is(before, after)) return undefined;
  if (!isContainer(before) || !isContainer(after) || Array.isArray(before) !== Array.isArray(after)) {
    return { before, after };
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    for (let place = 0; place < before.length || place < after.length; place += 1) {
      const found = findDifference(before[place], after[place], names);
      if (found) return named(found, names, `${place}`);
    }
    return undefined;
  }
  for (const name of Object.keys(before)) {
    const found = findDifference(before[name], getMember(after, name), names);
    if (found) return named(found, names, name);
  }
  for (const name of Object.keys(after)) {
    const found = Object.hasOwn(before, name) ? undefined : findDifference(undefined, after[name], names);
    if (found) return named(found, names, name);
  }
  return undefined;
}

function named<Found>(found: Found, names: string[], name: string): Found {
  names.push(name);
  return found;
}

const isContainer = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;

const getMember = (value: Record<string, unknown>, name: string): unknown =>
  Object.hasOwn(value, name) ? value[name] : undefined;
