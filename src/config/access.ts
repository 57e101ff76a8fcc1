import ipaddr from 'ipaddr.js';
import { ConfigError } from '../core/errors.ts';
import type { SERVER } from './server.ts';
import { choice, flag, list, type SettingValues, text, textOr, url } from './setting-schemas.ts';

export const ACCESS = {
  AUTH_MODE: choice(
    ['local', 'key', 'jwt'],
    'The [mode](security.md#modes), which says who may call.',
    '`key` with runtime keys, `jwt` with `JWT_ISSUER`, else `local`',
  ),
  ALLOW_ANONYMOUS: flag(
    false,
    'Lets mode `local` and the development UI listen on any address, without a login. Names other than ' +
      '`localhost` need `ALLOWED_HOSTS`.',
  ),
  RUNTIME_API_KEYS: list('Keys of mode `key`, each of at least 16 characters.'),
  RUNTIME_API_KEYS_FILE: text(
    'File of [keys](security.md#keys) with scopes, users, apps and expiry, one a line or a JSON array.',
  ),
  RUNTIME_SECRET_KEY: list(
    'Keys that encrypt (the first) and decrypt (all) what users grant, and credentials of MCP servers in ' +
      'stored requests. Without one users cannot grant access, and such a request ends with its process and ' +
      'cannot wait.',
  ),
  JWT_ISSUER: url('Issuer of the tokens of mode `jwt`.'),
  JWT_AUDIENCE: text('Audience of the tokens; required in mode `jwt`.'),
  JWT_JWKS_URL: url("Address of the issuer's public keys.", "from the issuer's discovery document"),
  JWT_USER_CLAIM: textOr('sub', 'Claim with the user of a token.'),
  JWT_GROUPS_CLAIM: text("Claim with the user's groups (words or an array), to which tasks are assigned.", 'no groups'),
  JWT_SCOPE_CLAIM: text(
    'Claim with the scopes of a token; without any of ours a token has those of a user.',
    '`invoke`, `read`, `write` for all',
  ),
};

type AccessSettings = SettingValues<typeof ACCESS>;
type Listening = Pick<AccessSettings, 'ALLOW_ANONYMOUS'> &
  Pick<SettingValues<typeof SERVER>, 'HOST' | 'DEV_UI'> & { auth: AuthSettings };

export type AuthSettings =
  | { mode: 'local' }
  | { mode: 'key'; keys: string[]; file?: string }
  | {
      mode: 'jwt';
      issuer: string;
      audience: string | undefined;
      jwksUrl: string | undefined;
      userClaim: string;
      scopeClaim?: string;
      groupsClaim?: string;
    };

const LOOPBACK_HOSTS = new Set(['127.0.0.1', '::1', 'localhost']);
export const isLoopbackHost = (host: string) => LOOPBACK_HOSTS.has(host);
const MIN_KEY_LENGTH = 16;
/** Minimum number of different characters in a key: of 10^8 keys of `openssl rand -hex 16`, one has fewer. */
const MIN_DIFFERENT_CHARACTERS = 8;
const PLACEHOLDER = /change[-_ ]?me|your[-_ ]|placeholder|replace[-_ ]|example|insert[-_ ]/i;
/** The characters that a bearer credential may have (RFC 6750 §2.1). */
const SENDABLE = /^[\w~+/.-]+=*$/;
const MAKE_ONE = 'make one with `openssl rand -hex 32`.';

/** @throws {ConfigError} if a setting of AUTH_MODE is missing or unsafe, or if there are settings of two modes */
export function toAuth(env: AccessSettings & { MODEL_API_KEY?: string | undefined }): AuthSettings {
  const hasKeys = env.RUNTIME_API_KEYS.length > 0 || env.RUNTIME_API_KEYS_FILE !== undefined;
  const mode = env.AUTH_MODE ?? (hasKeys ? 'key' : env.JWT_ISSUER ? 'jwt' : 'local');
  const foreign = [
    ...(hasKeys && mode !== 'key' ? ['RUNTIME_API_KEYS'] : []),
    ...(env.JWT_ISSUER && mode !== 'jwt' ? ['JWT_ISSUER'] : []),
  ];
  if (foreign.length > 0) {
    throw new ConfigError(
      `AUTH_MODE: found ${mode} with ${foreign.join(' and ')} of another mode; a runtime has one mode. ` +
        'Unset the other.',
    );
  }
  if (mode === 'local') return { mode };
  if (mode === 'key') return toKeys(env);
  return toJwt(env);
}

function toKeys({
  RUNTIME_API_KEYS: keys,
  RUNTIME_API_KEYS_FILE: file,
  MODEL_API_KEY,
}: Parameters<typeof toAuth>[0]): AuthSettings {
  checkKeys(keys, MODEL_API_KEY);
  if (file !== undefined) return { mode: 'key', keys, file };
  if (keys.length > 0) return { mode: 'key', keys };
  throw new ConfigError('RUNTIME_API_KEYS: found nothing; AUTH_MODE key needs at least one key.');
}

function toJwt(env: AccessSettings): AuthSettings {
  if (!env.JWT_ISSUER) throw new ConfigError('JWT_ISSUER: found nothing; AUTH_MODE jwt needs the URL of the issuer.');
  if (!env.JWT_AUDIENCE)
    throw new ConfigError('JWT_AUDIENCE: found nothing; AUTH_MODE jwt needs the audience that tokens are made for.');
  const { JWT_ISSUER: issuer, JWT_AUDIENCE: audience, JWT_JWKS_URL: jwksUrl, JWT_USER_CLAIM: userClaim } = env;
  const claims = {
    ...(env.JWT_SCOPE_CLAIM !== undefined && { scopeClaim: env.JWT_SCOPE_CLAIM }),
    ...(env.JWT_GROUPS_CLAIM !== undefined && { groupsClaim: env.JWT_GROUPS_CLAIM }),
  };
  requireSecure('JWT_ISSUER', issuer);
  if (jwksUrl) requireSecure('JWT_JWKS_URL', jwksUrl);
  return { mode: 'jwt', issuer, audience, jwksUrl, userClaim, ...claims };
}

/** Requires https, because over http an attacker in the network could replace the keys that verify tokens. */
function requireSecure(name: string, address: string): void {
  const { protocol, hostname } = new URL(address);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  const isLoopback = host === 'localhost' || (ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback');
  if (protocol === 'https:' || (protocol === 'http:' && isLoopback)) return;
  throw new ConfigError(`${name}: found an address that is not https; only one of this machine may be http.`);
}

/** @throws {ConfigError} if a key is easy to guess */
export function checkKeys(
  keys: string[],
  modelKey: string | undefined,
  setting: keyof typeof ACCESS = 'RUNTIME_API_KEYS',
): void {
  for (const key of keys) {
    const fault = findFault(key, modelKey);
    if (fault) throw new ConfigError(`${setting}: found ${fault}; ${MAKE_ONE}`);
  }
}

/** Returns why a key is easy to guess, without quoting the key. */
function findFault(key: string, modelKey: string | undefined): string | undefined {
  if (key.length < MIN_KEY_LENGTH) return `a key of fewer than ${MIN_KEY_LENGTH} characters`;
  if (!SENDABLE.test(key)) return 'a key with characters that no Authorization header can carry';
  if (key === modelKey) return 'the value of MODEL_API_KEY, which is a secret between this service and the provider';
  if (PLACEHOLDER.test(key)) return 'a placeholder';
  return new Set(key).size < MIN_DIFFERENT_CHARACTERS ? 'a key that can be guessed' : undefined;
}

/** Refuses to listen beyond loopback without a login, unless ALLOW_ANONYMOUS permits it. @throws {ConfigError} */
export function checkListening({ auth, HOST, ALLOW_ANONYMOUS, DEV_UI }: Listening): void {
  if (isLoopbackHost(HOST)) return;
  if (DEV_UI && isPublicAddress(HOST)) {
    throw new ConfigError(
      `DEV_UI: found "true" with HOST "${HOST}", a public address; the development UI mode shows prompts and has no ` +
        'login. Set HOST=127.0.0.1.',
    );
  }
  if (ALLOW_ANONYMOUS) return;
  if (auth.mode === 'local') {
    throw new ConfigError(
      `HOST: found "${HOST}"; AUTH_MODE local listens on loopback only. Set RUNTIME_API_KEYS, or ` +
        'ALLOW_ANONYMOUS=true if every caller that can reach this address may use the runtime.',
    );
  }
  if (DEV_UI) {
    throw new ConfigError(
      `DEV_UI: found "true" with HOST "${HOST}"; the development UI mode has no login and listens on loopback only. ` +
        'Set HOST=127.0.0.1, or ALLOW_ANONYMOUS=true.',
    );
  }
}

/** Returns a warning if a service without credentials listens beyond loopback. */
export const describeAnonymous = ({ auth, HOST, ALLOW_ANONYMOUS, DEV_UI }: Listening): string | undefined =>
  ALLOW_ANONYMOUS && !isLoopbackHost(HOST) && (auth.mode === 'local' || DEV_UI)
    ? `everybody who reaches ${HOST} may use the runtime as any user, without a credential: ALLOW_ANONYMOUS is true; set ` +
      'RUNTIME_API_KEYS or JWT_ISSUER where others reach it'
    : undefined;

/**
 * Ranges of addresses that are not public. `0.0.0.0` counts as private, because a service in a container listens on it
 * and has private addresses only.
 */
const PRIVATE_RANGES = new Set(['unspecified', 'loopback', 'private', 'linkLocal', 'uniqueLocal', 'carrierGradeNat']);
const isPublicAddress = (host: string) => ipaddr.isValid(host) && !PRIVATE_RANGES.has(ipaddr.process(host).range());
