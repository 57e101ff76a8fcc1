import { choiceOr, documented, integer, rangeText, whole } from './setting-schemas.ts';

const MAX_LLM_CALLS_RANGE: [number, number] = [1, 1_000_000];

/** Said of a lease that a statement may outlive: what a session is held for is then another's before it is done. */
export const SHORT_LEASE =
  'SESSION_LEASE_MS is shorter than DATABASE_STATEMENT_TIMEOUT_MS: while one statement is slow, another process may ' +
  'take its work over; make the lease the longer one.';

/** Returns whether a lease may end within a statement. */
export const isShorterThanStatements = (times: { SESSION_LEASE_MS: number; DATABASE_STATEMENT_TIMEOUT_MS: number }) =>
  times.SESSION_LEASE_MS < times.DATABASE_STATEMENT_TIMEOUT_MS;

/** Invocations, their order in a session, and the sizes of what they store. */
export const INVOCATIONS = {
  DOUBLE_TEXTING: choiceOr(
    'enqueue',
    ['enqueue', 'reject', 'interrupt'],
    'What a request for a busy session does: wait for its turn, fail with 409, or interrupt what runs.',
  ),
  SESSION_QUEUE_DEPTH: whole(
    8,
    [0, 1000],
    'Maximum number of requests that wait for one session; further ones are refused with 429.',
  ),
  SESSION_WAIT_MS: whole(
    30_000,
    [0, 600_000],
    'Maximum time that a request waits for a busy session; then it is refused with 429.',
  ),
  SESSION_LEASE_MS: whole(
    15_000,
    [300, 600_000],
    'How long a process that was killed keeps its sessions; three times in it others look for them.',
  ),
  INVOCATION_ATTEMPTS: whole(
    3,
    [1, 100],
    'Maximum number of processes that begin one invocation, each after the death of the one before.',
  ),
  ON_DISCONNECT: choiceOr(
    'continue',
    ['continue', 'cancel'],
    'What happens to an invocation when the client that waits for it disconnects.',
  ),
  MAX_INVOCATIONS: whole(
    200,
    [1, 100_000],
    'Maximum number of invocations in this process, waiting ones included, and twice that of live sessions; further ' +
      'ones are refused with 503.',
  ),
  INVOCATION_TIMEOUT_MS: whole(
    600_000,
    [100, 86_400_000],
    'Maximum time of one invocation, its waits for a process left out.',
  ),
  MAX_LLM_CALLS: documented(
    integer(MAX_LLM_CALLS_RANGE).optional(),
    'Maximum number of model calls of one invocation.',
    rangeText(MAX_LLM_CALLS_RANGE),
    '`500`',
  ),
  MAX_TOOL_CALLS: whole(500, [1, 1_000_000], 'Maximum number of tool calls of one invocation.'),
  MAX_OPEN_TASKS: whole(
    1_000,
    [1, 1_000_000],
    'Maximum number of open tasks of one user in an application, sleeping invocations included.',
  ),
  MAX_EVENT_BYTES: whole(
    1_048_576,
    [1_024, 104_857_600],
    'Maximum size of an event, in bytes of JSON. Media in what a user says count for `MAX_BODY_BYTES` only.',
  ),
  MAX_SESSION_BYTES: whole(
    33_554_432,
    [1_048_576, 1_073_741_824],
    'Maximum size of the events of a session, in bytes of JSON; a session that has reached it is only read.',
  ),
  MAX_STATE_BYTES: whole(
    1_048_576,
    [1_024, 104_857_600],
    'Maximum size of the state of a session, a user or an application, in bytes of JSON.',
  ),
};
