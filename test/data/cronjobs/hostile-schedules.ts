/** A schedule that is refused: what is sent, where it is wrong (below `schedule`) and what is said of it. */
export interface HostileSchedule {
  schedule: unknown;
  until?: string;
  at: (string | number)[];
  says: RegExp;
}

const NOW = '2026-11-21T12:00:00Z';
const LONG = '1'.repeat(10_000);
const NESTED = Array.from({ length: 50 }).reduce<unknown>((inside) => ({ schedule: inside }), {});
const TYPE = /the type is one of|Field required/;
const OBJECT = /expected object|valid dictionary or object/;
const EXTRA = /Unrecognized key|Extra inputs/;
const NEVER = /^(?:Value error, )?The schedule never fires: /;
const NO_CRON = /this is no cron expression: \S/;
const FIELDS = /a cron expression has 5 fields, this has \d+/;
const TIME = /a time is HH:MM/;
const NUMBER = /expected number|valid integer/;
const ZONE = /there is no such time zone/;
const SPELLED = /the name of this time zone is written \S+/;
const DATE = /this is no date and time/;

const cron = (text: unknown, says: RegExp): HostileSchedule => ({
  schedule: { type: 'cron', cron: text },
  at: ['cron'],
  says,
});
const zone = (timezone: unknown, says: RegExp): HostileSchedule => ({
  schedule: { type: 'daily', time: '08:00', timezone },
  at: ['timezone'],
  says,
});
const once = (onceAt: string, says: RegExp): HostileSchedule => ({
  schedule: { type: 'once', onceAt },
  at: ['onceAt'],
  says,
});
const never = (schedule: unknown, until?: string): HostileSchedule => ({
  schedule,
  at: [],
  says: NEVER,
  ...(until === undefined ? {} : { until }),
});

/** Sixty schedules that nobody should get by with, whatever the time is. */
export const HOSTILE_SCHEDULES: HostileSchedule[] = [
  { schedule: null, at: [], says: OBJECT },
  { schedule: 5, at: [], says: OBJECT },
  { schedule: '0 8 * * *', at: [], says: OBJECT },
  { schedule: [], at: [], says: OBJECT },
  { schedule: {}, at: ['type'], says: TYPE },
  { schedule: { type: null }, at: ['type'], says: TYPE },
  { schedule: { type: 'Daily', time: '08:00' }, at: ['type'], says: TYPE },
  { schedule: { type: '__proto__' }, at: ['type'], says: TYPE },
  { schedule: { type: 'constructor' }, at: ['type'], says: TYPE },
  { schedule: { type: LONG }, at: ['type'], says: TYPE },
  { schedule: { type: ['daily'], time: '08:00' }, at: ['type'], says: TYPE },
  { schedule: NESTED, at: ['type'], says: TYPE },
  { schedule: { type: 'daily', time: '08:00', weekday: 1 }, at: ['weekday'], says: EXTRA },
  { schedule: JSON.parse('{"type":"daily","time":"08:00","__proto__":{"time":"x"}}'), at: ['__proto__'], says: EXTRA },
  { schedule: { type: 'daily', time: '08:00', constructor: {} }, at: ['constructor'], says: EXTRA },
  { schedule: { type: 'daily', time: '24:00' }, at: ['time'], says: TIME },
  { schedule: { type: 'daily', time: '8:00' }, at: ['time'], says: TIME },
  { schedule: { type: 'daily', time: '08:00\n' }, at: ['time'], says: TIME },
  { schedule: { type: 'daily', time: '٠٨:٠٠' }, at: ['time'], says: TIME },
  { schedule: { type: 'daily', time: LONG }, at: ['time'], says: TIME },
  { schedule: { type: 'weekly', time: '08:00' }, at: [], says: /either `weekday` or `weekdays`/ },
  {
    schedule: { type: 'weekly', time: '08:00', weekday: 1, weekdays: [2] },
    at: [],
    says: /either `weekday` or `weekdays`/,
  },
  { schedule: { type: 'weekly', time: '08:00', weekday: 7 }, at: ['weekday'], says: /6/ },
  { schedule: { type: 'weekly', time: '08:00', weekday: '1' }, at: ['weekday'], says: NUMBER },
  { schedule: { type: 'weekly', time: '08:00', weekdays: [] }, at: ['weekdays'], says: /1/ },
  { schedule: { type: 'weekly', time: '08:00', weekdays: [1, -1] }, at: ['weekdays', 1], says: /0/ },
  { schedule: { type: 'monthly', time: '08:00', monthDays: [0] }, at: ['monthDays', 0], says: /1/ },
  { schedule: { type: 'monthly', time: '08:00', monthDays: [32] }, at: ['monthDays', 0], says: /31/ },
  { schedule: { type: 'monthly', time: '08:00', monthDays: [1.5] }, at: ['monthDays', 0], says: /int/ },
  { schedule: { type: 'interval', intervalSeconds: 29 }, at: ['intervalSeconds'], says: /30/ },
  { schedule: { type: 'interval', intervalSeconds: 1e308 }, at: ['intervalSeconds'], says: /\d/ },
  { schedule: { type: 'interval', intervalSeconds: '60' }, at: ['intervalSeconds'], says: NUMBER },
  { schedule: { type: 'interval', intervalSeconds: 60, anchorAt: 'now' }, at: ['anchorAt'], says: DATE },
  cron('', FIELDS),
  cron('* * * *', FIELDS),
  cron('* * * * * *', FIELDS),
  cron('@daily', FIELDS),
  cron('@reboot', FIELDS),
  cron(LONG, /256/),
  cron('60 * * * *', NO_CRON),
  cron('* 24 * * *', NO_CRON),
  cron('* * 0 * *', NO_CRON),
  cron('* * * 13 *', NO_CRON),
  cron('* * * * MONTAG', NO_CRON),
  cron('*/0 * * * *', NO_CRON),
  cron('5-1 * * * *', NO_CRON),
  cron('__proto__ * * * *', NO_CRON),
  cron('1,, * * * *', NO_CRON),
  cron('* * * * 5#6', NO_CRON),
  never({ type: 'cron', cron: '0 0 31 2 *' }),
  never({ type: 'cron', cron: '0 0 30 FEB *', timezone: 'Europe/Berlin' }),
  never({ type: 'daily', time: '08:00' }, '2026-01-01T00:00:00Z'),
  never({ type: 'cron', cron: '0 0 29 2 *' }, '2027-12-31T23:59:59Z'),
  never({ type: 'once', onceAt: '2020-01-01T00:00:00Z' }),
  once('2027-02-30T08:00', DATE),
  once('1969-12-31T08:00:00Z', /the year is one from 1970 to 2999/),
  once(LONG, /64/),
  zone('europe/berlin', SPELLED),
  zone('Mars/Olympus_Mons', ZONE),
  zone('+02:00', ZONE),
];

/** The moment that the list was written for: the refusals that depend on the time hold from it on. */
export const HOSTILE_NOW = new Date(NOW);
