import { CronDate } from 'croner';
import { z } from 'zod';

/** The clocks of time zones, by Node's zones alone: the database's may be older, and the two parts would disagree. */

const DAY_MS = 86_400_000;
const DATE_TIME = z.regexes.datetime({ local: true, offset: true });
const OFFSET = /(?:Z|[+-]\d\d:?\d\d)$/;
/** Matches `Etc/GMT+5`, `America/Port_of_Spain`, `UTC`, but not offsets (`+02:00`), which `Intl` accepts. */
const ZONE_NAME = /^[A-Za-z][\w+-]*(?:\/[\w+-]+)*$/;

/** A time zone's upper and lower case must be as in the IANA name, although `Intl` accepts any. */
export function timezoneError(timezone: string): string | undefined {
  const name = ZONE_NAME.test(timezone) ? toIntlName(timezone) : undefined;
  if (name === undefined) return 'there is no such time zone; give an IANA name, for example Europe/Berlin';
  return name !== timezone && name.toLowerCase() === timezone.toLowerCase()
    ? `the name of this time zone is written ${name}`
    : undefined;
}

function toIntlName(timeZone: string): string | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

/** Refuses dates before 1970 and after 2999, and a day that its month does not have. */
export function dateTimeError(text: string): string | undefined {
  if (!DATE_TIME.test(text)) return 'this is no date and time, for example 2026-12-24T18:00 or 2026-12-24T18:00:00Z';
  return text >= '1970' && text < '3000' ? undefined : 'the year is one from 1970 to 2999';
}

/** Converts a date and time, without an offset by the clock of `timezone` and in whole seconds, to a moment. */
export function toInstant(dateTime: string, timezone: string): Date {
  if (OFFSET.test(dateTime)) return new Date(dateTime);
  return fromWallClock(new Date(`${dateTime.replace(/\..*/, '')}Z`), timezone);
}

/**
 * Returns the first moment at which a zone's clock shows a wall-clock time, written as if in UTC, or a later one: of a
 * repeated time its first occurrence, of a skipped time the end of the gap.
 */
export function fromWallClock(wall: Date, timezone: string): Date {
  const ms = wall.getTime();
  // Offsets are shorter than a day, and no zone changes its clocks twice within two days.
  const before = offsetAt(ms - DAY_MS, timezone);
  const after = offsetAt(ms + DAY_MS, timezone);
  const moment = [ms - before, ms - after].find((each) => each + offsetAt(each, timezone) === ms);
  if (moment !== undefined) return new Date(moment);
  let [low, high] = [ms - after, ms - before];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetAt(middle, timezone) === before) low = middle;
    else high = middle;
  }
  return new Date(high);
}

export const toWallClock = (moment: Date, timezone: string) =>
  new Date(moment.getTime() + offsetAt(moment.getTime(), timezone));

/** The latest wall-clock time that a zone's clock has shown until a moment: it may have gone back on the day before. */
export function latestWallClock(moment: Date, timezone: string): Date {
  const ms = moment.getTime();
  return new Date(ms + Math.max(offsetAt(ms, timezone), offsetAt(ms - DAY_MS, timezone)));
}

/** The milliseconds by which a zone's clock is ahead of UTC. */
export function offsetAt(ms: number, timezone: string): number {
  const { year, month, day, hour, minute, second, ms: fraction } = new CronDate(new Date(ms), timezone);
  return Date.UTC(year, month, day, hour, minute, second, fraction) - ms;
}
