import { hash } from 'node:crypto';
import type { Request } from 'express';
import type { JWTVerifyGetKey, JWTVerifyResult } from 'jose';
import { toNetwork } from '../../net/network.ts';
import { InvalidTokenError, UnauthenticatedError, UnavailableError } from '../../../core/errors.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { SingleFlight } from '../../work/single-flight.ts';
import { identifierSchema } from '../../../core/session.ts';
import type { JwksOptions } from './jwks.ts';
import { type Principal, SCOPES, USER_SCOPES } from '../operation/principal.ts';
import type { Login, LoginLimit } from '../limits/login-limit.ts';
import { createKeyRing } from './key-ring.ts';

/** How callers authenticate: with the operator's keys (mode `key`), or with JWTs of a user pool (mode `jwt`). */
export type AuthOptions =
  | { mode: 'local' }
  /** `keys` have all scopes; there may be several, for rotation. `file` lists restricted keys (`key-ring.ts`). */
  | { mode: 'key'; keys: string[]; file?: string | undefined }
  | ({
      mode: 'jwt';
      /** The `iss` claim of valid tokens. It is also the base address of the issuer's discovery document. */
      issuer: string;
      /** The `aud` claim of valid tokens. Default: any audience. */
      audience?: string | undefined;
      /** The claim that names the user. */
      userClaim: string;
      /** The claim that lists the scopes. Default: every token has {@link USER_SCOPES}. */
      scopeClaim?: string | undefined;
      /** The claim that lists the user's groups. Default: users have no groups. */
      groupsClaim?: string | undefined;
    } & JwksOptions);

/** The same message for a missing, malformed, wrong or expired credential, because it must not help to guess one. */
const REFUSED = 'authentication required';
/** Maximum length of a token in characters; longer ones are not decoded. Node limits all headers to 16 KiB. */
const MAX_TOKEN_LENGTH = 8192;
const CLOCK_TOLERANCE_SECONDS = 30;
/** Cache duration of a token's verification, because verifying takes 0.8 ms and a request must be refused in less. */
const TOKEN_CACHE_MS = 5_000;
/** Asymmetric algorithms only: with HS256 the public key would be a shared secret. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];
/** Accepted `typ` headers: access tokens (RFC 9068) and plain JWTs, but not logout tokens and DPoP proofs. */
const TOKEN_TYPES = new Set([undefined, 'jwt', 'at+jwt', 'application/at+jwt']);

/** @throws {UnauthenticatedError} @throws {UnavailableError} if no verification keys are available */
export type Authenticate = (request: Request) => Promise<Principal>;

/**
 * Prepares authentication, which runs before the body is read. Mode `local` has none: every caller is anonymous, and
 * `guards.ts` refuses requests from web pages.
 * @param appAliases alias of an application in credentials → the application's name
 */
export function authentication(
  options: AuthOptions,
  appAliases: ReadonlyMap<string, string>,
  logins?: LoginLimit,
): Authenticate | undefined {
  if (options.mode === 'local') return undefined;
  const { mode } = options;
  const authenticate = mode === 'key' ? keyAuthenticator(options) : tokenAuthenticator(options);
  return async (request) => {
    const login = logins && toLogin(mode, request);
    const principal = await (login
      ? withLoginLimit(logins, login, () => authenticate(request))
      : authenticate(request));
    const apps = principal.apps && new Set([...principal.apps].map((name) => appAliases.get(name) ?? name));
    return apps ? { ...principal, apps } : principal;
  };
}

/** Returns the names under which wrong credentials are counted; `undefined` if the request has no credential. */
function toLogin(mode: 'key' | 'jwt', request: Request): Login | undefined {
  const credential = request.headers.authorization?.replace(/^bearer +/i, '');
  if (credential === undefined) return undefined;
  const [, keyId] = mode === 'key' ? (/^([\w-]{1,64})\./.exec(credential) ?? []) : [];
  const names = [`address ${toNetwork(request.ip)}`, ...(keyId === undefined ? [] : [`key ${keyId}`])];
  return { credential, names };
}

async function withLoginLimit(
  logins: LoginLimit,
  login: Login,
  authenticate: () => Promise<Principal>,
): Promise<Principal> {
  const leave = await logins.admit(login);
  try {
    const principal = await authenticate();
    logins.succeeded(login);
    return principal;
  } catch (error) {
    // An expired token was valid once, so it is not counted as a guess.
    const isGuess = error instanceof UnauthenticatedError && !isExpired(error);
    if (isGuess) await logins.failed(login);
    throw error;
  } finally {
    leave();
  }
}

function tokenAuthenticator(options: Extract<AuthOptions, { mode: 'jwt' }>): Authenticate {
  // jose is loaded only in mode `jwt`, and at the start, because the keys are fetched then.
  const keys = import('./jwks.ts').then(({ createKeySource }) => createKeySource(options));
  const tokenCache = new BoundedCache<{ user: TokenUser; until: number }>();
  const pendingVerifications = new SingleFlight<TokenUser>();
  return async (request) => {
    const token = bearerToken(request);
    // Base64 decoders ignore spare bits, padding and the other alphabet, so one token could be spelt in many ways.
    const signature = token.slice(token.lastIndexOf('.') + 1);
    if (Buffer.from(signature, 'base64url').toString('base64url') !== signature) throw new InvalidTokenError(REFUSED);
    // The cache stores digests, so that no token stays in memory after its request.
    const digest = hash('sha256', token, 'base64url');
    const cached = tokenCache.get(digest);
    if (cached && cached.until > Date.now()) return cached.user;
    // Concurrent requests with the same token share one verification.
    const user = await pendingVerifications.run(digest, () => verifiedUser(token, keys, options));
    tokenCache.set(digest, { user, until: Math.min(Date.now() + TOKEN_CACHE_MS, user.expiresAt) });
    return user;
  };
}

/** True if a token was refused only because it has expired. */
export const isExpired = ({ cause }: UnauthenticatedError): boolean =>
  cause instanceof Error && 'code' in cause && cause.code === 'ERR_JWT_EXPIRED';

/** @throws UnauthenticatedError if there is no well-formed bearer credential (RFC 6750 §2.1) */
function bearerToken(request: Request): string {
  const { authorization = '' } = request.headers;
  const [, token] = /^bearer +([\w~+/.-]+=*)$/i.exec(authorization) ?? [];
  if (token !== undefined && token.length <= MAX_TOKEN_LENGTH) return token;
  throw /^bearer /i.test(authorization) ? new InvalidTokenError(REFUSED) : new UnauthenticatedError(REFUSED);
}

function keyAuthenticator(options: { keys: string[]; file?: string | undefined }): Authenticate {
  const findHolder = createKeyRing(options);
  return async (request) => {
    const holder = await findHolder(bearerToken(request));
    if (!holder) throw new InvalidTokenError(REFUSED);
    return holder;
  };
}

type TokenUser = Extract<Principal, { kind: 'user' }> & { expiresAt: number };

async function verifiedUser(
  token: string,
  keys: Promise<JWTVerifyGetKey>,
  options: Pick<
    Extract<AuthOptions, { mode: 'jwt' }>,
    'issuer' | 'audience' | 'userClaim' | 'scopeClaim' | 'groupsClaim'
  >,
): Promise<TokenUser> {
  const { protectedHeader, payload } = await verify(token, await keys, options);
  // The user id must satisfy the rules for identifiers; otherwise the store might alter it, or confuse two users.
  const { data: userId } = identifierSchema.safeParse(payload[options.userClaim]);
  const issuedInFuture = (payload.iat ?? 0) > Date.now() / 1000 + CLOCK_TOLERANCE_SECONDS;
  const isAccessToken = TOKEN_TYPES.has(protectedHeader.typ?.toLowerCase());
  if (userId === undefined || issuedInFuture || !isAccessToken) throw new InvalidTokenError(REFUSED);
  const scopes = options.scopeClaim === undefined ? [] : scopesIn(payload[options.scopeClaim]);
  const groups = options.groupsClaim === undefined ? [] : groupsIn(payload[options.groupsClaim]);
  const expiresAt = ((payload.exp ?? 0) + CLOCK_TOLERANCE_SECONDS) * 1000;
  return { kind: 'user', userId, groups, scopes: new Set(scopes.length > 0 ? scopes : USER_SCOPES), expiresAt };
}

/** Maximum number of groups in a token, and maximum length of a group's name in characters. */
const MAX_GROUPS = 200;
const MAX_GROUP = 256;

/**
 * Returns the groups in a claim, without those that cannot be a task's assignee, e.g. because of a control character.
 */
const groupsIn = (claim: unknown): string[] =>
  wordsIn(claim)
    .filter((word) => typeof word === 'string' && word.length <= MAX_GROUP && /^[^\p{Cc}]+$/u.test(word))
    .slice(0, MAX_GROUPS) as string[];

/** Returns the values in a claim: a space-separated string (RFC 8693 §4.2), or an array. */
const wordsIn = (claim: unknown): unknown[] =>
  typeof claim === 'string' ? claim.split(' ') : Array.isArray(claim) ? claim : [];

function scopesIn(claim: unknown) {
  const words = wordsIn(claim);
  return SCOPES.filter((scope) => words.includes(scope));
}

/** Verifies a token. jose requires neither `exp` nor an audience by default, so both are required here. */
async function verify(
  token: string,
  keys: JWTVerifyGetKey,
  options: { issuer: string; audience?: string | undefined; userClaim: string },
): Promise<JWTVerifyResult> {
  const { jwtVerify } = await import('jose');
  try {
    return await jwtVerify(token, keys, {
      issuer: options.issuer,
      algorithms: ALGORITHMS,
      requiredClaims: ['exp', options.userClaim],
      clockTolerance: CLOCK_TOLERANCE_SECONDS,
      ...(options.audience === undefined ? {} : { audience: options.audience }),
    });
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    throw new InvalidTokenError(REFUSED, { cause: error });
  }
}
