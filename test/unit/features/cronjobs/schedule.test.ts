import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  withAnchor,
  getNextTimes,
  type Schedule,
  scheduleSchema,
  getTimesBetween,
  neverFiresReason,
} from '../../../../src/features/cronjobs/schedule.ts';
import { HOSTILE_NOW, HOSTILE_SCHEDULES } from '../../../data/cronjobs/hostile-schedules.ts';

const DAY_MS = 86_400_000;
const FIRST_DAY = Date.UTC(2026, 0, 1);
const LAST_DAY = Date.UTC(2028, 11, 31);

interface Table {
  rulesSince: string;
  daily: { timezone: string; time: string; from: string }[];
  wild: { timezone: string; cron: string; after: string; times: string }[];
}
const table = JSON.parse(
  readFileSync(new URL('../../../data/cronjobs/firing-times.json', import.meta.url), 'utf8'),
) as Table;

/** Every day of the table with the moment at which a daily schedule fires. */
function firings(from: string): { day: Date; at: Date }[] {
  const minutesFrom = new Map(from.split(', ').map((entry) => entry.split(' ') as [string, string]));
  const found: { day: Date; at: Date }[] = [];
  let minutes = 0;
  for (let day = FIRST_DAY; day <= LAST_DAY; day += DAY_MS) {
    minutes = Number(minutesFrom.get(new Date(day).toISOString().slice(0, 10)) ?? minutes);
    found.push({ day: new Date(day), at: new Date(day + minutes * 60_000) });
  }
  return found;
}

const timesOf = (schedule: Schedule, after: string, count = 3) =>
  getNextTimes(scheduleSchema.parse(schedule), new Date(after), count).map((time) => time.toISOString());

describe('over the changes of the clocks of three years', () => {
  test('the time zones of this Node are as new as the table', () => {
    const { tz = '' } = process.versions;
    expect(tz >= table.rulesSince, `time zones ${tz}, needed ${table.rulesSince}`).toBe(true);
  });

  test.each(table.daily)('daily, weekly, monthly and cron at $time in $timezone', ({ timezone, time, from }) => {
    const expected = firings(from);
    const before = new Date((expected[0]?.at.getTime() ?? 0) - 1000);
    const check = (schedule: Schedule, holds: (day: Date) => boolean) => {
      const wanted = expected.filter(({ day }) => holds(day)).map(({ at }) => at.toISOString());
      expect(wanted.length).toBeGreaterThan(30);
      const got = getNextTimes(schedule, before, wanted.length).map((at) => at.toISOString());
      expect(got).toEqual(wanted);
    };
    check({ type: 'daily', time, timezone }, () => true);
    check({ type: 'weekly', time, weekday: 0, timezone }, (day) => day.getUTCDay() === 0);
    check({ type: 'weekly', time, weekdays: [6, 0, 3], timezone }, (day) => [6, 0, 3].includes(day.getUTCDay()));
    check({ type: 'monthly', time, monthDays: [29, 1], timezone }, (day) => [1, 29].includes(day.getUTCDate()));
    const [hour, minute] = time.split(':').map(Number);
    check({ type: 'cron', cron: `${minute} ${hour} * * SUN`, timezone }, (day) => day.getUTCDay() === 0);
  });

  test.each(table.wild)('$cron keeps its pace in $timezone after $after', ({ timezone, cron, after, times }) => {
    const wanted = times.split(' ');
    const got = timesOf({ type: 'cron', cron, timezone }, after, wanted.length);
    expect(got.map((time) => time.slice(11, 16))).toEqual(wanted);
  });

  test.each([
    ['once, in the gap', '2026-03-29T02:30', ['2026-03-29T01:00:00.000Z']],
    ['once, twice on the clock', '2026-10-25T02:30:00', ['2026-10-25T00:30:00.000Z']],
    ['once, with an offset', '2026-10-25T02:30:00+01:00', ['2026-10-25T01:30:00.000Z']],
  ])('%s', (_, onceAt, expected) => {
    expect(timesOf({ type: 'once', onceAt, timezone: 'Europe/Berlin' }, '2026-01-01T00:00:00Z')).toEqual(expected);
  });

  test('a gap over midnight ends on the next day: what is left out fires there, once', () => {
    const nuuk = 'America/Nuuk';
    expect(timesOf({ type: 'once', onceAt: '2026-03-28T23:30', timezone: nuuk }, '2026-01-01T00:00:00Z')).toEqual([
      '2026-03-29T01:00:00.000Z',
    ]);
    const half = { type: 'cron', cron: '15,45 23 * * *', timezone: nuuk } as const;
    const times = ['2026-03-28T01:45:00.000Z', '2026-03-29T01:00:00.000Z', '2026-03-30T00:15:00.000Z'];
    expect(timesOf(half, '2026-03-28T01:30:00Z')).toEqual(times);
    const [first = '', , last = ''] = times;
    const between = getTimesBetween(half, new Date(first), new Date(last), 10);
    expect(between.map((time) => time.toISOString())).toEqual(times);
    expect(getTimesBetween(half, new Date(first), new Date(last), 2)).toEqual(between.slice(1));
    const pace = { type: 'cron', cron: '*/30 23 * * *', timezone: nuuk } as const;
    expect(timesOf(pace, '2026-03-28T12:00:00Z', 1)).toEqual(['2026-03-30T00:00:00.000Z']);
    expect(timesOf({ type: 'daily', time: '08:00', timezone: 'Pacific/Apia' }, '2011-12-29T12:00:00Z', 3)).toEqual([
      '2011-12-29T18:00:00.000Z',
      '2011-12-30T10:00:00.000Z',
      '2011-12-30T18:00:00.000Z',
    ]);
  });

  test.each([
    ['Africa/Cairo', '2026-04-22T22:15:00Z', ['2026-04-22T22:30', '2026-04-23T22:00', '2026-04-24T21:30']],
    ['Asia/Beirut', '2026-03-27T22:15:00Z', ['2026-03-27T22:30', '2026-03-28T22:00', '2026-03-29T21:30']],
    ['America/Santiago', '2026-09-05T04:15:00Z', ['2026-09-05T04:30', '2026-09-06T04:00', '2026-09-07T03:30']],
    ['America/Havana', '2026-03-07T05:15:00Z', ['2026-03-07T05:30', '2026-03-08T05:00', '2026-03-09T04:30']],
    ['America/Havana', '2026-10-31T04:15:00Z', ['2026-10-31T04:30', '2026-11-01T04:30', '2026-11-02T05:30']],
  ])('half past midnight in %s after %s, where the clocks change at midnight', (timezone, after, expected) => {
    const schedule = { type: 'daily', time: '00:30', timezone } as const;
    const times = timesOf(schedule, after).map((time) => time.slice(0, 16));
    expect(times).toEqual(expected);
    const [first, last] = [new Date(`${times[0]}Z`), new Date(`${times[2]}Z`)];
    expect(getTimesBetween(schedule, first, last, 10).map((time) => time.toISOString().slice(0, 16))).toEqual(expected);
  });

  test('a list of minutes is a list of times of the day', () => {
    const quarterTo = { type: 'cron', cron: '0,30 2 * * *', timezone: 'Europe/Berlin' } as const;
    expect(timesOf(quarterTo, '2026-03-28T12:00:00Z')).toEqual([
      '2026-03-29T01:00:00.000Z',
      '2026-03-30T00:00:00.000Z',
      '2026-03-30T00:30:00.000Z',
    ]);
    expect(timesOf(quarterTo, '2026-10-24T12:00:00Z')).toEqual([
      '2026-10-25T00:00:00.000Z',
      '2026-10-25T00:30:00.000Z',
      '2026-10-26T01:00:00.000Z',
    ]);
  });
});

describe('the time after a moment', () => {
  test.each([
    ['2026-11-21T11:59:59.900Z', '2026-11-21T12:00:00.000Z'],
    ['2026-11-21T12:00:00.000Z', '2026-11-22T12:00:00.000Z'],
    ['2026-11-21T12:00:00.001Z', '2026-11-22T12:00:00.000Z'],
  ])('%s is %s: the moment itself is left out', (after, next) => {
    expect(timesOf({ type: 'daily', time: '12:00' }, after, 1)).toEqual([next]);
  });

  test('an interval counts from its anchor, before and after it', () => {
    const schedule = { type: 'interval', intervalSeconds: 90, anchorAt: '2026-01-01T00:00:00Z' } as const;
    expect(timesOf(schedule, '2025-06-01T00:00:00Z', 2)).toEqual([
      '2026-01-01T00:00:00.000Z',
      '2026-01-01T00:01:30.000Z',
    ]);
    expect(timesOf(schedule, '2026-01-01T00:01:30Z', 1)).toEqual(['2026-01-01T00:03:00.000Z']);
    expect(timesOf(schedule, '2026-01-01T00:01:29.999Z', 1)).toEqual(['2026-01-01T00:01:30.000Z']);
  });

  test('an interval without an anchor is kept with one, and keeps its times', () => {
    const now = new Date('2026-11-21T12:00:00.250Z');
    const kept = withAnchor({ type: 'interval', intervalSeconds: 60 }, now);
    expect(kept).toEqual({ type: 'interval', intervalSeconds: 60, anchorAt: '2026-11-21T12:01:00.250Z' });
    expect(getNextTimes(kept, now, 2)).toEqual(getNextTimes({ type: 'interval', intervalSeconds: 60 }, now, 2));
  });

  test.each([
    ['L', '0 8 L * *', ['2026-11-30', '2026-12-31', '2027-01-31']],
    ['the second Friday', '0 8 * * FRI#2', ['2026-12-11', '2027-01-08', '2027-02-12']],
    ['the last Friday', '0 8 * * FRI#L', ['2026-11-27', '2026-12-25', '2027-01-29']],
    ['names', '0 8 * JAN-FEB mon', ['2027-01-04', '2027-01-11', '2027-01-18']],
    ['either day', '0 8 1 * SUN', ['2026-11-22', '2026-11-29', '2026-12-01']],
    ['either day, of several', '0 8 1,15 * 1-2', ['2026-11-23', '2026-11-24', '2026-11-30']],
    ['both days: a step of dates and Monday', '0 8 */2 * 1', ['2026-11-23', '2026-12-07', '2026-12-21']],
    ['both days: the first and a step of weekdays', '0 8 1 * */2', ['2026-12-01', '2027-04-01', '2027-05-01']],
    ['both days: a list that begins with a wildcard', '0 8 *,1 * SUN', ['2026-11-22', '2026-11-29', '2026-12-06']],
    ['both days: a question mark is a wildcard', '0 8 ?/10 * MON', ['2026-12-21', '2027-01-11', '2027-02-01']],
    ['both days: a plus', '0 8 13 * +FRI', ['2027-08-13', '2028-10-13', '2029-04-13']],
    ['either day, by a step of a range', '0 8 1-31/10 * MON', ['2026-11-23', '2026-11-30', '2026-12-01']],
    ['Sunday as 7', '0 8 * * 7', ['2026-11-22', '2026-11-29', '2026-12-06']],
    ['leap days', '0 8 29 2 *', ['2028-02-29', '2032-02-29', '2036-02-29']],
    ['more blanks', ' 0  8\t1 1 * ', ['2027-01-01', '2028-01-01', '2029-01-01']],
  ])('of a cron expression: %s', (_, expression, days) => {
    const got = timesOf({ type: 'cron', cron: expression }, '2026-11-21T12:00:00Z');
    expect(got).toEqual(days.map((day) => `${day}T08:00:00.000Z`));
  });
});

describe('a schedule is refused', () => {
  const refusalOf = (schedule: unknown, until?: string) => {
    const parsed = scheduleSchema.safeParse(schedule);
    if (parsed.success) {
      const reason = neverFiresReason(parsed.data, HOSTILE_NOW, until === undefined ? undefined : new Date(until));
      return reason === undefined ? undefined : { at: [], says: reason };
    }
    const [issue] = parsed.error.issues;
    const at = issue?.code === 'unrecognized_keys' ? [...issue.path, ...issue.keys] : issue?.path;
    return { at, says: issue?.message };
  };

  test('of sixty kinds', () => expect(HOSTILE_SCHEDULES).toHaveLength(60));

  test.each(HOSTILE_SCHEDULES.map((hostile) => [JSON.stringify(hostile.schedule).slice(0, 80), hostile] as const))(
    '%s',
    (_, { schedule, until, at, says }) => {
      expect(refusalOf(schedule, until)).toEqual({ at, says: expect.stringMatching(says) });
    },
  );

  test('and one that fires before its end is not', () => {
    expect(refusalOf({ type: 'daily', time: '08:00', timezone: 'Asia/Kolkata' }, '2026-11-23T00:00:00Z')).toBe(
      undefined,
    );
  });
});
