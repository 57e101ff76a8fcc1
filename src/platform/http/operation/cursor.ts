import { z } from 'zod';
import { storedIdentifierSchema } from '../../../core/session.ts';
import { pageSize } from './parameters.ts';
import { ValidationFailedError, valueError } from './request-errors.ts';

/** A position in a list that is sorted by time, then by id (keyset pagination). */
export interface ListPlace {
  /** ISO 8601 in UTC with microseconds, the precision of the rows: a `Date` would lose three digits. */
  time: string;
  id: string;
  /** Name of the sort order, if the list supports several. */
  sort?: string | undefined;
}

/** Response header with the cursor of the next page, if the body has no member for it; absent on the last page. */
export const NEXT_CURSOR_HEADER = 'x-next-cursor';
export const nextCursorHeader = { 'X-Next-Cursor': 'The `cursor` of the next page; absent on the last one.' };

/** The query parameter `cursor`. Its maximum length allows for long ids; most cursors are much shorter. */
export const cursorSchema = z
  .string()
  .max(2_048)
  .optional()
  .describe('The `nextCursor` of the page before, or its header `X-Next-Cursor`.');

/** Query parameters of a paginated list; a page has at most 100 `things` unless the client asks for another number. */
export const pageQuery = (things: string) =>
  z.object({ limit: pageSize(`Maximum number of ${things}.`).default(100), cursor: cursorSchema });

/** A cursor's time. PostgreSQL has no year 0. */
const TIME = /^(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
/** Length of `YYYY-MM-DDThh:mm:ss`. */
const TO_SECONDS = 19;

export const toCursor = ({ time, id, sort }: ListPlace): string =>
  Buffer.from(JSON.stringify([time, id, sort])).toString('base64url');

/** @returns `undefined` for a text that {@link toCursor} did not create */
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

const invalidCursor = (why: string, cursor?: string) =>
  new ValidationFailedError([valueError(['query', 'cursor'], why, cursor)]);

/** @throws {ValidationFailedError} for an invalid cursor, or for one of another sort order than `sort` */
export function toPlace(cursor: string | undefined, sort?: string): ListPlace | undefined {
  if (cursor === undefined) return undefined;
  const place = readCursor(cursor);
  if (!place) throw invalidCursor('this is no cursor of a list', cursor);
  if (place.sort !== sort) throw invalidCursor('it is of a list in another order');
  return place;
}

/** A cursor of a list that is sorted by several texts. */
export const toTextCursor = (texts: readonly string[]): string =>
  Buffer.from(JSON.stringify(texts)).toString('base64url');

/** @returns the texts of {@link toTextCursor}. @throws {ValidationFailedError} if these are not `count` texts */
export function readTextCursor(cursor: string | undefined, count: number): string[] | undefined {
  if (cursor === undefined) return undefined;
  try {
    const texts = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    if (texts.length === count && texts.every((text) => typeof text === 'string' && !text.includes('\0')))
      return texts as string[];
  } catch {
    // It is refused below.
  }
  throw invalidCursor('this is no cursor of a list', cursor);
}

/** A constant time, because every cursor has a time. */
const NO_TIME = '1970-01-01T00:00:00.000000Z';

/** The position of an item in a list that is sorted by id alone. */
export const placeById = (id: string): ListPlace => ({ time: NO_TIME, id });

/** `fits` is false for an item that exceeds the page's size in bytes and starts the next page. */
export type Listed<Item> = Item & { place: ListPlace; fits?: boolean };

/**
 * Reads the page that a query asks for, as it is sent to the client.
 * @param read - lists at most `limit` items after a position: one more than the page has, so that a next page shows
 * @throws {ValidationFailedError} for an invalid cursor
 */
export async function readPage<Item extends object, Wire = Omit<Listed<Item>, 'place' | 'fits'>>(
  { limit, cursor }: z.output<ReturnType<typeof pageQuery>>,
  read: (limit: number, after: ListPlace | undefined) => Promise<Listed<Item>[]>,
  toWire: (item: Listed<Item>) => Wire = ({ place: _place, fits: _fits, ...shown }) => shown as Wire,
) {
  const found = await read(limit + 1, toPlace(cursor));
  const items = found.slice(0, limit).filter(({ fits }) => fits !== false);
  const last = found.length > items.length ? items.at(-1) : undefined;
  return { items: items.map(toWire), nextCursor: last && toCursor(last.place) };
}

/** JavaScript turns 31 February into a day in March, so it does not come back unchanged. */
function isTime(text: string): boolean {
  if (!TIME.test(text)) return false;
  const time = new Date(text);
  return !Number.isNaN(time.getTime()) && time.toISOString().startsWith(text.slice(0, TO_SECONDS));
}
