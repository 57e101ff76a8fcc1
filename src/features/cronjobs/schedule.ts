import { z } from 'zod';
import { textFormat } from '../../core/text-format.ts';
import { dateTimeError, timezoneError, toInstant } from '../../core/time-zones.ts';
import { MAX_CRON_LENGTH, cronTimesAfter, cronTimesBefore, cronError } from './clock-times.ts';

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
      'days are given, either of them matches, but both have to where one begins with `*`.',
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

/** The next times, fewer than `count` if the schedule ends. */
export function getNextTimes(schedule: Schedule, after: Date, count: number): Date[] {
  return take(timesAfter(schedule, after), count);
}

export const getNextTime = (schedule: Schedule, after: Date): Date | undefined => getNextTimes(schedule, after, 1)[0];

/** Due times, oldest first; of more than `count` the newest. Includes `first`, even if time zone rules have changed. */
export function getTimesBetween(schedule: Schedule, first: Date, last: Date, count: number): Date[] {
  return take(timesBack(schedule, last, first), count).toReversed();
}

function take(times: Iterable<Date>, count: number): Date[] {
  const taken: Date[] = [];
  for (const time of times) {
    taken.push(time);
    if (taken.length === count) break;
  }
  return taken;
}

/** An interval counts elapsed time, regardless of clock changes: from its anchor, without one from `after`. */
function* timesAfter(schedule: Schedule, after: Date): Generator<Date> {
  const zone = schedule.timezone ?? 'UTC';
  if (schedule.type === 'once') {
    const at = toInstant(schedule.onceAt, zone);
    if (at > after) yield at;
  } else if (schedule.type === 'interval') {
    const anchor = schedule.anchorAt === undefined ? after : toInstant(schedule.anchorAt, zone);
    const stepMs = schedule.intervalSeconds * 1000;
    const passed = Math.floor((after.getTime() - anchor.getTime()) / stepMs);
    for (let n = Math.max(0, passed + 1); ; n++) yield new Date(anchor.getTime() + n * stepMs);
  } else yield* cronTimesAfter(toCron(schedule), zone, after);
}

/** Yields the times from `last` back to `first`, both included. */
function* timesBack(schedule: Schedule, last: Date, first: Date): Generator<Date> {
  if (schedule.type === 'interval') {
    const stepMs = schedule.intervalSeconds * 1000;
    const passed = Math.floor((last.getTime() - first.getTime()) / stepMs);
    for (let n = passed; n > 0; n--) yield new Date(first.getTime() + n * stepMs);
  } else if (schedule.type !== 'once') {
    const afterLast = new Date(last.getTime() + 1);
    for (const time of cronTimesBefore(toCron(schedule), schedule.timezone ?? 'UTC', afterLast)) {
      if (time <= first) break;
      yield time;
    }
  }
  yield first;
}

/** The one form in which schedules by the clock are computed: minutes, hours and days as a cron expression. */
function toCron(schedule: Exclude<Schedule, { type: 'once' | 'interval' }>): string {
  if (schedule.type === 'cron') return schedule.cron;
  const time = schedule.time.split(':').map(Number).toReversed().join(' ');
  if (schedule.type === 'daily') return `${time} * * *`;
  if (schedule.type === 'monthly') return `${time} ${schedule.monthDays.join(',')} * *`;
  return `${time} * * ${(schedule.weekdays ?? [schedule.weekday]).join(',')}`;
}

/** Stores the moment from which a schedule's intervals count, because later changes must not shift its due times. */
export function withAnchor(schedule: Schedule, now: Date): Schedule {
  if (schedule.type !== 'interval' || schedule.anchorAt !== undefined) return schedule;
  return { ...schedule, anchorAt: new Date(now.getTime() + schedule.intervalSeconds * 1000).toISOString() };
}

/** Returns why a schedule never fires after `now` and before `until`, or `undefined` if it fires. */
export function neverFiresReason(schedule: Schedule, now: Date, until?: Date): string | undefined {
  const first = getNextTime(schedule, now);
  if (first && (!until || first < until)) return undefined;
  if (first && until) {
    const times = `its first time, ${first.toISOString()}, is not before its end, ${until.toISOString()}`;
    return `The schedule never fires: ${times}.`;
  }
  return schedule.type === 'once'
    ? `The schedule never fires: ${schedule.onceAt} is over.`
    : 'The schedule never fires: no date matches it.';
}
