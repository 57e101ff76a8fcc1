import { existsSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError } from './errors.ts';

/** A setting as text; the second argument of each helper is what the error and the README's table say. */
const text = (meaning: string) => z.string().min(1).optional().describe(meaning);
const list = (meaning: string) =>
  z
    .string()
    .transform((value) =>
      value
        .split(',')
        .map((item) => item.trim())
        .filter(Boolean),
    )
    .default([])
    .describe(meaning);
const flag = (fallback: boolean, meaning: string) =>
  z
    .enum(['true', 'false'], 'true or false')
    .transform((value) => value === 'true')
    .default(fallback)
    .describe(meaning);
const whole = (fallback: number, [least, most]: [number, number], meaning: string) =>
  z
    .string()
    .regex(/^\d{1,12}$/, `a whole number from ${least} to ${most}`)
    .transform(Number)
    .refine((value) => value >= least && value <= most, `a whole number from ${least} to ${most}`)
    .default(fallback)
    .describe(meaning);
const optionalWhole = (range: [number, number], meaning: string) =>
  whole(0, range, meaning).unwrap().optional().describe(meaning);
const oneOf = <const Values extends readonly [string, ...string[]]>(values: Values) =>
  z.enum(values, values.join(', '));
const url = (meaning: string) => z.url('a URL').optional().describe(meaning);

/** Every environment variable that the runtime reads, with its default and meaning: the source of the README's table. */
export const environmentSchema = z.object({
  HOST: z.string().min(1).default('127.0.0.1').describe('Address to listen on.'),
  PORT: whole(8000, [0, 65_535], 'Port to listen on; 0 takes a free one.'),
  DATABASE_URL: text('PostgreSQL to use; without it an embedded one runs under `DATA_DIR`.'),
  DATA_DIR: z.string().min(1).default('.data').describe('Where the embedded PostgreSQL keeps its data.'),
  DATABASE_POOL_SIZE: whole(10, [1, 1000], 'Most connections of this process.'),
  DATABASE_STATEMENT_TIMEOUT_MS: whole(10_000, [100, 600_000], 'Longest time of one SQL statement.'),
  DATABASE_LOCK_TIMEOUT_MS: whole(5_000, [100, 600_000], 'Longest wait for a row lock.'),
  DATABASE_CONNECT_TIMEOUT_MS: whole(5_000, [100, 600_000], 'Longest wait for a connection.'),
  AUTH_MODE: oneOf(['local', 'key', 'jwt'])
    .optional()
    .describe(
      'Who may call: `local` (credential optional, loopback only), `key` or `jwt`. By default `key` if `RUNTIME_API_KEYS` is set, `jwt` if `JWT_ISSUER` is set, else `local`.',
    ),
  ALLOW_ANONYMOUS: flag(false, 'Lets mode `local` listen on an address that is not loopback.'),
  RUNTIME_API_KEYS: list(
    'Keys of mode `key`, comma-separated; several are active at once, for rotation. Each has 16 characters at least.',
  ),
  JWT_ISSUER: url('Issuer of the tokens of mode `jwt`.'),
  JWT_AUDIENCE: text('Audience that a token must name.'),
  JWT_JWKS_URL: url("Where the issuer's keys are; by default from its discovery document."),
  JWT_USER_CLAIM: z.string().min(1).default('sub').describe("Claim that holds the token's user."),
  DEV_UI: flag(
    false,
    'Development UI mode: the ADK Web UI at `/dev-ui/` and the development operations under `/dev/`.',
  ),
  TRACE_RETENTION_HOURS: whole(
    72,
    [1, 8_760],
    'How long the development UI mode keeps traces of invocations, with their prompts and answers.',
  ),
  ALLOWED_HOSTS: list(
    'Host names beside loopback that mode `local` and the development UI mode answer to, comma-separated.',
  ),
  ALLOWED_ORIGINS: list('Origins of web pages that may read answers in a browser, comma-separated.'),
  MODEL_PROVIDER: oneOf(['offline', 'openai', 'openai-compatible', 'anthropic', 'google'])
    .optional()
    .describe('Where the model is [`offline`, a built-in model that needs no key].'),
  MODEL_NAME: text('Model to call; needed for every provider but `offline`.'),
  MODEL_API_KEY: text("The provider's key; never a runtime credential."),
  MODEL_BASE_URL: url('Base URL of the provider, for `openai-compatible` and for proxies.'),
  MODEL_TIMEOUT_MS: whole(120_000, [100, 3_600_000], 'Longest silence of the provider.'),
  MODEL_MAX_RETRIES: whole(3, [0, 20], 'Retries of a model call after 429, 5xx and network failures.'),
  SYSTEM_PROMPT: text("The agent's instruction."),
  TOOLS: list('Built-in tools of the agent, comma-separated [`current_time,calculator`].'),
  SKILLS: list('Skills of the agent, comma-separated; names of directories in `SKILLS_DIR`.'),
  SKILLS_DIR: text('Directory of the skills.'),
  MCP_SERVERS: text('Remote MCP servers: a JSON array of `{name, url, headers?}`, or URLs, comma-separated.'),
  MCP_ALLOWED_HOSTS: list(
    'Host names that MCP servers may have, comma-separated; by default every public one, in mode `local` loopback too.',
  ),
  MCP_CONNECT_TIMEOUT_MS: whole(3_000, [10, 600_000], 'Longest time to connect to an MCP server.'),
  MCP_LIST_TIMEOUT_MS: whole(10_000, [10, 600_000], 'Longest time to list the tools of an MCP server.'),
  MCP_CALL_TIMEOUT_MS: whole(60_000, [10, 3_600_000], 'Longest time of one call of an MCP tool.'),
  MCP_ON_FAILURE: oneOf(['fail', 'skip'])
    .default('fail')
    .describe('What an MCP server that cannot be reached does: end the invocation, or leave its tools out.'),
  MAX_LLM_CALLS: optionalWhole([1, 1_000_000], 'Most model calls of one invocation [500].'),
  AGENTS_DIR: z
    .string()
    .min(1)
    .default('agents')
    .describe('Directory of further agent applications, one `<name>/agent.ts` each.'),
  HARNESS_FILE: text(
    'YAML file that describes the agent [`harness.yaml`, where it exists]; a variable of the environment wins over its member.',
  ),
  SESSION_WAIT_MS: whole(30_000, [0, 600_000], 'Longest wait for a session that runs another invocation.'),
  SESSION_LEASE_MS: whole(15_000, [300, 600_000], 'How long a killed process keeps its sessions.'),
  DOUBLE_TEXTING: oneOf(['enqueue', 'reject', 'interrupt'])
    .default('enqueue')
    .describe('What a second message for a busy session does: wait its turn, fail with 409, or interrupt the first.'),
  SESSION_QUEUE_DEPTH: whole(8, [0, 1000], 'Most requests that wait for one session; more are refused with 429.'),
  ON_DISCONNECT: oneOf(['continue', 'cancel'])
    .default('continue')
    .describe('What an invocation does when the client that waits for it leaves.'),
  MAX_INVOCATIONS: whole(
    200,
    [1, 100_000],
    'Most invocations that this process holds at once, waiting ones included; more are refused with 503.',
  ),
  MAX_TOOL_CALLS: whole(500, [1, 1_000_000], 'Most tool calls of one invocation.'),
  MAX_EVENT_BYTES: whole(1_048_576, [1_024, 104_857_600], 'Largest event of an invocation.'),
  MAX_STATE_BYTES: whole(1_048_576, [1_024, 104_857_600], 'Largest state of a session, a user or an application.'),
  SWEEP_INTERVAL_MS: whole(
    5_000,
    [50, 3_600_000],
    'Time between two sweeps: dead invocations are ended, old idempotency keys forgotten.',
  ),
  INVOCATION_TIMEOUT_MS: whole(600_000, [100, 86_400_000], 'Longest time of one invocation.'),
  MAX_BODY_BYTES: whole(10_485_760, [1_024, 104_857_600], 'Largest request body.'),
  MAX_ARTIFACT_BYTES: whole(10_485_760, [1_024, 104_857_600], 'Largest artifact; over HTTP it comes as base64.'),
  ARTIFACT_STORE: z
    .string()
    .regex(/^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[\w./-]{0,512})?$/, 's3://bucket or s3://bucket/prefix')
    .optional()
    .describe('Where the bytes of artifacts are kept: `s3://bucket/prefix`, by default in the database.'),
  ARTIFACT_STORE_PATH_STYLE: oneOf(['true', 'false'])
    .optional()
    .describe('Buckets in the path and not in the host name; by default where `AWS_ENDPOINT_URL` is set.'),
  AWS_REGION: z.string().min(1).default('us-east-1').describe('Region of the bucket.'),
  AWS_ENDPOINT_URL: url("Address of an S3-compatible store that is not Amazon's."),
  AWS_ACCESS_KEY_ID: text('Credential for the bucket; without one that of the machine is used.'),
  AWS_SECRET_ACCESS_KEY: text('Secret of `AWS_ACCESS_KEY_ID`.'),
  AWS_SESSION_TOKEN: text('Session of a temporary credential.'),
  SHUTDOWN_GRACE_MS: whole(30_000, [0, 600_000], 'How long running requests may take to end after SIGTERM.'),
  LOG_LEVEL: oneOf(['silent', 'fatal', 'error', 'warn', 'info', 'debug', 'trace'])
    .default('warn')
    .describe('What is logged, as JSON lines on standard error.'),
});

type Environment = z.output<typeof environmentSchema>;

/** Who may call the runtime. */
type AuthSettings =
  | { mode: 'local' }
  | { mode: 'key'; keys: string[] }
  | { mode: 'jwt'; issuer: string; audience: string | undefined; jwksUrl: string | undefined; userClaim: string };

/** The settings of a process, checked and with defaults. */
export type Config = Environment & {
  auth: AuthSettings;
  /** The whole environment: `${NAME}` in headers of MCP servers is filled from it. */
  variables: Readonly<Record<string, string | undefined>>;
};

const LOOPBACK_HOSTS = new Set(['127.0.0.1', '::1', 'localhost']);
/** Variables whose value is never shown. */
const SECRET = /KEY|URL|TOKEN|MCP_SERVERS/;

/**
 * Reads the settings. An empty variable counts as unset.
 * @throws {ConfigError} that names each wrong variable, what was found and what is allowed.
 */
export function readConfig(environment: Record<string, string | undefined>): Config {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = environmentSchema.safeParse(given);
  if (!parsed.success)
    throw new ConfigError(parsed.error.issues.map((issue) => describeIssue(issue, given)).join('\n'));
  const config = { ...parsed.data, auth: toAuth(parsed.data), variables: given };
  checkListening(config);
  return config;
}

/** The environment of this process, with the `.env` file of the working directory where there is one. */
export function processEnvironment(): Record<string, string | undefined> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return process.env;
}

function describeIssue(issue: z.core.$ZodIssue, given: Record<string, string | undefined>): string {
  const name = String(issue.path[0]);
  const found = SECRET.test(name) ? 'a wrong value' : JSON.stringify(given[name]);
  return `${name}: found ${found}; allowed: ${issue.message}.`;
}

function toAuth(env: Environment): AuthSettings {
  const mode = env.AUTH_MODE ?? (env.RUNTIME_API_KEYS.length > 0 ? 'key' : env.JWT_ISSUER ? 'jwt' : 'local');
  if (mode === 'local') return { mode };
  if (mode === 'key') return { mode, keys: checkKeys(env.RUNTIME_API_KEYS) };
  if (!env.JWT_ISSUER) throw new ConfigError('JWT_ISSUER: found nothing; AUTH_MODE jwt needs the URL of the issuer.');
  if (!env.JWT_AUDIENCE) {
    throw new ConfigError('JWT_AUDIENCE: found nothing; AUTH_MODE jwt needs the audience that tokens are made for.');
  }
  const { JWT_ISSUER: issuer, JWT_AUDIENCE: audience, JWT_JWKS_URL: jwksUrl, JWT_USER_CLAIM: userClaim } = env;
  return { mode, issuer, audience, jwksUrl, userClaim };
}

function checkKeys(keys: string[]): string[] {
  if (keys.length === 0) throw new ConfigError('RUNTIME_API_KEYS: found nothing; AUTH_MODE key needs a key at least.');
  if (keys.some((key) => key.length < 16)) {
    throw new ConfigError(
      'RUNTIME_API_KEYS: found a key of less than 16 characters; make one with `openssl rand -hex 32`.',
    );
  }
  return keys;
}

/** Nobody may listen to the world without a login by accident. */
function checkListening({ auth, HOST, ALLOW_ANONYMOUS, DEV_UI }: Config): void {
  if (LOOPBACK_HOSTS.has(HOST) || ALLOW_ANONYMOUS) return;
  if (auth.mode === 'local') {
    throw new ConfigError(
      `HOST: found "${HOST}"; AUTH_MODE local listens on loopback only. Set RUNTIME_API_KEYS, or ALLOW_ANONYMOUS=true if everybody who reaches this address may use the runtime.`,
    );
  }
  if (DEV_UI) {
    throw new ConfigError(
      `DEV_UI: found "true" with HOST "${HOST}"; the development UI mode has no login and listens on loopback only. Set HOST=127.0.0.1, or ALLOW_ANONYMOUS=true.`,
    );
  }
}
