import { z } from 'zod';
import {
  choice,
  choiceOr,
  documented,
  flag,
  integer,
  isNetwork,
  isOrigin,
  list,
  rangeText,
  splitAtCommas,
  text,
  textOr,
  url,
  whole,
} from './setting-schemas.ts';
import { ACCESS } from './access.ts';
import { AUDIT } from './audit.ts';
import { DATABASE } from './database.ts';
import { FAIRNESS } from './fairness.ts';
import { LIVE } from './live.ts';
import { OBSERVABILITY } from './observability.ts';
import { WEBHOOKS } from './webhooks.ts';
import { SIZES } from './sizes.ts';
import { REPLAYS, RETENTION, USER_RETENTION } from './replays.ts';

const SERVER = {
  HOST: textOr('127.0.0.1', 'Address to listen on.'),
  PORT: whole(8000, [0, 65_535], 'Port to listen on; 0 takes a free one.'),
  CLIENT_WRITE_TIMEOUT_MS: whole(
    60_000,
    [100, 3_600_000],
    'Maximum time in which a client reads nothing of an answer that waits for it; then its connection is ended.',
  ),
  MAX_BODY_BYTES: whole(10_485_760, [1_024, 104_857_600], 'Maximum size of a request body, in bytes.'),
  MAX_BODY_VALUES: whole(
    100_000,
    [1_000, 10_000_000],
    'Maximum number of members, elements, arrays and objects in a request body.',
  ),
  DEV_UI: flag(
    false,
    'Development UI mode: the ADK Web UI at `/dev-ui/` and the operations under `/dev/`. It has no login.',
  ),
  ALLOWED_HOSTS: list(
    'Host names that mode `local` and the development UI mode answer to, beside those of loopback.',
    'loopback names only',
  ),
  ALLOWED_ORIGINS: documented(
    z
      .string()
      .transform(splitAtCommas)
      .refine((origins) => origins.every(isOrigin), 'origins such as https://app.example.com, without a path')
      .default([]),
    'Origins of web pages that may read answers in a browser.',
    'comma-separated',
    'the own origin only',
  ),
  TRUSTED_PROXIES: documented(
    z
      .string()
      .transform(splitAtCommas)
      .refine((proxies) => proxies.every(isNetwork), 'IP addresses and networks such as 10.0.0.0/8')
      .default([]),
    'Proxies whose `X-Forwarded-For` says where a request comes from; others are not believed, and mode `local` ' +
      'refuses what they hand on.',
    'comma-separated',
    'none',
  ),
};

const MODEL = {
  MODEL_PROVIDER: choice(
    ['offline', 'openai', 'openai-compatible', 'anthropic', 'google'],
    'Who serves the model; `offline` is a built-in model that needs no key.',
    '`offline`',
  ),
  MODEL_NAME: text('Model to call; required for every provider except `offline`.'),
  MODEL_API_KEY: text("The provider's key; never accepted as a credential of this runtime."),
  MODEL_BASE_URL: url('Base URL of the provider; required for `openai-compatible`.', 'the public one of the provider'),
  MODEL_TIMEOUT_MS: whole(120_000, [100, 3_600_000], 'Maximum time in which the provider sends nothing.'),
  MODEL_MAX_RETRIES: whole(
    3,
    [0, 20],
    'Maximum number of further tries of a model call after 429, 5xx and network failures.',
  ),
};

const AGENT = {
  HARNESS_FILE: text(
    'YAML file that describes the agent; a variable wins over the member of the same meaning.',
    '`harness.yaml`, if it exists',
  ),
  SYSTEM_PROMPT: text('Instruction of the agent.'),
  TOOLS: list('Built-in tools of the agent.', '`current_time,calculator`'),
  SKILLS: list('Skills of the agent: names of directories in `SKILLS_DIR`.'),
  SKILLS_DIR: text('Directory of the skills.'),
  MCP_SERVERS: text('Remote MCP servers: a JSON array of `{name, url, headers?}`, or URLs separated by commas.'),
  MCP_ALLOWED_HOSTS: list(
    'Hosts that MCP servers may have: names, `*.example.com`, or an origin for a private address.',
    'every public host; in mode `local` without `ALLOW_ANONYMOUS` loopback too',
  ),
  MCP_CONNECT_TIMEOUT_MS: whole(3_000, [10, 600_000], 'Maximum time to connect to an MCP server.'),
  MCP_LIST_TIMEOUT_MS: whole(10_000, [10, 600_000], 'Maximum time to list the tools of an MCP server.'),
  MCP_CALL_TIMEOUT_MS: whole(60_000, [10, 3_600_000], 'Maximum time of one call of an MCP tool.'),
  MCP_CONNECTIONS_PER_USER: whole(
    32,
    [1, 100_000],
    'Maximum number of connections that one user has open to one MCP server, in this process.',
  ),
  MCP_ON_FAILURE: choiceOr(
    'fail',
    ['fail', 'skip'],
    'An MCP server that cannot be reached ends the invocation (`fail`), or its tools are left out (`skip`).',
  ),
  APP_ALIASES: documented(
    z.string().transform(splitAtCommas).default(['harness']),
    'Further names of the application `harness_agent` in requests, as command lines have them built in; `,` for none.',
    'comma-separated',
    '`harness`',
  ),
  AGENTS_DIR: textOr('agents', 'Directory of further agent applications, one `<name>/agent.ts` each.'),
};

const MAX_LLM_CALLS_RANGE: [number, number] = [1, 1_000_000];

const INVOCATIONS = {
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
  SESSION_LEASE_MS: whole(15_000, [300, 600_000], 'How long a process that was killed keeps its sessions.'),
  ON_DISCONNECT: choiceOr(
    'continue',
    ['continue', 'cancel'],
    'What happens to an invocation when the client that waits for it disconnects.',
  ),
  MAX_INVOCATIONS: whole(
    200,
    [1, 100_000],
    'Maximum number of invocations in this process, waiting ones included; further ones are refused with 503.',
  ),
  INVOCATION_TIMEOUT_MS: whole(600_000, [100, 86_400_000], 'Maximum time of one invocation.'),
  MAX_LLM_CALLS: documented(
    integer(MAX_LLM_CALLS_RANGE).optional(),
    'Maximum number of model calls of one invocation.',
    rangeText(MAX_LLM_CALLS_RANGE),
    '`500`',
  ),
  MAX_TOOL_CALLS: whole(500, [1, 1_000_000], 'Maximum number of tool calls of one invocation.'),
  ...SIZES,
};

const CRONJOBS = {
  CRONJOBS: flag(false, 'Whether there are cronjobs: their operations, and a scheduler in this process.'),
  CRONJOBS_MAX_PER_USER: whole(100, [1, 100_000], 'Maximum number of cronjobs of one user.'),
  CRONJOBS_MIN_INTERVAL_SECONDS: whole(
    30,
    [30, 86_400],
    'Minimum time between two times of a cronjob; a schedule that fires more often is refused with 422.',
  ),
  CRONJOBS_MAX_RUNS: whole(20, [1, 10_000], 'Maximum number of cronjob runs in this process at once; others wait.'),
  CRONJOBS_MAX_RUNS_PER_USER: whole(
    5,
    [1, 10_000],
    'Maximum number of cronjob runs of one user at once, in all processes; others wait.',
  ),
  CRONJOBS_RUN_RETENTION_DAYS: whole(30, [1, 3_650], 'How many days the runs of cronjobs are kept.'),
  CRONJOBS_RUN_RETENTION_COUNT: whole(1_000, [1, 1_000_000], 'How many ended runs of each cronjob are kept.'),
};

const EVALUATION = {
  EVALS_MAX_CASES: whole(1_000, [1, 100_000], 'Maximum number of cases of one evaluation run, each trial counted.'),
  EVALS_MAX_OPEN_RUNS: whole(100, [1, 10_000], 'Maximum number of runs of an application that have not ended.'),
  EVALS_PARALLELISM: whole(4, [1, 1_000], 'Maximum number of cases of one run at once, in all processes.'),
  EVALS_MAX_RUNNING_CASES: whole(16, [1, 1_000], 'Maximum number of cases in this process at once; others wait.'),
  EVALS_RUN_RETENTION_DAYS: whole(90, [1, 3_650], 'How many days evaluation runs are kept, with their sessions.'),
  EVALS_RUN_RETENTION_COUNT: whole(1_000, [1, 1_000_000], 'How many ended runs of each evaluation set are kept.'),
  EVALS_JUDGE_MODEL: text('Model that judges where a metric names none.', 'the model of the evaluated application'),
};

const ARTIFACTS = {
  MAX_ARTIFACT_BYTES: whole(
    10_485_760,
    [1_024, 104_857_600],
    'Maximum size of an artifact. A larger one as base64 also needs a larger `MAX_BODY_BYTES`.',
  ),
  ARTIFACT_STORE: documented(
    z
      .string()
      .regex(/^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[\w./-]{0,512})?$/, 's3://bucket or s3://bucket/prefix')
      .optional(),
    'Bucket for the bytes of artifacts, Amazon S3 or compatible.',
    '`s3://bucket/prefix`',
    'in the database',
  ),
  ARTIFACT_STORE_PATH_STYLE: choice(
    ['true', 'false'],
    'Whether the name of the bucket stands in the path instead of the host name.',
    '`true` if `AWS_ENDPOINT_URL` is set',
  ),
  AWS_REGION: textOr('us-east-1', 'Region of the bucket.'),
  AWS_ENDPOINT_URL: url('Address of a store that is not Amazon S3.', 'Amazon S3'),
  AWS_ACCESS_KEY_ID: text('Access key for the bucket.', 'the credentials of the machine'),
  AWS_SECRET_ACCESS_KEY: text('Secret of `AWS_ACCESS_KEY_ID`.'),
  AWS_SESSION_TOKEN: text('Session token of a temporary access key.'),
};

const OPERATION = {
  DRAIN_DELAY_MS: whole(
    500,
    [0, 600_000],
    'Time after SIGTERM in which requests are still taken while `/ready` answers 503, for load balancers to notice.',
  ),
  SHUTDOWN_GRACE_MS: whole(30_000, [0, 600_000], 'Maximum time that running requests may take to end after that.'),
  SWEEP_INTERVAL_MS: whole(
    5_000,
    [50, 3_600_000],
    'Time between two sweeps, which end the invocations of dead processes and forget old keys and traces.',
  ),
  ...RETENTION,
  ...USER_RETENTION,
};

/** The settings by subject, in the order of `docs/configuration.md`. */
export const SETTING_GROUPS: readonly [heading: string, settings: Record<string, z.ZodType>][] = [
  ['Server', SERVER],
  ['Database', DATABASE],
  ['Access', ACCESS],
  ['Limits of one user', FAIRNESS],
  ['Audit', AUDIT],
  ['Model', MODEL],
  ['Agent', AGENT],
  ['Invocations and limits', INVOCATIONS],
  ['Live sessions', LIVE],
  ['Replays', REPLAYS],
  ['Cronjobs', CRONJOBS],
  ['Webhooks', WEBHOOKS],
  ['Evaluation', EVALUATION],
  ['Artifacts', ARTIFACTS],
  ['Operation', OPERATION],
  ['Logs, metrics and traces', OBSERVABILITY],
];

/** Every environment variable that the runtime reads, with its default and meaning. */
export const environmentSchema = z.object({
  ...SERVER,
  ...DATABASE,
  ...ACCESS,
  ...FAIRNESS,
  ...AUDIT,
  ...MODEL,
  ...AGENT,
  ...INVOCATIONS,
  ...LIVE,
  ...REPLAYS,
  ...CRONJOBS,
  ...WEBHOOKS,
  ...EVALUATION,
  ...ARTIFACTS,
  ...OPERATION,
  ...OBSERVABILITY,
});
