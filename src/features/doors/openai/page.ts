import type { JsonObject } from '../../../core/content.ts';
import { RequestError } from './errors.ts';

/** Characters of JSON from which on a page ends. */
const MAX_CHARACTERS = 4_194_304;

/** The start and the direction of a list of items. */
export interface Page {
  after?: string | undefined;
  limit: number;
  order: 'asc' | 'desc';
}

/** Returns a page of items given oldest first. @throws {RequestError} for an `after` that is none of them */
export function toPage(items: JsonObject[], { after, limit, order }: Page): JsonObject {
  const all = order === 'asc' ? items : items.toReversed();
  const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) throw new RequestError(`There is no item ${after}.`, { param: 'after' });
  let characters = 0;
  const fits = (item: JsonObject) => (characters += JSON.stringify(item).length) <= MAX_CHARACTERS;
  const data = all.slice(from, from + limit).filter((item, index) => fits(item) || index === 0);
  const [first_id, last_id] = [data.at(0)?.['id'] ?? null, data.at(-1)?.['id'] ?? null];
  return { object: 'list', data, first_id, last_id, has_more: all.length > from + data.length };
}
