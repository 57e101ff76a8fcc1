import { Cron, CronDate } from 'croner';
import { z } from 'zod';

export const MAX_CRON_LENGTH = 256;

const CRON_FIELDS = 5;
const DAY_MS = 86_400_000;
const DATE_TIME = z.regexes.datetime({ local: true, offset: true });
const OFFSET = /(?:Z|[+-]\d\d:?\d\d)$/;
/** Matches `Etc/GMT+5`, `America/Port_of_Spain`, `UTC`, but not offsets (`+02:00`), which `Intl` accepts. */
const ZONE_NAME = /^[A-Za-z][\w+-]*(?:\/[\w+-]+)*$/;

/**
 * Reads a five-field cron expression. Without a wildcard or step in its minutes and hours (`isTimeOfDay`) it is matched
 * with wall-clock times, because croner omits those that a clock change across midnight skips. With one it keeps its
 * pace: croner matches it in the time zone, and so omits what a clock change skips and repeats what it repeats.
 */
function readCron(cron: string, timezone: string): { pattern: Cron; isTimeOfDay: boolean } {
  const [minute = '', hour = '', monthDay = '', , weekday = ''] = cron.trim().split(/\s+/);
  const isTimeOfDay = !/[*/?]/.test(minute + hour);
  // As in Vixie cron a day has to match both day fields if one of them begins with a wildcard, otherwise either of them.
  const domAndDow = [monthDay, weekday].some((field) => /^[*?]/.test(field));
  const pattern = new Cron(cron, { timezone: isTimeOfDay ? 'UTC' : timezone, mode: '5-part', domAndDow, paused: true });
  return { pattern, isTimeOfDay };
}

/** Yields the times of a cron expression after a moment, in whole seconds. */
export function* cronTimesAfter(cron: string, timezone: string, after: Date): Generator<Date> {
  const { pattern, isTimeOfDay } = readCron(cron, timezone);
  let last = after;
  let match = pattern.nextRun(isTimeOfDay ? toWallClock(after, timezone) : after);
  for (; match; match = pattern.nextRun(match)) {
    const time = isTimeOfDay ? fromWallClock(match, timezone) : match;
    if (time > last) yield (last = time);
  }
}

/** Yields the times of a cron expression before a moment, newest first. */
export function* cronTimesBefore(cron: string, timezone: string, before: Date): Generator<Date> {
  const { pattern, isTimeOfDay } = readCron(cron, timezone);
  let last = before;
  let [match] = pattern.previousRuns(1, isTimeOfDay ? latestWallClock(before, timezone) : before);
  for (; match; [match] = pattern.previousRuns(1, match)) {
    const time = isTimeOfDay ? fromWallClock(match, timezone) : match;
    if (time < last) yield (last = time);
  }
}

export function cronError(cron: string): string | undefined {
  const fields = cron.trim().split(/\s+/).length;
  if (fields !== CRON_FIELDS)
    return `a cron expression has ${CRON_FIELDS} fields, this has ${cron.trim() ? fields : 0}`;
  try {
    readCron(cron, 'UTC');
    return undefined;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return `this is no cron expression: ${reason.replace(/^CronPattern: /, '')}`;
  }
}

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
function fromWallClock(wall: Date, timezone: string): Date {
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

const toWallClock = (moment: Date, timezone: string) =>
  new Date(moment.getTime() + offsetAt(moment.getTime(), timezone));

/** The latest wall-clock time that a zone's clock has shown until a moment: it may have gone back on the day before. */
function latestWallClock(moment: Date, timezone: string): Date {
  const ms = moment.getTime();
  return new Date(ms + Math.max(offsetAt(ms, timezone), offsetAt(ms - DAY_MS, timezone)));
}

/** The milliseconds by which a zone's clock is ahead of UTC. */
function offsetAt(ms: number, timezone: string): number {
  const { year, month, day, hour, minute, second, ms: fraction } = new CronDate(new Date(ms), timezone);
  return Date.UTC(year, month, day, hour, minute, second, fraction) - ms;
}
