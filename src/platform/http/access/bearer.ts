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

/** How callers prove who they are. */
export type AuthOptions =
  | { mode: 'local' }
  /** `keys`: with all scopes; several, so that they can be rotated. `file`: of keys with limits (`key-ring.ts`). */
  | { mode: 'key'; keys: string[]; file?: string | undefined }
  | ({
      mode: 'jwt';
      /** The `iss` that tokens must carry, and where its discovery document is. */
      issuer: string;
      /** The `aud` that tokens must carry; without one any audience is accepted. */
      audience?: string | undefined;
      /** The claim that names the user. */
      userClaim: string;
      /** The claim that says what a token allows; without one every token has {@link USER_SCOPES}. */
      scopeClaim?: string | undefined;
      /** The claim that names the groups of the user; without one there are none. */
      groupsClaim?: string | undefined;
    } & JwksOptions);

/** The same words for every missing, malformed, wrong or expired credential: they must not help to guess one. */
const REFUSED = 'authentication required';
/** Longer tokens are refused unread; Node itself refuses headers over 16 KiB in all. */
const MAX_TOKEN_LENGTH = 8192;
const CLOCK_TOLERANCE_SECONDS = 30;
/** A verified token is not verified again for this long: its signature costs 0.8 ms, more than a refusal may. */
const TOKEN_CACHE_MS = 5_000;
/** Only asymmetric ones: with HS256 the public key would be a shared secret. */
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
/** `typ` of access tokens (RFC 9068) and of plain JWTs; a logout token or a DPoP proof is not a credential. */
const TOKEN_TYPES = new Set([undefined, 'jwt', 'at+jwt', 'application/at+jwt']);

/** Finds out who sends a request. @throws UnauthenticatedError; UnavailableError when no verification key can be had */
export type Authenticate = (request: Request) => Promise<Principal>;

/**
 * Returns what finds out who calls, before any byte of a body is read.
 *
 * In `local` mode nothing could check a credential, so one that is sent is ignored and every caller is anonymous: the
 * mode is for a loopback address, where `guards.ts` keeps web pages out.
 * @param appAliases further names of applications in credentials → the names
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

/** Returns what the limit of failures counts; `undefined` where no credential is sent. */
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
    // A token that has only expired was right once: it is no guess.
    const isGuess = error instanceof UnauthenticatedError && !isExpired(error);
    if (isGuess) await logins.failed(login);
    throw error;
  } finally {
    leave();
  }
}

function tokenAuthenticator(options: Extract<AuthOptions, { mode: 'jwt' }>): Authenticate {
  // jose is loaded where tokens are, and there at the start, since the keys are fetched then.
  const keys = import('./jwks.ts').then(({ createKeySource }) => createKeySource(options));
  const tokenCache = new BoundedCache<{ user: TokenUser; until: number }>();
  const pendingVerifications = new SingleFlight<TokenUser>();
  return async (request) => {
    const token = bearerToken(request);
    // Decoders pass over spare bits, padding and the other alphabet, which would make many tokens of one.
    const signature = token.slice(token.lastIndexOf('.') + 1);
    if (Buffer.from(signature, 'base64url').toString('base64url') !== signature) throw new InvalidTokenError(REFUSED);
    // Kept by digest: no token can be read from the memory of the process for longer than its request.
    const digest = hash('sha256', token, 'base64url');
    const cached = tokenCache.get(digest);
    if (cached && cached.until > Date.now()) return cached.user;
    // Of many requests that bring it at once, one verifies it.
    const user = await pendingVerifications.run(digest, () => verifiedUser(token, keys, options));
    tokenCache.set(digest, { user, until: Math.min(Date.now() + TOKEN_CACHE_MS, user.expiresAt) });
    return user;
  };
}

/** Returns true for a token that was right until it expired. */
export const isExpired = ({ cause }: UnauthenticatedError): boolean =>
  cause instanceof Error && 'code' in cause && cause.code === 'ERR_JWT_EXPIRED';

/** @throws UnauthenticatedError when there is no well-formed bearer credential (RFC 6750 §2.1) */
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

/** The user of a token, until it expires. */
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
  // By the rule of every identifier: as another text the store might keep it, or take it for another user's.
  const { data: userId } = identifierSchema.safeParse(payload[options.userClaim]);
  const issuedInFuture = (payload.iat ?? 0) > Date.now() / 1000 + CLOCK_TOLERANCE_SECONDS;
  const isAccessToken = TOKEN_TYPES.has(protectedHeader.typ?.toLowerCase());
  if (userId === undefined || issuedInFuture || !isAccessToken) throw new InvalidTokenError(REFUSED);
  const scopes = options.scopeClaim === undefined ? [] : scopesIn(payload[options.scopeClaim]);
  const groups = options.groupsClaim === undefined ? [] : groupsIn(payload[options.groupsClaim]);
  const expiresAt = ((payload.exp ?? 0) + CLOCK_TOLERANCE_SECONDS) * 1000;
  return { kind: 'user', userId, groups, scopes: new Set(scopes.length > 0 ? scopes : USER_SCOPES), expiresAt };
}

/** Maximum of groups of a token, and of the characters of one. */
const MAX_GROUPS = 200;
const MAX_GROUP = 256;

/** The groups of a claim; what no task can name, a control character in it for instance, is none. */
const groupsIn = (claim: unknown): string[] =>
  wordsIn(claim)
    .filter((word) => typeof word === 'string' && word.length <= MAX_GROUP && /^[^\p{Cc}]+$/u.test(word))
    .slice(0, MAX_GROUPS) as string[];

/** The words of a claim: with blanks between them (RFC 8693 §4.2), or an array of them. */
const wordsIn = (claim: unknown): unknown[] =>
  typeof claim === 'string' ? claim.split(' ') : Array.isArray(claim) ? claim : [];

/** Our scopes among those of a claim. */
function scopesIn(claim: unknown) {
  const words = wordsIn(claim);
  return SCOPES.filter((scope) => words.includes(scope));
}

/** jose demands neither `exp` nor an audience by itself, so both are required here. */
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
