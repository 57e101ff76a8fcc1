import { SignJWT } from 'jose';
import { type Issuer, signingKey, startIssuer } from './issuer.ts';

/** An issuer that signs tokens for tests. */
export interface TokenIssuer {
  /** What a runtime needs to believe it. */
  environment: Record<string, string>;
  /**
   * The header of a token of a user; with `scopes` it says so in its claim `scope`, groups in `groups`. With `issuer` it
   * claims to be of that one.
   */
  headersOf(
    user: string,
    options?: { scopes?: string; expires?: string; groups?: string[]; issuer?: string },
  ): Promise<Record<string, string>>;
  issuer: Issuer;
  close(): Promise<void>;
}

/** Starts an issuer of tokens for the audience `runtime`, whose scopes are in the claim `scope`. */
export async function startTokenIssuer(): Promise<TokenIssuer> {
  const key = await signingKey('ES256', 'one');
  const issuer = await startIssuer([key.jwk]);
  return {
    issuer,
    environment: { JWT_ISSUER: issuer.url, JWT_AUDIENCE: 'runtime', JWT_SCOPE_CLAIM: 'scope' },
    async headersOf(user, { scopes, expires = '2h', groups, issuer: claimed = issuer.url } = {}) {
      const claims = new SignJWT({
        sub: user,
        ...(scopes === undefined ? {} : { scope: scopes }),
        ...(groups && { groups }),
      });
      const token = await claims
        .setProtectedHeader({ alg: 'ES256', kid: 'one' })
        .setIssuer(claimed)
        .setAudience('runtime')
        .setExpirationTime(expires)
        .sign(key.privateKey);
      return { authorization: `Bearer ${token}` };
    },
    close: () => issuer.close(),
  };
}
