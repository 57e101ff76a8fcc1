import { Cron } from 'croner';
import { z } from 'zod';

/** Longest cron expression in characters. */
export const MAX_CRON_LENGTH = 256;

const CRON_FIELDS = 5;
const DATE_TIME = z.regexes.datetime({ local: true, offset: true });
const OFFSET = /(?:Z|[+-]\d\d:?\d\d)$/;
/** `Etc/GMT+5`, `America/Port_of_Spain`, `UTC`: what Intl takes beside names (`+02:00`) is left out. */
const ZONE_NAME = /^[A-Za-z][\w+-]*(?:\/[\w+-]+)*$/;

/**
 * The next times that a cron expression of five fields matches in a zone after a moment, that moment left out.
 * Lists and ranges of hours and minutes are times of the day like single ones (`no-wildcard`): by croner's default
 * they would fire twice when the clocks go back, and not at all when they go forward.
 */
export const nextCronTimes = (cron: string, timezone: string, after: Date, count: number): Date[] =>
  read(cron, timezone).nextRuns(count, after);

/** As {@link nextCronTimes}, the last times before a moment, newest first. */
export const previousCronTimes = (cron: string, timezone: string, before: Date, count: number): Date[] =>
  read(cron, timezone).previousRuns(count, before);

const read = (cron: string, timezone: string) =>
  new Cron(cron, { timezone, mode: '5-part', fixedTimeRule: 'no-wildcard', paused: true });

/** Why a text is no cron expression, a sentence; `undefined` for one. */
export function whyNoCron(cron: string): string | undefined {
  const fields = cron.trim().split(/\s+/).length;
  if (fields !== CRON_FIELDS)
    return `a cron expression has ${CRON_FIELDS} fields, this has ${cron.trim() ? fields : 0}`;
  try {
    nextCronTimes(cron, 'UTC', new Date(0), 0);
    return undefined;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return `this is no cron expression: ${reason.replace(/^CronPattern: /, '')}`;
  }
}

/**
 * Why a text names no IANA time zone, a sentence; `undefined` where it does. Intl takes names in any case, the list of
 * zones does not.
 */
export function whyNoTimezone(timezone: string): string | undefined {
  const known = ZONE_NAME.test(timezone) ? intlName(timezone) : undefined;
  if (known === undefined) return 'there is no such time zone; give an IANA name, for example Europe/Berlin';
  return known !== timezone && known.toLowerCase() === timezone.toLowerCase()
    ? `the name of this time zone is written ${known}`
    : undefined;
}

function intlName(timeZone: string): string | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

/**
 * Why a text is no date and time of the years 1970 to 2999, a sentence; `undefined` where it is. Days that a month
 * lacks are none.
 */
export function whyNoDateTime(text: string): string | undefined {
  if (!DATE_TIME.test(text)) return 'this is no date and time, for example 2026-12-24T18:00 or 2026-12-24T18:00:00Z';
  return text >= '1970' && text < '3000' ? undefined : 'the year is one from 1970 to 2999';
}

/**
 * The moment of a date and time in whole seconds. Without an offset it is by the clock of `timezone`, where a time
 * that does not exist is the first moment after the gap and a time that comes twice its first.
 * @returns `undefined` for a time of a day that a zone left out, such as the last 30th of December in Samoa's 2011.
 */
export function instantOf(dateTime: string, timezone: string): Date | undefined {
  if (OFFSET.test(dateTime)) return new Date(dateTime);
  const [year, month, day, hour, minute, second = '0'] = dateTime.split(/[-T:.]/);
  // As a pattern and not as a date, which croner would move across a gap by its whole length.
  const pattern = [second, minute, hour, day, month, '*', year].map((field) => (field === '*' ? field : Number(field)));
  const before = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day) - 2));
  return new Cron(pattern.join(' '), { timezone, mode: '7-part', paused: true }).nextRun(before) ?? undefined;
}
