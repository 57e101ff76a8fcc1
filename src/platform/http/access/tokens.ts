import { hash } from 'node:crypto';
import type { JWTVerifyGetKey, JWTVerifyResult } from 'jose';
import { InvalidTokenError, UnavailableError } from '../../../core/errors.ts';
import { SHARED_USERS } from '../../../core/names.ts';
import { identifierSchema } from '../../../core/session.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { SingleFlight } from '../../work/single-flight.ts';
import { type Principal, type Scope, SCOPES, USER_SCOPES } from '../operation/principal.ts';
import type { JwksOptions } from './jwks.ts';

/** An issuer of users' tokens. */
export interface TokenIssuer extends JwksOptions {
  /** The `iss` claim of valid tokens. It is also the base address of the issuer's discovery document. */
  issuer: string;
  /** The `aud` claim of valid tokens. Default: any audience. */
  audience?: string | undefined;
  /** The claim that names the user. */
  userClaim: string;
  /** The claim that lists the scopes. Default: every token has {@link USER_SCOPES}. */
  scopeClaim?: string | undefined;
  /** The only scopes that a token of the issuer can have. Default: no limit. */
  scopes?: readonly Scope[] | undefined;
  /** The claim that lists the user's groups. Default: users have no groups. */
  groupsClaim?: string | undefined;
  /**
   * Begins the id of each user and group of the issuer. Default: empty. It keeps `ann` of this issuer apart from `ann`
   * of another one, so no two issuers have the same.
   */
  userPrefix?: string | undefined;
  /** Public client of the issuer with which the console logs in. Default: a token is pasted. */
  clientId?: string | undefined;
}

/** The same message for a missing, malformed, wrong or expired credential, because it must not help to guess one. */
export const REFUSED = 'authentication required';
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

export type TokenUser = Extract<Principal, { kind: 'user' }> & { expiresAt: number };

/** Finds the user of a token. @throws {InvalidTokenError} @throws {UnavailableError} if no verification keys are available */
export interface TokenUsers {
  /** True if the text is a JWT that claims to be of one of the issuers; nothing is verified. */
  isClaimed(credential: string): boolean;
  find(token: string): Promise<TokenUser>;
}

interface KnownIssuer {
  options: TokenIssuer;
  keys: Promise<JWTVerifyGetKey>;
  /** True if a name is one of this issuer's users or groups. */
  owns: (name: string) => boolean;
  /** True if a token of this issuer may be of the user. */
  mayBe: (userId: string) => boolean;
}

/**
 * A token is verified with the keys of the issuer that it claims to be of, and no others.
 * @param besideKeys true: operators have keys, which may act for {@link SHARED_USERS}, so no token is of one of those
 */
export function createTokenUsers(issuers: readonly TokenIssuer[], besideKeys: boolean): TokenUsers {
  // jose is loaded only where there are issuers, and at the start, because the keys are fetched then.
  const jwks = import('./jwks.ts');
  const known = new Map(
    issuers.map((options): [string, KnownIssuer] => {
      const keys = jwks.then(({ createKeySource }) => createKeySource(options));
      const owns = ownership(options, issuers);
      const mayBe = (userId: string) => owns(userId) && !(besideKeys && SHARED_USERS.includes(userId));
      return [options.issuer, { options, keys, owns, mayBe }];
    }),
  );
  const cache = new BoundedCache<{ user: TokenUser; until: number }>();
  const pending = new SingleFlight<TokenUser>();
  return {
    isClaimed: (credential) => known.has(claimedIssuer(credential) ?? ''),
    async find(token) {
      // Base64 decoders ignore spare bits, padding and the other alphabet, so one token could be spelt in many ways.
      const signature = token.slice(token.lastIndexOf('.') + 1);
      if (Buffer.from(signature, 'base64url').toString('base64url') !== signature) throw new InvalidTokenError(REFUSED);
      // The cache stores digests, so that no token stays in memory after its request.
      const digest = hash('sha256', token, 'base64url');
      const cached = cache.get(digest);
      if (cached && cached.until > Date.now()) return cached.user;
      const issuer = known.get(claimedIssuer(token) ?? '');
      if (!issuer) throw new InvalidTokenError(REFUSED);
      // Concurrent requests with the same token share one verification.
      const user = await pending.run(digest, () => verifiedUser(token, issuer));
      cache.set(digest, { user, until: Math.min(Date.now() + TOKEN_CACHE_MS, user.expiresAt) });
      return user;
    },
  };
}

/** The `iss` claim of a JWT before it is verified; `undefined` for any other text. */
export function claimedIssuer(credential: string): string | undefined {
  const [, payload, signature, more] = credential.split('.', 4);
  if (payload === undefined || signature === undefined || more !== undefined) return undefined;
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString());
    const issuer = (claims as { iss?: unknown } | null)?.iss;
    return typeof issuer === 'string' ? issuer : undefined;
  } catch {
    return undefined;
  }
}

/**
 * A name belongs to the issuer with the longest prefix that it begins with. Without this, an issuer without a prefix
 * could write that of another one into its claim.
 */
function ownership({ userPrefix: own = '' }: TokenIssuer, issuers: readonly TokenIssuer[]) {
  const longer = issuers.flatMap(({ userPrefix = '' }) => (userPrefix.length > own.length ? [userPrefix] : []));
  return (name: string) => !longer.some((prefix) => name.startsWith(prefix));
}

/** True if a token was refused only because it has expired. */
export const isExpired = ({ cause }: { cause?: unknown }): boolean =>
  cause instanceof Error && 'code' in cause && cause.code === 'ERR_JWT_EXPIRED';

async function verifiedUser(token: string, { options, keys, owns, mayBe }: KnownIssuer): Promise<TokenUser> {
  const { protectedHeader, payload } = await verify(token, await keys, options);
  const { userPrefix = '', userClaim } = options;
  const claimed = payload[userClaim];
  // The user id must satisfy the rules for identifiers; otherwise the store might alter it, or confuse two users.
  const isNamed = typeof claimed === 'string' && claimed !== '';
  const { data: userId } = identifierSchema.safeParse(isNamed ? userPrefix + claimed : undefined);
  const issuedInFuture = (payload.iat ?? 0) > Date.now() / 1000 + CLOCK_TOLERANCE_SECONDS;
  const isAccessToken = TOKEN_TYPES.has(protectedHeader.typ?.toLowerCase());
  if (userId === undefined || !mayBe(userId) || issuedInFuture || !isAccessToken) throw new InvalidTokenError(REFUSED);
  const groups = options.groupsClaim === undefined ? [] : groupsIn(payload[options.groupsClaim], userPrefix);
  const expiresAt = ((payload.exp ?? 0) + CLOCK_TOLERANCE_SECONDS) * 1000;
  return { kind: 'user', userId, groups: groups.filter(owns), scopes: toScopes(options, payload), expiresAt };
}

/** The scopes of a token: those in its claim, or those of a user if it has none of ours; of an issuer's scopes only. */
function toScopes({ scopeClaim, scopes }: TokenIssuer, claims: Record<string, unknown>): ReadonlySet<Scope> {
  const claimed = scopeClaim === undefined ? [] : scopesIn(claims[scopeClaim]);
  const given = claimed.length > 0 ? claimed : USER_SCOPES;
  return new Set(scopes ? given.filter((scope) => scopes.includes(scope)) : given);
}

/** Maximum number of groups in a token, and maximum length of a group's name in characters. */
const MAX_GROUPS = 200;
const MAX_GROUP = 256;

/**
 * Returns the groups in a claim, without those that cannot be a task's assignee, e.g. because of a control character.
 */
const groupsIn = (claim: unknown, prefix: string): string[] =>
  wordsIn(claim)
    .flatMap((word) => (typeof word === 'string' && word !== '' ? [prefix + word] : []))
    .filter((group) => group.length <= MAX_GROUP && /^[^\p{Cc}]+$/u.test(group))
    .slice(0, MAX_GROUPS);

/** Returns the values in a claim: a space-separated string (RFC 8693 §4.2), or an array. */
const wordsIn = (claim: unknown): unknown[] =>
  typeof claim === 'string' ? claim.split(' ') : Array.isArray(claim) ? claim : [];

function scopesIn(claim: unknown) {
  const words = wordsIn(claim);
  return SCOPES.filter((scope) => words.includes(scope));
}

/** Verifies a token. jose requires neither `exp` nor an audience by default, so both are required here. */
async function verify(token: string, keys: JWTVerifyGetKey, options: TokenIssuer): Promise<JWTVerifyResult> {
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
