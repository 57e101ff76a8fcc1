import { identifierSchema } from '../core/session.ts';

/** The place of one session in a list of sessions. */
export interface SessionCursor {
  /** ISO 8601 in UTC with microseconds. */
  updateTime: string;
  id: string;
}

/** PostgreSQL has no year 0. */
const TIME = /^(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
/** `YYYY-MM-DDThh:mm:ss`. */
const TO_SECONDS = 19;

/** A cursor as clients carry it from one page to the next: opaque to them. */
export const encodeCursor = ({ updateTime, id }: SessionCursor): string =>
  Buffer.from(JSON.stringify([updateTime, id])).toString('base64url');

/** The cursor that a text stands for; `undefined` for a text that {@link encodeCursor} did not make. */
export function decodeCursor(cursor: string): SessionCursor | undefined {
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
