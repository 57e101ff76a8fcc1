import { ValidationFailedError, valueError } from './request-errors.ts';

/** A place in a list: after what was created then, and has this id. */
export interface ListPlace {
  time: Date;
  id: string;
}

/** A place as clients carry it from one page to the next; what is in it is not theirs to know. */
export const toCursor = ({ time, id }: ListPlace): string =>
  Buffer.from(JSON.stringify([time.getTime(), id])).toString('base64url');

/** The place of a cursor. @throws {ValidationFailedError} for what is none. */
export function toPlace(cursor: string | undefined): ListPlace | undefined {
  if (cursor === undefined) return undefined;
  try {
    const [ms, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    if (Number.isSafeInteger(ms) && Math.abs(ms as number) < 8.64e15 && typeof id === 'string' && !id.includes('\0')) {
      return { time: new Date(ms as number), id };
    }
  } catch {
    // Not ours.
  }
  throw new ValidationFailedError([valueError(['query', 'cursor'], 'this is no cursor of a list', cursor)]);
}
