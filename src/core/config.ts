import { existsSync } from 'node:fs';
import type { z } from 'zod';
import { ConfigError } from './errors.ts';
import { environmentSchema } from './settings.ts';

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
  if (keys.length === 0)
    throw new ConfigError('RUNTIME_API_KEYS: found nothing; AUTH_MODE key needs at least one key.');
  if (keys.some((key) => key.length < 16)) {
    throw new ConfigError(
      'RUNTIME_API_KEYS: found a key of fewer than 16 characters; make one with `openssl rand -hex 32`.',
    );
  }
  return keys;
}

/** Nobody may listen to the world without a login by accident. */
function checkListening({ auth, HOST, ALLOW_ANONYMOUS, DEV_UI }: Config): void {
  if (LOOPBACK_HOSTS.has(HOST) || ALLOW_ANONYMOUS) return;
  if (auth.mode === 'local') {
    throw new ConfigError(
      `HOST: found "${HOST}"; AUTH_MODE local listens on loopback only. Set RUNTIME_API_KEYS, or ` +
        'ALLOW_ANONYMOUS=true if everybody who can reach this address may use the runtime.',
    );
  }
  if (DEV_UI) {
    throw new ConfigError(
      `DEV_UI: found "true" with HOST "${HOST}"; the development UI mode has no login and listens on loopback only. ` +
        'Set HOST=127.0.0.1, or ALLOW_ANONYMOUS=true.',
    );
  }
}
