import type { z } from 'zod';
import type { UserLimits } from '../platform/http/limits/caller-limits.ts';
import { documented, integer, rangeText } from './setting-schemas.ts';

/** Default limits of a service that several callers share. */
const DEFAULTS: UserLimits = {
  MAX_INVOCATIONS_PER_USER: 50,
  MAX_REQUESTS_PER_USER: 100,
  MAX_HEAVY_READS_PER_USER: 4,
  MAX_CONNECTIONS_PER_ADDRESS: 2_000,
  MAX_READS_PER_MINUTE: 3_000,
  MAX_WRITES_PER_MINUTE: 1_200,
  MAX_INVOCATIONS_PER_MINUTE: 300,
  MAX_USER_BYTES: 1_073_741_824,
};

const RANGE: [number, number] = [1, 1_000_000];

const limit = (name: keyof UserLimits, meaning: string, range = RANGE) =>
  documented(integer(range).optional(), meaning, rangeText(range), `\`${DEFAULTS[name]}\``);

/** A caller is a user, a runtime key, or a user for whom a key acts. Anonymous callers are told apart by address. */
export const LIMITS = {
  MAX_INVOCATIONS_PER_USER: limit(
    'MAX_INVOCATIONS_PER_USER',
    'Invocations that run or wait in this process; further ones get 429.',
  ),
  MAX_REQUESTS_PER_USER: limit(
    'MAX_REQUESTS_PER_USER',
    'Requests at once in this process; half may be streams and live sessions.',
  ),
  MAX_HEAVY_READS_PER_USER: limit(
    'MAX_HEAVY_READS_PER_USER',
    'Large reads (whole sessions, lists, traces, searches) at once in this process.',
  ),
  MAX_CONNECTIONS_PER_ADDRESS: limit(
    'MAX_CONNECTIONS_PER_ADDRESS',
    'Connections from one address but those of `TRUSTED_PROXIES`; further ones are closed.',
  ),
  MAX_READS_PER_MINUTE: limit(
    'MAX_READS_PER_MINUTE',
    'Reads in all processes; a tenth of it for large reads, where each megabyte answered counts as one more.',
  ),
  MAX_WRITES_PER_MINUTE: limit('MAX_WRITES_PER_MINUTE', 'Changes in all processes.'),
  MAX_INVOCATIONS_PER_MINUTE: limit('MAX_INVOCATIONS_PER_MINUTE', 'Requests that run the agent, in all processes.'),
  MAX_USER_BYTES: limit(
    'MAX_USER_BYTES',
    'Size of events, artifacts and memories in an application, copies included; a write beyond it gets 413.',
    [1_048_576, 1_099_511_627_776],
  ),
};

type Given = Partial<{ [Name in keyof UserLimits]: z.output<(typeof LIMITS)[Name]> }>;

/** @param isShared false if only users of this machine use the service; then there are no default limits */
export function toUserLimits(given: Given, isShared: boolean): UserLimits {
  const entries = Object.entries(DEFAULTS).map(([name, shared]) => [
    name,
    given[name as keyof Given] ?? (isShared ? shared : Number.POSITIVE_INFINITY),
  ]);
  return Object.fromEntries(entries) as UserLimits;
}
