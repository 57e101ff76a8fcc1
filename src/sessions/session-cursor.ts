import { identifierSchema } from '../core/session.ts';

/** A place in a list of sessions: that of one session. */
export interface ListPlace {
  /** ISO 8601 in UTC with microseconds. */
  updateTime: string;
  id: string;
}

/** PostgreSQL has no year 0. */
const TIME = /^(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
/** `YYYY-MM-DDThh:mm:ss`. */
const TO_SECONDS = 19;

/** A place as clients carry it from one page to the next; what is in it is not theirs to know. */
export const toCursor = ({ updateTime, id }: ListPlace): string =>
  Buffer.from(JSON.stringify([updateTime, id])).toString('base64url');

/** The place that a cursor stands for; `undefined` for a text that {@link toCursor} did not make. */
export function fromCursor(cursor: string): ListPlace | undefined {
  try {
    const [updateTime, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    if (typeof updateTime !== 'string' || !isTime(updateTime)) return undefined;
    const identifier = identifierSchema.safeParse(id);
    return identifier.success ? { updateTime, id: identifier.data } : undefined;
  } catch {
    return undefined;
  }
}

/** True for a time that exists: a 31st of February comes back as another day. */
function isTime(text: string): boolean {
  if (!TIME.test(text)) return false;
  const time = new Date(text);
  return !Number.isNaN(time.getTime()) && time.toISOString().startsWith(text.slice(0, TO_SECONDS));
}
