import type { Request } from 'express';
import { InvalidTokenError, UnauthenticatedError } from '../../../core/errors.ts';
import { toNetwork } from '../../net/network.ts';
import type { Login, LoginLimit } from '../limits/login-limit.ts';
import type { Principal } from '../operation/principal.ts';
import { createKeyRing, type KeyOptions } from './key-ring.ts';
import { createTokenUsers, isExpired, REFUSED, type TokenIssuer } from './tokens.ts';

/** Which credentials are taken: none, the operator's keys, tokens (JWTs) of users, or both. */
export type AuthMode = 'local' | 'key' | 'jwt' | 'key+jwt';

/** How callers authenticate. `keys` and `issuers` are there as `mode` says. */
export interface AuthOptions {
  mode: AuthMode;
  keys?: KeyOptions | undefined;
  issuers?: readonly TokenIssuer[] | undefined;
}

/** Maximum length of a credential in characters; longer ones are not decoded. Node limits all headers to 16 KiB. */
const MAX_LENGTH = 8192;

/** @throws {UnauthenticatedError} @throws {UnavailableError} if what a credential is verified with is not available */
export type Authenticate = (request: Request) => Promise<Principal>;

/**
 * Prepares authentication, which runs before the body is read. Mode `local` has none: every caller is anonymous, and
 * `guards.ts` refuses requests from web pages.
 * @param appAliases alias of an application in credentials → the application's name
 */
export function authentication(
  { keys, issuers }: AuthOptions,
  appAliases: ReadonlyMap<string, string>,
  logins?: LoginLimit,
): Authenticate | undefined {
  if (!keys && !issuers) return undefined;
  const findHolder = keys && createKeyRing(keys);
  const users = issuers && createTokenUsers(issuers, keys !== undefined);
  const authenticate = async (request: Request, isToken: boolean) => {
    const credential = bearerCredential(request);
    const principal = isToken ? await users?.find(credential) : await findHolder?.(credential);
    if (!principal) throw new InvalidTokenError(REFUSED);
    return principal;
  };
  return async (request) => {
    const sent = request.headers.authorization?.replace(/^bearer +/i, '');
    // What claims to be of an issuer is a token and is looked up as nothing else; all else is a key.
    const isToken = users !== undefined && (!findHolder || (sent !== undefined && users.isClaimed(sent)));
    const login = logins && sent !== undefined && toLogin(request, sent, isToken);
    const principal = await (login
      ? withLoginLimit(logins, login, () => authenticate(request, isToken))
      : authenticate(request, isToken));
    const apps = principal.apps && new Set([...principal.apps].map((name) => appAliases.get(name) ?? name));
    return apps ? { ...principal, apps } : principal;
  };
}

/** Returns the names under which a wrong credential is counted: the address, and the id that a key begins with. */
function toLogin({ ip }: Request, credential: string, isToken: boolean): Login {
  // The tokens of an issuer begin alike, with the header that says how they are signed.
  const [, keyId] = isToken ? [] : (/^([\w-]{1,64})\./.exec(credential) ?? []);
  return { credential, names: [`address ${toNetwork(ip)}`, ...(keyId === undefined ? [] : [`key ${keyId}`])] };
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

/** @throws UnauthenticatedError if there is no well-formed bearer credential (RFC 6750 §2.1) */
function bearerCredential(request: Request): string {
  const { authorization = '' } = request.headers;
  const [, credential] = /^bearer +([\w~+/.-]+=*)$/i.exec(authorization) ?? [];
  if (credential !== undefined && credential.length <= MAX_LENGTH) return credential;
  throw /^bearer /i.test(authorization) ? new InvalidTokenError(REFUSED) : new UnauthenticatedError(REFUSED);
}
