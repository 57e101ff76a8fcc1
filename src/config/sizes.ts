import { whole } from './setting-schemas.ts';

/** How large may be what a session keeps, and what a process keeps of sessions. */
export const SIZES = {
  MAX_EVENT_BYTES: whole(1_048_576, [1_024, 104_857_600], 'Maximum size of an event, in bytes of JSON.'),
  MAX_SESSION_BYTES: whole(
    33_554_432,
    [1_048_576, 1_073_741_824],
    'Maximum size of the events of a session, in bytes of JSON; a session that has reached it is only read.',
  ),
  HISTORY_CACHE_BYTES: whole(
    16_777_216,
    [0, 4_294_967_296],
    'Maximum size of the events that this process keeps parsed, so that an invocation of a long session reads only ' +
      'what is newer, in bytes of JSON; in memory they take about three times as much. `0` keeps none.',
  ),
  MAX_STATE_BYTES: whole(
    1_048_576,
    [1_024, 104_857_600],
    'Maximum size of the state of a session, a user or an application, in bytes of JSON.',
  ),
};
