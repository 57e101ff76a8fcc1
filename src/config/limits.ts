import type { z } from 'zod';
import { documented, integer, rangeText } from './setting-schemas.ts';

/** Defaults where several callers share the service. */
const DEFAULTS = {
  MAX_INVOCATIONS_PER_USER: 50,
  MAX_REQUESTS_PER_USER: 100,
  MAX_HEAVY_READS_PER_USER: 4,
  MAX_CONNECTIONS_PER_ADDRESS: 2_000,
  MAX_READS_PER_MINUTE: 3_000,
  MAX_WRITES_PER_MINUTE: 1_200,
  MAX_INVOCATIONS_PER_MINUTE: 300,
  MAX_USER_BYTES: 1_073_741_824,
};

const PRIVATE = 'no limit in mode `local` without `ALLOW_ANONYMOUS`';
const RANGE: [number, number] = [1, 1_000_000];

const limit = (name: keyof typeof DEFAULTS, meaning: string, range = RANGE) =>
  documented(integer(range).optional(), meaning, rangeText(range), `\`${DEFAULTS[name]}\`; ${PRIVATE}`);

/** Limits of one caller: a user, a runtime key, or a user that a key acts for; anonymous callers count by address. */
export const LIMITS = {
  MAX_INVOCATIONS_PER_USER: limit(
    'MAX_INVOCATIONS_PER_USER',
    'Maximum number of invocations of one user that run or wait in this process; further ones are refused with 429.',
  ),
  MAX_REQUESTS_PER_USER: limit(
    'MAX_REQUESTS_PER_USER',
    'Maximum number of requests of one user that this process works on at once; half may be streams and live sessions.',
  ),
  MAX_HEAVY_READS_PER_USER: limit(
    'MAX_HEAVY_READS_PER_USER',
    'Maximum number of reads of much (whole sessions, lists, traces, searches) that one user does at once.',
  ),
  MAX_CONNECTIONS_PER_ADDRESS: limit(
    'MAX_CONNECTIONS_PER_ADDRESS',
    'Maximum number of connections from one address, those of `TRUSTED_PROXIES` left out; further ones are closed.',
  ),
  MAX_READS_PER_MINUTE: limit(
    'MAX_READS_PER_MINUTE',
    'Maximum number of reads of one user in a minute, in all processes; of large reads a tenth, where each megabyte ' +
      'that is answered counts as one more.',
  ),
  MAX_WRITES_PER_MINUTE: limit('MAX_WRITES_PER_MINUTE', 'Maximum number of changes by one user, in the same way.'),
  MAX_INVOCATIONS_PER_MINUTE: limit(
    'MAX_INVOCATIONS_PER_MINUTE',
    'Maximum number of requests of one user that run the agent, in the same way.',
  ),
  MAX_USER_BYTES: limit(
    'MAX_USER_BYTES',
    'Maximum size of the events, artifacts and memories that one user keeps in an application, copies included; then ' +
      'what would add some is refused with 413.',
    [1_048_576, 1_099_511_627_776],
  ),
};

type Given = Partial<{ [Name in keyof typeof DEFAULTS]: z.output<(typeof LIMITS)[Name]> }>;
/** The limits of one user as they hold; infinite where there is none. */
export type UserLimits = Record<keyof typeof DEFAULTS, number>;

/** Returns the limits that apply: `isShared` is false where only the users of this machine use the service. */
export function toUserLimits(given: Given, isShared: boolean): UserLimits {
  const entries = Object.entries(DEFAULTS).map(([name, shared]) => [
    name,
    given[name as keyof Given] ?? (isShared ? shared : Number.POSITIVE_INFINITY),
  ]);
  return Object.fromEntries(entries) as UserLimits;
}
