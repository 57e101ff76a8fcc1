import { choiceOr, documented, integer, rangeText, whole } from '../config/setting-schemas.ts';

const MAX_LLM_CALLS_RANGE: [number, number] = [1, 1_000_000];

export const SHORT_LEASE =
  'SESSION_LEASE_MS is shorter than DATABASE_STATEMENT_TIMEOUT_MS: while one statement is slow, another process may ' +
  'take its work over; make the lease the longer one.';

export const isShorterThanStatements = (times: { SESSION_LEASE_MS: number; DATABASE_STATEMENT_TIMEOUT_MS: number }) =>
  times.SESSION_LEASE_MS < times.DATABASE_STATEMENT_TIMEOUT_MS;

export const INVOCATION_SETTINGS = {
  DOUBLE_TEXTING: choiceOr(
    'enqueue',
    ['enqueue', 'reject', 'interrupt', 'steer'],
    'What a request for a busy session does: wait, fail with 409, interrupt what runs, or give it the message.',
  ),
  SESSION_QUEUE_DEPTH: whole(8, [0, 1000], 'Requests that may wait for one session; further ones get 429.'),
  SESSION_WAIT_MS: whole(30_000, [0, 600_000], 'Longest wait for a busy session; then the request gets 429.'),
  SESSION_LEASE_MS: whole(
    15_000,
    [300, 600_000],
    'Time for which a killed process keeps its sessions; three times in it others look for them.',
  ),
  INVOCATION_ATTEMPTS: whole(
    3,
    [1, 100],
    'Processes that may die with one invocation, one after another, before they stored two answers of models each.',
  ),
  ON_DISCONNECT: choiceOr(
    'continue',
    ['continue', 'cancel'],
    'What happens to an invocation when its client disconnects.',
  ),
  MAX_INVOCATIONS: whole(
    200,
    [1, 100_000],
    'Invocations in this process, waiting ones included, and half as many live sessions; further ones get 503.',
  ),
  INVOCATION_TIMEOUT_MS: whole(
    600_000,
    [100, 86_400_000],
    'Longest time of an invocation, without its waits for a process.',
  ),
  MAX_LLM_CALLS: documented(
    integer(MAX_LLM_CALLS_RANGE).optional(),
    'Model calls of one invocation.',
    rangeText(MAX_LLM_CALLS_RANGE),
    '`500`',
  ),
  MAX_TOOL_CALLS: whole(500, [1, 1_000_000], 'Tool calls of one invocation.'),
  MAX_OPEN_TASKS: whole(
    1_000,
    [1, 1_000_000],
    'Open tasks of one user in an application, sleeping invocations included.',
  ),
  MAX_EVENT_BYTES: whole(
    1_048_576,
    [1_024, 104_857_600],
    'Size of an event as JSON; media in what a user says count for `MAX_BODY_BYTES` only.',
  ),
  MAX_SESSION_BYTES: whole(
    33_554_432,
    [1_048_576, 1_073_741_824],
    "Size of a session's events as JSON; a session that has reached it is only read.",
  ),
  MAX_STATE_BYTES: whole(
    1_048_576,
    [1_024, 104_857_600],
    'Size of the state of a session, a user or an application as JSON.',
  ),
};
