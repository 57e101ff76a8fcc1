import { Cron } from 'croner';
import { fromWallClock, latestWallClock, toWallClock } from '../../core/time-zones.ts';

export const MAX_CRON_LENGTH = 256;

const CRON_FIELDS = 5;

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
