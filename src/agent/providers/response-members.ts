import type { JsonObject } from '../../core/content.ts';
import { isExactInteger } from '../../core/exact-json.ts';

/** Functions that read a member of a provider's response; the member may be missing, null or of another type. */

export const toObject = (value: unknown): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
    ? (value as JsonObject)
    : undefined;

/** Returns the objects of a list, or a single object as a list. */
export function toObjects(value: unknown): JsonObject[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map(toObject).filter((each) => each !== undefined);
}

/** Returns a string that is not empty. */
export const toWord = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;

/** Returns a number, which may be written as a string. */
export function toNumber(value: unknown): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

/** Returns an object with only the members that are numbers, at any depth. */
export function toNumbers(value: unknown): JsonObject | undefined {
  const object = toObject(value);
  if (!object) return undefined;
  const members = Object.entries(object).flatMap(([name, each]): [string, unknown][] => {
    const number = toNumber(each) ?? toNumbers(each);
    return number === undefined ? [] : [[name, number]];
  });
  return Object.fromEntries(members);
}

export function toArgumentsText(value: unknown): string {
  if (typeof value === 'string') return value.trim() === 'null' ? '' : value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}
