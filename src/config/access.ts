import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { ConfigError } from '../core/errors.ts';
import type { AuthMode, AuthOptions } from '../platform/http/access/bearer.ts';
import { claimedIssuer, type TokenIssuer } from '../platform/http/access/tokens.ts';
import { SCOPES } from '../platform/http/operation/principal.ts';
import type { SERVER } from './server.ts';
import { choice, flag, list, type SettingValues, text, url } from './setting-schemas.ts';

export const ACCESS = {
  AUTH_MODE: choice(
    ['local', 'key', 'jwt', 'key+jwt'],
    'The [mode](security.md#modes): which credentials are taken. It follows from the settings below; written out, it ' +
      'refuses a start in which it would be another one.',
    '`key` with runtime keys, `jwt` with issuers, `key+jwt` with both, else `local`',
  ),
  ALLOW_ANONYMOUS: flag(
    false,
    'Lets mode `local` and the development UI listen on any address, without a login. Names other than ' +
      '`localhost` need `ALLOWED_HOSTS`.',
  ),
  RUNTIME_API_KEYS: list("Operators' [keys](security.md#keys), each of at least 16 characters."),
  RUNTIME_API_KEYS_FILE: text(
    'File of [keys](security.md#keys) with scopes, users, apps and expiry, one a line or a JSON array.',
  ),
  RUNTIME_SECRET_KEY: list(
    'Keys that encrypt (the first) and decrypt (all) what users grant, and credentials of MCP servers in ' +
      'stored requests. Without one users cannot grant access, and such a request ends with its process and ' +
      'cannot wait.',
  ),
  JWT_ISSUER: url('Issuer of the [tokens](security.md#tokens) of users.'),
  JWT_AUDIENCE: text('Audience of the tokens; required with `JWT_ISSUER`.'),
  JWT_JWKS_URL: url("Address of the issuer's public keys.", "from the issuer's discovery document"),
  JWT_USER_CLAIM: text('Claim with the user of a token.', '`sub`'),
  JWT_GROUPS_CLAIM: text("Claim with the user's groups (words or an array), to which tasks are assigned.", 'no groups'),
  JWT_SCOPE_CLAIM: text(
    'Claim with the scopes of a token; without any of ours a token has those of a user.',
    '`invoke`, `read`, `write` for all',
  ),
  JWT_ISSUERS: text('Several issuers in place of `JWT_ISSUER`: a [JSON array](security.md#several-issuers).'),
};

type AccessSettings = SettingValues<typeof ACCESS>;
type Listening = Pick<AccessSettings, 'ALLOW_ANONYMOUS'> &
  Pick<SettingValues<typeof SERVER>, 'HOST' | 'DEV_UI'> & { auth: AuthOptions };

const LOOPBACK_HOSTS = new Set(['127.0.0.1', '::1', 'localhost']);
export const isLoopbackHost = (host: string) => LOOPBACK_HOSTS.has(host);
const MIN_KEY_LENGTH = 16;
/** Minimum number of different characters in a key: of 10^8 keys of `openssl rand -hex 16`, one has fewer. */
const MIN_DIFFERENT_CHARACTERS = 8;
const PLACEHOLDER = /change[-_ ]?me|your[-_ ]|placeholder|replace[-_ ]|example|insert[-_ ]/i;
/** The characters that a bearer credential may have (RFC 6750 §2.1). */
const SENDABLE = /^[\w~+/.-]+=*$/;
const MAKE_ONE = 'make one with `openssl rand -hex 32`.';

/** @throws {ConfigError} if a setting is missing or unsafe, or would have no effect */
export function toAuth(env: AccessSettings & { MODEL_API_KEY?: string | undefined }): AuthOptions {
  const { RUNTIME_API_KEYS: plain, RUNTIME_API_KEYS_FILE: file, JWT_ISSUER, JWT_ISSUERS } = env;
  const given = {
    key: [...(plain.length > 0 ? ['RUNTIME_API_KEYS'] : []), ...(file === undefined ? [] : ['RUNTIME_API_KEYS_FILE'])],
    jwt: [...(JWT_ISSUER ? ['JWT_ISSUER'] : []), ...(JWT_ISSUERS ? ['JWT_ISSUERS'] : [])],
  };
  const mode = env.AUTH_MODE ?? toMode(given);
  const idle = [...(takes(mode, 'key') ? [] : given.key), ...(takes(mode, 'jwt') ? [] : given.jwt)];
  if (idle.length > 0) {
    const names = idle.join(' and ');
    throw new ConfigError(
      `AUTH_MODE: found ${mode}, in which ${names} would have no effect; unset AUTH_MODE, and it follows from what is ` +
        `set, or unset ${names}.`,
    );
  }
  if (takes(mode, 'key') && given.key.length === 0)
    throw new ConfigError(`RUNTIME_API_KEYS: found nothing; AUTH_MODE ${mode} needs at least one key.`);
  if (takes(mode, 'jwt') && given.jwt.length === 0)
    throw new ConfigError(`JWT_ISSUER: found nothing; AUTH_MODE ${mode} needs the URL of the issuer.`);
  const issuers = toIssuers(env);
  if (takes(mode, 'key')) checkKeys(plain, env.MODEL_API_KEY);
  checkNoTokens(plain, issuers);
  return {
    mode,
    ...(takes(mode, 'key') && { keys: { plain, ...(file !== undefined && { file }) } }),
    ...(takes(mode, 'jwt') && { issuers }),
  };
}

const toMode = ({ key, jwt }: Record<'key' | 'jwt', string[]>): AuthMode =>
  key.length > 0 ? (jwt.length > 0 ? 'key+jwt' : 'key') : jwt.length > 0 ? 'jwt' : 'local';
const takes = (mode: AuthMode, credential: 'key' | 'jwt') => mode.split('+').includes(credential);

/** Settings that say something about `JWT_ISSUER`. */
const OF_ISSUER = ['JWT_AUDIENCE', 'JWT_JWKS_URL', 'JWT_USER_CLAIM', 'JWT_GROUPS_CLAIM', 'JWT_SCOPE_CLAIM'] as const;

/** Returns the issuers of tokens. @throws {ConfigError} */
function toIssuers(env: AccessSettings): TokenIssuer[] {
  const { JWT_ISSUER: issuer, JWT_ISSUERS: several } = env;
  if (issuer && several)
    throw new ConfigError('JWT_ISSUERS: found beside JWT_ISSUER; make that an entry of the list, and unset it.');
  const idle = issuer ? undefined : OF_ISSUER.find((name) => env[name] !== undefined);
  if (idle)
    throw new ConfigError(
      several
        ? `${idle}: found beside JWT_ISSUERS, whose entries say it for each issuer; unset it.`
        : `${idle}: found without JWT_ISSUER; set JWT_ISSUER, or unset ${idle}.`,
    );
  if (several) return readIssuers(several);
  return issuer ? [toIssuer(issuer, env)] : [];
}

function toIssuer(issuer: string, env: AccessSettings): TokenIssuer {
  const { JWT_AUDIENCE: audience, JWT_JWKS_URL: jwksUrl } = env;
  if (!audience)
    throw new ConfigError('JWT_AUDIENCE: found nothing; JWT_ISSUER needs the audience that its tokens are made for.');
  requireSecure('JWT_ISSUER', issuer);
  if (jwksUrl) requireSecure('JWT_JWKS_URL', jwksUrl);
  return {
    issuer,
    audience,
    userClaim: env.JWT_USER_CLAIM ?? 'sub',
    ...(jwksUrl !== undefined && { jwksUrl }),
    ...(env.JWT_SCOPE_CLAIM !== undefined && { scopeClaim: env.JWT_SCOPE_CLAIM }),
    ...(env.JWT_GROUPS_CLAIM !== undefined && { groupsClaim: env.JWT_GROUPS_CLAIM }),
  };
}

const MAX_ISSUERS = 16;
const MAX_PREFIX_CHARACTERS = 64;
const issuersSchema = z
  .array(
    z.strictObject({
      issuer: z.url(),
      audience: z.string().min(1),
      jwksUrl: z.url().optional(),
      userClaim: z.string().min(1).default('sub'),
      userPrefix: z
        .string()
        .regex(/^[^\p{Cc}]+$/u, 'needs characters, and no control characters')
        .max(MAX_PREFIX_CHARACTERS)
        .optional(),
      groupsClaim: z.string().min(1).optional(),
      scopeClaim: z.string().min(1).optional(),
      scopes: z.array(z.enum(SCOPES)).min(1).optional(),
      clientId: z.string().min(1).optional(),
    }),
  )
  .min(1)
  .max(MAX_ISSUERS);

/** Reads the setting `JWT_ISSUERS`. @throws {ConfigError} also if two issuers would name the same users */
function readIssuers(setting: string): TokenIssuer[] {
  const read = issuersSchema.safeParse(parseJson(setting));
  if (!read.success) {
    const [issue] = read.error.issues;
    const path = issue?.path.map((part) => (typeof part === 'number' ? `entry ${part + 1}` : String(part))) ?? [];
    const place = path.length > 0 ? ` at ${path.join(', ')}` : '';
    throw new ConfigError(`JWT_ISSUERS: found no list of issuers${place}: ${issue?.message}.`);
  }
  const names = new Set<string>();
  const byPrefix = new Map<string, string>();
  for (const { issuer, jwksUrl, userPrefix = '' } of read.data) {
    requireSecure('JWT_ISSUERS', issuer);
    if (jwksUrl) requireSecure('JWT_ISSUERS', jwksUrl);
    if (names.has(issuer)) throw new ConfigError(`JWT_ISSUERS: found ${issuer} twice.`);
    const other = byPrefix.get(userPrefix);
    if (other !== undefined)
      throw new ConfigError(
        `JWT_ISSUERS: found ${other} and ${issuer} with ${userPrefix === '' ? 'no userPrefix' : 'the same userPrefix'}, ` +
          'so that the user "ann" of one would be the user "ann" of the other; give each a userPrefix of its own, or ' +
          'one of them none.',
      );
    names.add(issuer);
    byPrefix.set(userPrefix, issuer);
  }
  return read.data;
}

function parseJson(setting: string): unknown {
  try {
    return JSON.parse(setting);
  } catch {
    return setting;
  }
}

/** A credential that names an issuer is looked up as a token, so as a key it would never be found. */
function checkNoTokens(keys: readonly string[], issuers: readonly TokenIssuer[]): void {
  const isToken = (key: string) => issuers.some(({ issuer }) => issuer === claimedIssuer(key));
  if (keys.some(isToken)) throw new ConfigError(`RUNTIME_API_KEYS: found a token of an issuer; ${MAKE_ONE}`);
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
