import { Cron } from 'croner';
import { z } from 'zod';
import { BoundedCache } from '../../platform/work/bounded-cache.ts';

export const MAX_CRON_LENGTH = 256;

const CRON_FIELDS = 5;
const DAY_MS = 86_400_000;
const DATE_TIME = z.regexes.datetime({ local: true, offset: true });
const OFFSET = /(?:Z|[+-]\d\d:?\d\d)$/;
/** Matches `Etc/GMT+5`, `America/Port_of_Spain`, `UTC`, but not offsets (`+02:00`), which `Intl` accepts. */
const ZONE_NAME = /^[A-Za-z][\w+-]*(?:\/[\w+-]+)*$/;

/**
 * Returns the next times of a five-field cron expression strictly after a moment. Lists and ranges of hours and minutes
 * count as fixed times (`no-wildcard`): by croner's default they would fire twice when clocks go back, and not at all
 * when clocks go forward.
 */
export function getNextCronTimes(cron: string, timezone: string, after: Date, count: number): Date[] {
  const times = read(cron, timezone).nextRuns(count, after);
  const skipped = findSkippedTimes(cron, timezone, after, times.at(-1) ?? after);
  return sortTimes([...times, ...skipped]).slice(0, count);
}

/** Lists a cron's past times, newest first; otherwise like {@link getNextCronTimes}. */
export function getPreviousCronTimes(cron: string, timezone: string, before: Date, count: number): Date[] {
  const times = read(cron, timezone).previousRuns(count, before);
  const skipped = findSkippedTimes(cron, timezone, times.at(-1) ?? before, new Date(before.getTime() - 1));
  return sortTimes([...times, ...skipped])
    .toReversed()
    .slice(0, count);
}

/**
 * Matches a wildcard or step in minutes or hours: a cron that fires at intervals needs no substitute for skipped times.
 */
const PACE = /^\s*(?:\S*[*/?]|\S+\s+\S*[*/?])/;

/**
 * Substitutes for fixed times that a clock change across midnight skips, because the library croner omits these times.
 */
const findSkippedTimes = (cron: string, timezone: string, after: Date, upTo: Date): Date[] =>
  PACE.test(cron)
    ? []
    : listMidnightGaps(timezone, after, upTo)
        .filter(({ from, to }) => matchesBetween(read(cron, 'UTC'), from, to))
        .map(({ at }) => at);

/** True if a cron pattern matches any wall-clock time from `from` (inclusive) to `to` (exclusive). */
function matchesBetween(pattern: Cron, from: Date, to: Date): boolean {
  const first = pattern.nextRun(new Date(from.getTime() - 1000));
  return first !== null && first < to;
}

const sortTimes = (times: Date[]): Date[] =>
  [...new Set(times.map((time) => time.getTime()))].toSorted((a, b) => a - b).map((ms) => new Date(ms));

const read = (cron: string, timezone: string) =>
  new Cron(cron, { timezone, mode: '5-part', fixedTimeRule: 'no-wildcard', paused: true });

export function cronError(cron: string): string | undefined {
  const fields = cron.trim().split(/\s+/).length;
  if (fields !== CRON_FIELDS)
    return `a cron expression has ${CRON_FIELDS} fields, this has ${cron.trim() ? fields : 0}`;
  try {
    getNextCronTimes(cron, 'UTC', new Date(0), 0);
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

/**
 * Converts a date and time to a moment in whole seconds. A time without an offset is a wall-clock time of `timezone`:
 * if a clock change skips it, the first moment after the change is returned; if it occurs twice, the first moment.
 * @returns `undefined` if the clock changes of the time zone cannot be computed for that year
 */
export function toInstant(dateTime: string, timezone: string): Date | undefined {
  if (OFFSET.test(dateTime)) return new Date(dateTime);
  const [year, month, day, hour, minute, second = '0'] = dateTime.split(/[-T:.]/);
  // The date is a cron pattern, because croner would shift a date that a clock change skips by the length of the
  // change.
  const fields = [second, minute, hour, day, month, '*', year].map((field) => (field === '*' ? field : Number(field)));
  const midnight = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const before = new Date(midnight - 2 * DAY_MS);
  const pattern = (zone: string) => new Cron(fields.join(' '), { timezone: zone, mode: '7-part', paused: true });
  const next = pattern(timezone).nextRun(before);
  if (next) return next;
  const gaps = listMidnightGaps(timezone, before, new Date(midnight + 2 * DAY_MS));
  return gaps.find(({ from, to }) => matchesBetween(pattern('UTC'), from, to))?.at;
}

/** Clock change that skips midnight (Nuuk) or a whole day (Apia, 2011). Wall-clock times are written as if in UTC. */
interface MidnightGap {
  /** The first moment after the clock change. */
  at: Date;
  /** The first skipped wall-clock time. */
  from: Date;
  /** The wall-clock midnight that begins the first day with times that are not skipped. */
  to: Date;
}

/** A week, because no zone changes clocks forward and back within one. The shortest known period is five weeks. */
const STEP_MS = 7 * DAY_MS;
const gapsByYear = new BoundedCache<MidnightGap[]>();

/** Lists a time zone's clock changes that skip midnight, from `after` (exclusive) to `upTo` (inclusive), in order. */
function listMidnightGaps(timezone: string, after: Date, upTo: Date): MidnightGap[] {
  const years = upTo.getUTCFullYear() - after.getUTCFullYear() + 1;
  return Array.from({ length: years }, (_, n) => findGaps(timezone, after.getUTCFullYear() + n))
    .flat()
    .filter(({ at }) => at > after && at <= upTo);
}

/** Caches a time zone's clock changes as long as the process runs. */
function findGaps(timezone: string, year: number): MidnightGap[] {
  const name = `${timezone} ${year}`;
  const cached = gapsByYear.get(name);
  if (cached) return cached;
  const gaps: MidnightGap[] = [];
  const wallAt = createWallClock(timezone);
  const offsetAt = (ms: number) => wallAt(ms) - ms;
  const end = Date.UTC(year + 1, 0, 1);
  for (let start = Date.UTC(year, 0, 1), before = offsetAt(start); start < end; start += STEP_MS) {
    const stop = Math.min(start + STEP_MS, end);
    const offset = offsetAt(stop);
    if (offset > before) {
      const at = findFirst(start, stop, (ms) => offsetAt(ms) > before);
      const from = at + before;
      const to = Math.floor(wallAt(at) / DAY_MS) * DAY_MS;
      if (from < to) gaps.push({ at: new Date(at), from: new Date(from), to: new Date(to) });
    }
    before = offset;
  }
  gapsByYear.set(name, gaps);
  return gaps;
}

/** Binary search: returns the first whole second in (`low`, `high`] from which `holds` is true. */
function findFirst(low: number, high: number, holds: (ms: number) => boolean): number {
  if (high - low <= 1000) return high;
  const middle = low + Math.floor((high - low) / 2000) * 1000;
  return holds(middle) ? findFirst(low, middle, holds) : findFirst(middle, high, holds);
}

/** Returns a function that converts a moment to the wall-clock time of a zone, in whole seconds, as if it were UTC. */
function createWallClock(timeZone: string): (ms: number) => number {
  const format = new Intl.DateTimeFormat('en', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  return (ms) => {
    const parts = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
    return Date.UTC(year, month - 1, day, hour, minute, second);
  };
}
