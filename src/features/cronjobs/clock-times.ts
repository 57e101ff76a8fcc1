import { Cron } from 'croner';
import { z } from 'zod';
import { midnightGaps } from './midnight-gaps.ts';

/** Longest cron expression in characters. */
export const MAX_CRON_LENGTH = 256;

const CRON_FIELDS = 5;
const DAY_MS = 86_400_000;
const DATE_TIME = z.regexes.datetime({ local: true, offset: true });
const OFFSET = /(?:Z|[+-]\d\d:?\d\d)$/;
/** `Etc/GMT+5`, `America/Port_of_Spain`, `UTC`: what Intl takes beside names (`+02:00`) is left out. */
const ZONE_NAME = /^[A-Za-z][\w+-]*(?:\/[\w+-]+)*$/;

/**
 * The next times that a cron expression of five fields matches in a zone after a moment, that moment left out.
 * Lists and ranges of hours and minutes are times of the day like single ones (`no-wildcard`): by croner's default
 * they would fire twice when the clocks go back, and not at all when they go forward.
 */
export function nextCronTimes(cron: string, timezone: string, after: Date, count: number): Date[] {
  const times = read(cron, timezone).nextRuns(count, after);
  const left = leftOutTimes(cron, timezone, after, times.at(-1) ?? after);
  return inOrder([...times, ...left]).slice(0, count);
}

/** As {@link nextCronTimes}, the last times before a moment, newest first. */
export function previousCronTimes(cron: string, timezone: string, before: Date, count: number): Date[] {
  const times = read(cron, timezone).previousRuns(count, before);
  const left = leftOutTimes(cron, timezone, times.at(-1) ?? before, new Date(before.getTime() - 1));
  return inOrder([...times, ...left])
    .toReversed()
    .slice(0, count);
}

/** A wildcard or a step in the minutes or hours is a pace, which goes on after a gap by itself. */
const PACE = /^\s*(?:\S*[*/?]|\S+\s+\S*[*/?])/;

/**
 * The moments that stand for times of the day in gaps over midnight. croner moves a time in a gap to its end on the
 * same day only: where that is the next day it fires nothing.
 */
const leftOutTimes = (cron: string, timezone: string, after: Date, upTo: Date): Date[] =>
  PACE.test(cron)
    ? []
    : midnightGaps(timezone, after, upTo)
        .filter(({ from, to }) => matchesBetween(read(cron, 'UTC'), from, to))
        .map(({ at }) => at);

/** Whether a pattern matches a wall time from one to before another. */
function matchesBetween(pattern: Cron, from: Date, to: Date): boolean {
  const first = pattern.nextRun(new Date(from.getTime() - 1000));
  return first !== null && first < to;
}

const inOrder = (times: Date[]): Date[] =>
  [...new Set(times.map((time) => time.getTime()))].toSorted((a, b) => a - b).map((ms) => new Date(ms));

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
 * @returns `undefined` for a year that no clock can be computed for.
 */
export function instantOf(dateTime: string, timezone: string): Date | undefined {
  if (OFFSET.test(dateTime)) return new Date(dateTime);
  const [year, month, day, hour, minute, second = '0'] = dateTime.split(/[-T:.]/);
  // As a pattern and not as a date, which croner would move across a gap by its whole length.
  const fields = [second, minute, hour, day, month, '*', year].map((field) => (field === '*' ? field : Number(field)));
  const midnight = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const before = new Date(midnight - 2 * DAY_MS);
  const pattern = (zone: string) => new Cron(fields.join(' '), { timezone: zone, mode: '7-part', paused: true });
  const found = pattern(timezone).nextRun(before);
  if (found) return found;
  const gaps = midnightGaps(timezone, before, new Date(midnight + 2 * DAY_MS));
  return gaps.find(({ from, to }) => matchesBetween(pattern('UTC'), from, to))?.at;
}
