import { z } from 'zod';
import { storedIdentifierSchema } from '../../../core/session.ts';
import { pageSize } from './parameters.ts';
import { ValidationFailedError, valueError } from './request-errors.ts';

/** A place in a list that is sorted by a time, then by id. */
export interface ListPlace {
  /** ISO 8601 in UTC with microseconds, as the rows have them: a `Date` would lose three digits. */
  time: string;
  id: string;
  /** Name of what the list is sorted by, where a list can be sorted in several ways. */
  sort?: string | undefined;
}

/** The cursor of a query; one of a time and an id is shorter. */
export const cursorSchema = z.string().max(2_048).optional().describe('The `nextCursor` of the page before.');

/** The query of a list in pages: of 100 things each, unless it says otherwise. */
export const pageQuery = (things: string) =>
  z.object({ limit: pageSize(`Maximum number of ${things}.`).default(100), cursor: cursorSchema });

/** PostgreSQL has no year 0. */
const TIME = /^(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
/** `YYYY-MM-DDThh:mm:ss`. */
const TO_SECONDS = 19;

/** A place as clients carry it from one page to the next; what is in it is not theirs to know. */
export const toCursor = ({ time, id, sort }: ListPlace): string =>
  Buffer.from(JSON.stringify([time, id, sort])).toString('base64url');

/** The place of a cursor; `undefined` for a text that {@link toCursor} did not make. */
export function readCursor(cursor: string): ListPlace | undefined {
  try {
    const [time, id, sort] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    if (typeof time !== 'string' || !isTime(time)) return undefined;
    const identifier = storedIdentifierSchema.safeParse(id);
    return identifier.success ? { time, id: identifier.data, ...(typeof sort === 'string' && { sort }) } : undefined;
  } catch {
    return undefined;
  }
}

/** The place of a cursor that may be absent. @throws {ValidationFailedError} for what is none. */
export function toPlace(cursor: string | undefined): ListPlace | undefined {
  const place = cursor === undefined ? undefined : readCursor(cursor);
  if (cursor !== undefined && !place)
    throw new ValidationFailedError([valueError(['query', 'cursor'], 'this is no cursor of a list', cursor)]);
  return place;
}

/** An item of a list with its place, and whether it fits its page [it does]: what does not is for the next. */
export type Listed<Item> = Item & { place: ListPlace; fits?: boolean };

/** Returns a page on the wire of what was found: one item more where there is a next page. */
export function toPage<Item, Wire>(found: Listed<Item>[], limit: number, toWire: (item: Listed<Item>) => Wire) {
  const items = found.slice(0, limit).filter(({ fits }) => fits !== false);
  const last = found.length > items.length ? items.at(-1) : undefined;
  return { items: items.map(toWire), nextCursor: last && toCursor(last.place) };
}

/** True for a time that exists: a 31st of February comes back as another day. */
function isTime(text: string): boolean {
  if (!TIME.test(text)) return false;
  const time = new Date(text);
  return !Number.isNaN(time.getTime()) && time.toISOString().startsWith(text.slice(0, TO_SECONDS));
}
