import { z } from 'zod';
import { textFormat } from '../../core/text-format.ts';
import {
  toInstant,
  MAX_CRON_LENGTH,
  getNextCronTimes,
  getPreviousCronTimes,
  cronError,
  dateTimeError,
  timezoneError,
} from './clock-times.ts';

/** Minimum and maximum length of an interval in seconds. The maximum is 366 days. */
const MIN_INTERVAL_SECONDS = 30;
const MAX_INTERVAL_SECONDS = 31_622_400;

const atMost = (maxLength: number) => z.string().max(maxLength, { abort: true });

/** A date and time, either with an offset or as wall-clock time of the schedule's time zone. */
export const dateTimeSchema = textFormat('schedule-time', dateTimeError, atMost(64));
const timeOfDay = textFormat('clock-time', (text) =>
  /^(?:[01]\d|2[0-3]):[0-5]\d$/.test(text) ? undefined : 'a time is HH:MM, from 00:00 to 23:59',
).describe('Hour and minute by the clock of `timezone`, as `HH:MM`.');
const weekday = z.int().min(0).max(6).describe('Day of the week; 0 is Sunday.');
const timezone = textFormat('time-zone', timezoneError, atMost(128))
  .optional()
  .describe('Name of an IANA time zone [UTC].');

const once = z.strictObject({
  type: z.literal('once').describe('Kind of the schedule.'),
  onceAt: dateTimeSchema.describe('A date and time; without an offset by the clock of `timezone`.'),
  timezone,
});
const interval = z.strictObject({
  type: z.literal('interval').describe('Kind of the schedule.'),
  intervalSeconds: z
    .int()
    .min(MIN_INTERVAL_SECONDS)
    .max(MAX_INTERVAL_SECONDS)
    .describe('Seconds from one time to the next.'),
  anchorAt: dateTimeSchema.optional().describe('When it fires first; by default one interval after the request.'),
  timezone,
});
const daily = z.strictObject({ type: z.literal('daily').describe('Kind of the schedule.'), time: timeOfDay, timezone });
const weekly = z
  .strictObject({
    type: z.literal('weekly').describe('Kind of the schedule.'),
    time: timeOfDay,
    weekday: weekday.optional(),
    weekdays: z.array(weekday).min(1).max(7).optional().describe('Several days of the week, in place of `weekday`.'),
    timezone,
  })
  .refine(
    (schedule) => (schedule.weekday === undefined) !== (schedule.weekdays === undefined),
    'a weekly schedule has either `weekday` or `weekdays`',
  );
const monthly = z.strictObject({
  type: z.literal('monthly').describe('Kind of the schedule.'),
  time: timeOfDay,
  monthDays: z
    .array(z.int().min(1).max(31))
    .min(1)
    .max(31)
    .describe('Days of the month; a month without that day is left out.'),
  timezone,
});
const cron = z.strictObject({
  type: z.literal('cron').describe('Kind of the schedule.'),
  cron: textFormat('cron', cronError, atMost(MAX_CRON_LENGTH)).describe(
    'Five fields: minute, hour, day of the month, month, day of the week. Names, `L` and `#` are known; where both ' +
      'days are given, either of them matches.',
  ),
  timezone,
});

/** A schedule in requests and responses. Properties of other schedule types are refused. */
export const scheduleSchema = z
  .discriminatedUnion('type', [once, interval, daily, weekly, monthly, cron], {
    error: ({ code }) =>
      code === 'invalid_union'
        ? "the type is one of 'once', 'interval', 'daily', 'weekly', 'monthly' and 'cron'"
        : undefined,
  })
  .describe(
    'When a cronjob fires, by the clock of `timezone`. A time that a change of the clocks leaves out fires at the ' +
      'first moment after the gap; a time that comes twice fires the first time only. A cron ' +
      'expression with a wildcard or a step in its minutes or hours is no time of the day: it keeps its pace ' +
      'through a repeated hour and skips what is left out.',
  );

export type Schedule = z.infer<typeof scheduleSchema>;

/** Next times in whole seconds, fewer than `count` if the schedule ends; intervals without anchor start at `after`. */
export function getNextTimes(schedule: Schedule, after: Date, count: number): Date[] {
  const zone = schedule.timezone ?? 'UTC';
  if (schedule.type === 'once') {
    const at = toInstant(schedule.onceAt, zone);
    return at && at > after ? [at] : [];
  }
  if (schedule.type === 'interval') {
    const anchor = schedule.anchorAt === undefined ? undefined : toInstant(schedule.anchorAt, zone);
    return intervalTimes(anchor ?? after, schedule.intervalSeconds * 1000, after, count);
  }
  return getNextCronTimes(toCron(schedule), zone, after, count);
}

/** Due times, oldest first; of more than `count` the newest. Includes `first`, even if time zone rules have changed. */
export function getTimesBetween(schedule: Schedule, first: Date, last: Date, count: number): Date[] {
  const [second] = getNextTimes(schedule, first, 1);
  if (!second || second > last) return [first];
  const times = getLastTimes(schedule, first, last, count);
  return times.length < count && (times[0] ?? last) > first ? [first, ...times] : times;
}

function getLastTimes(schedule: Schedule, first: Date, last: Date, count: number): Date[] {
  if (schedule.type === 'once') return [];
  if (schedule.type === 'interval') {
    const stepMs = schedule.intervalSeconds * 1000;
    const steps = Math.floor((last.getTime() - first.getTime()) / stepMs);
    const omitted = Math.max(0, steps + 1 - count);
    return Array.from({ length: steps + 1 - omitted }, (_, n) => new Date(first.getTime() + (omitted + n) * stepMs));
  }
  // One second is added, because croner excludes the moment itself and truncates to seconds.
  const end = new Date(Math.floor(last.getTime() / 1000) * 1000 + 1000);
  const times = getPreviousCronTimes(toCron(schedule), schedule.timezone ?? 'UTC', end, count);
  return times.filter((time) => time >= first).toReversed();
}

function toCron(schedule: Exclude<Schedule, { type: 'once' | 'interval' }>): string {
  if (schedule.type === 'cron') return schedule.cron;
  if (schedule.type === 'daily') return `${clock(schedule.time)} * * *`;
  if (schedule.type === 'monthly') return `${clock(schedule.time)} ${schedule.monthDays.join(',')} * *`;
  return `${clock(schedule.time)} * * ${(schedule.weekdays ?? [schedule.weekday]).join(',')}`;
}

/** Converts `08:05` to the minute and hour fields of a cron expression. */
const clock = (time: string) => time.split(':').map(Number).toReversed().join(' ');

/** An interval schedule counts elapsed time, regardless of clock changes. */
function intervalTimes(anchor: Date, stepMs: number, after: Date, count: number): Date[] {
  const passed = Math.floor((after.getTime() - anchor.getTime()) / stepMs);
  const first = anchor.getTime() + Math.max(0, passed + 1) * stepMs;
  return Array.from({ length: count }, (_, position) => new Date(first + position * stepMs));
}

/** Stores the moment from which a schedule's intervals count, because later changes must not shift its due times. */
export function withAnchor(schedule: Schedule, now: Date): Schedule {
  if (schedule.type !== 'interval' || schedule.anchorAt !== undefined) return schedule;
  const [first = now] = getNextTimes(schedule, now, 1);
  return { ...schedule, anchorAt: first.toISOString() };
}

/** Returns why a schedule never fires after `now` and before `until`, or `undefined` if it fires. */
export function neverFiresReason(schedule: Schedule, now: Date, until?: Date): string | undefined {
  const [first] = getNextTimes(schedule, now, 1);
  if (first && (!until || first < until)) return undefined;
  if (first && until) {
    const times = `its first time, ${first.toISOString()}, is not before its end, ${until.toISOString()}`;
    return `The schedule never fires: ${times}.`;
  }
  return schedule.type === 'once'
    ? `The schedule never fires: ${schedule.onceAt} is over, or no such time exists.`
    : 'The schedule never fires: no date matches it.';
}
