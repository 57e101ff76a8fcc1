/** How numbers and times look: with units, in the zone of the viewer. */

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const ago = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto', style: 'short' });
const whole = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });

/** A Unix time in seconds, or an ISO time, as a `Date`. */
export const toDate = (time: number | string) => new Date(typeof time === 'number' ? time * 1000 : time);
/** The Unix time of a day as a field has it. */
export const toSeconds = (day: string | undefined) => (day ? new Date(day).getTime() / 1000 : undefined);
export const formatMoment = (time: number | string) => moment.format(toDate(time));

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
];

/** `3 min. ago`, `in 2 hr.` */
export function formatAge(time: number | string, now = Date.now()): string {
  const seconds = (toDate(time).getTime() - now) / 1000;
  const [unit, size] = STEPS.find(([, each]) => Math.abs(seconds) >= each) ?? ['second', 1];
  return ago.format(Math.trunc(seconds / size), unit);
}

export const formatCount = (value: number) => whole.format(value);
export const formatCompact = (value: number) => compact.format(value);
/** Small sums keep the digits that say something. */
export const formatCost = (value: number) =>
  value === 0 ? '0' : value < 0.01 ? value.toPrecision(2) : value.toFixed(2);

export function formatSeconds(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3_600).toFixed(1)} h`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

export const formatJson = (value: unknown) => JSON.stringify(value, undefined, 2) ?? '';
