import { z } from 'zod';

/** Members whose name in `harness.yaml` is not their name in snake_case. */
const OTHERWISE = new Map([
  ['instruction', 'system_prompt'],
  ['kind', 'type'],
  ['maxOutputTokens', 'max_tokens'],
  ['stopSequences', 'stop'],
]);

/** Returns the name of a member in `harness.yaml`. */
export const toWritten = (member: string): string =>
  OTHERWISE.get(member) ?? member.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** A value in which the members of a schema have their names in code, and the paths of the members that it has not. */
interface Renamed {
  value: unknown;
  unknown: PropertyKey[][];
}

/** Renames the members of a value that is written in snake_case. Keys that its author chose stay as they are. */
export function fromWritten(schema: z.ZodType, written: unknown): Renamed {
  const unknown: PropertyKey[][] = [];
  const rename = (inner: z.ZodType, value: unknown, path: PropertyKey[]): unknown => {
    if (inner instanceof z.ZodOptional || inner instanceof z.ZodLazy)
      return rename(inner.unwrap() as z.ZodType, value, path);
    if (typeof value !== 'object' || value === null) return value;
    if (inner instanceof z.ZodUnion) {
      const whole = (inner.options as z.ZodType[]).find((option) => option instanceof z.ZodObject);
      return whole ? rename(whole, value, path) : value;
    }
    if (Array.isArray(value))
      return inner instanceof z.ZodArray
        ? value.map((each, place) => rename(inner.element as z.ZodType, each, [...path, place]))
        : value;
    if (inner instanceof z.ZodRecord) {
      const entries = Object.entries(value).map(([key, each]) => [
        key,
        rename(inner.valueType as z.ZodType, each, [...path, key]),
      ]);
      return Object.fromEntries(entries) as object;
    }
    if (!(inner instanceof z.ZodObject)) return value;
    const members = new Map(Object.entries(inner.shape).map(([name, member]) => [toWritten(name), { name, member }]));
    const entries = Object.entries(value).flatMap(([key, each]) => {
      const known = members.get(key);
      if (known) return [[known.name, rename(known.member as z.ZodType, each, [...path, key])]];
      unknown.push([...path, key]);
      return [];
    });
    return Object.fromEntries(entries) as object;
  };
  return { value: rename(schema, written, []), unknown };
}

/** Returns the path of a value in what is written, by its path in the renamed value. */
export function toWrittenPath(path: PropertyKey[], written: unknown): PropertyKey[] {
  let value = written;
  return path.map((step) => {
    const members = (typeof value === 'object' && value !== null ? value : {}) as Record<PropertyKey, unknown>;
    const own = typeof step === 'string' && !Object.hasOwn(members, step) ? toWritten(step) : step;
    value = members[own];
    return own;
  });
}

type RequiredKeys<T> = {
  [Key in keyof T]-?: undefined extends T[Key] ? never : null extends T[Key] ? never : Key;
}[keyof T];
type Present<T> = { [Key in keyof T]: NonNullable<T[Key]> };

/** Returns an object without its undefined and null members. */
export function withoutAbsent<T extends object>(value: T): Partial<Present<T>> & Pick<Present<T>, RequiredKeys<T>> {
  return Object.fromEntries(
    Object.entries(value).filter(([, member]) => member !== undefined && member !== null),
  ) as never;
}
