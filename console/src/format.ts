/** How numbers and times look: in English, with units, in the zone of the viewer, which {@link ZONE} names. */

/** Days before months, as most of the world writes them; it is the language of the page too. */
const LANGUAGE = 'en-GB';
const day: Intl.DateTimeFormatOptions = { day: 'numeric', month: 'short', year: 'numeric' };
const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', second: '2-digit' };
const formats = {
  moment: new Intl.DateTimeFormat(LANGUAGE, { ...day, ...time }),
  /** Where events of one second are beside each other. */
  exact: new Intl.DateTimeFormat(LANGUAGE, { ...day, ...time, fractionalSecondDigits: 3 }),
  day: new Intl.DateTimeFormat(LANGUAGE, day),
  dayOfUtc: new Intl.DateTimeFormat(LANGUAGE, { ...day, timeZone: 'UTC' }),
  tickTime: new Intl.DateTimeFormat(LANGUAGE, { hour: '2-digit', minute: '2-digit' }),
  tickDay: new Intl.DateTimeFormat(LANGUAGE, { day: 'numeric', month: 'short' }),
  tickDayOfUtc: new Intl.DateTimeFormat(LANGUAGE, { day: 'numeric', month: 'short', timeZone: 'UTC' }),
  zone: new Intl.DateTimeFormat(LANGUAGE, { timeZoneName: 'shortOffset' }),
};
const ago = new Intl.RelativeTimeFormat(LANGUAGE, { numeric: 'auto', style: 'short' });
const whole = new Intl.NumberFormat(LANGUAGE);
const compact = new Intl.NumberFormat(LANGUAGE, { notation: 'compact', maximumFractionDigits: 1 });

/** A Unix time in seconds, or an ISO time, as a `Date`. */
export const toDate = (at: number | string) => new Date(typeof at === 'number' ? at * 1000 : at);
/** The Unix time at which a day, as a field has it, begins in the zone of the viewer. */
export const toSeconds = (date: string | undefined) => (date ? new Date(`${date}T00:00`).getTime() / 1000 : undefined);
export const formatMoment = (at: number | string, isExact = false) =>
  (isExact ? formats.exact : formats.moment).format(toDate(at));
/** A day of UTC, as `2026-01-31`. */
export const formatDayOfUtc = (date: string) => formats.dayOfUtc.format(new Date(date));

/** What stands below a chart: a time of the day, else a day, of UTC where it is one of UTC. */
export const formatTick = (at: number, unit: 'time' | 'day' | 'hour' | 'moment') =>
  (unit === 'time' ? formats.tickTime : unit === 'day' ? formats.tickDayOfUtc : formats.tickDay).format(at * 1000);

/** The zone of all times: `Europe/Berlin (UTC+1)`. */
export const ZONE = (() => {
  const { timeZone } = formats.zone.resolvedOptions();
  const offset = formats.zone.formatToParts(new Date()).find(({ type }) => type === 'timeZoneName')?.value;
  return offset === undefined || timeZone === 'UTC' ? timeZone : `${timeZone} (${offset.replace('GMT', 'UTC')})`;
})();

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** Further off than this a date says more. */
const MAX_DAYS = 30;
/** The days since 1970 of the calendar of the viewer. */
const calendarDay = (date: Date) => Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / DAY_MS;

/** `3 min ago`, `in 2 hr`; from 24 hours on days of the calendar: `tomorrow` is the next one. */
export function formatAge(at: number | string, now = Date.now()): string {
  const date = toDate(at);
  const ms = date.getTime() - now;
  const distance = Math.abs(ms);
  if (distance < MINUTE_MS) return ago.format(Math.trunc(ms / 1000), 'second');
  if (distance < HOUR_MS) return ago.format(Math.trunc(ms / MINUTE_MS), 'minute');
  if (distance < DAY_MS) return ago.format(Math.trunc(ms / HOUR_MS), 'hour');
  const days = calendarDay(date) - calendarDay(new Date(now));
  return Math.abs(days) <= MAX_DAYS ? ago.format(days, 'day') : formats.day.format(date);
}

export const formatCount = (value: number) => whole.format(value);
export const formatCompact = (value: number) => compact.format(value);
/** What a cost is counted in: a price has no name of a currency. */
export const COST_UNIT = 'in the currency of your model prices';
/** Small sums keep the digits that say something. */
export const formatCost = (value: number) =>
  value === 0 ? '0' : value < 0.01 ? value.toPrecision(2) : value.toFixed(2);

export function formatSeconds(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3_600).toFixed(1)} h`;
}

/** Seconds as whole units where they are: `90 minutes`, `hour`, `2 days`. */
export function formatInterval(seconds: number): string {
  const [size, unit] = (
    [
      [86_400, 'day'],
      [3_600, 'hour'],
      [60, 'minute'],
    ] as const
  ).find(([each]) => seconds % each === 0) ?? [1, 'second'];
  const count = seconds / size;
  return count === 1 ? unit : `${formatCount(count)} ${unit}s`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export const formatJson = (value: unknown) => JSON.stringify(value, undefined, 2) ?? '';
