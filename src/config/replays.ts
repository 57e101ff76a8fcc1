import { whole } from './setting-schemas.ts';

/** What replays of stored invocations may cost. */
export const REPLAYS = {
  MAX_REPLAYS_PER_USER: whole(
    2,
    [1, 1_000],
    'Maximum number of replays of one user or runtime key that this process runs at once.',
  ),
};

/** What is kept of users; off unless set. */
export const USER_RETENTION = {
  SESSION_RETENTION_DAYS: whole(
    0,
    [0, 36_500],
    'Days after its last change after which a session is deleted; 0: never.',
  ),
  SESSION_RETENTION_COUNT: whole(
    0,
    [0, 1_000_000],
    'Maximum number of sessions of a user of an application, the newest; older ones are deleted; 0: all are kept.',
  ),
  ARTIFACT_RETENTION_COUNT: whole(
    0,
    [0, 1_000_000],
    'Maximum number of versions of an artifact, the newest; older ones are deleted; 0: all are kept.',
  ),
};

/** How long is kept what explains invocations and is no part of them. */
export const RETENTION = {
  TRACE_RETENTION_HOURS: whole(
    72,
    [1, 8_760],
    'How long traces, which the development UI mode records with prompts and answers, are kept.',
  ),
  PROMPT_RETENTION_DAYS: whole(
    90,
    [1, 3_650],
    "How long an agent's instruction and tools are kept after their last use, for replays to name what has changed.",
  ),
};
