import { createHash, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { SignJWT } from 'jose';
import { close, listen, readBody } from './edge.ts';
import { signingKey } from './issuer.ts';

/** An issuer that people log in at with a browser: authorization code with PKCE, for public clients. */
export interface LoginIssuer {
  url: string;
  /** The next who logs in, and the scopes of its token. */
  next: { user: string; scopes: string };
  /** The header of a token of a user. */
  headersOf(user: string, scopes: string): Promise<Record<string, string>>;
  close(): Promise<void>;
}

/** Starts one on loopback, for the audience `runtime`; it asks nothing. */
export async function startLoginIssuer(): Promise<LoginIssuer> {
  const key = await signingKey('ES256', 'one');
  const codes = new Map<string, { challenge: string; who: LoginIssuer['next'] }>();
  const next = { user: 'u1', scopes: 'invoke read write' };
  const tokenOf = (user: string, scopes: string) =>
    new SignJWT({ sub: user, scope: scopes })
      .setProtectedHeader({ alg: 'ES256', kid: 'one' })
      .setIssuer(url)
      .setAudience('runtime')
      .setExpirationTime('2h')
      .sign(key.privateKey);
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', url);
    const json = (status: number, value: object) =>
      response
        .writeHead(status, { 'content-type': 'application/json', 'access-control-allow-origin': '*' })
        .end(JSON.stringify(value));
    if (pathname.startsWith('/.well-known/')) return json(200, metadata);
    if (pathname === '/keys') return json(200, { keys: [key.jwk] });
    if (pathname === '/authorize') {
      const code = randomUUID();
      codes.set(code, { challenge: searchParams.get('code_challenge') ?? '', who: { ...next } });
      const back = new URL(searchParams.get('redirect_uri') ?? '');
      back.search = new URLSearchParams({ code, state: searchParams.get('state') ?? '' }).toString();
      return response.writeHead(303, { location: back.href }).end();
    }
    return void readBody(request).then(async (body) => {
      const form = new URLSearchParams(body.toString());
      const asked = codes.get(form.get('code') ?? '');
      codes.delete(form.get('code') ?? '');
      const challenge = createHash('sha256')
        .update(form.get('code_verifier') ?? '')
        .digest('base64url');
      if (asked?.challenge !== challenge) return json(400, { error: 'invalid_grant' });
      const token = await tokenOf(asked.who.user, asked.who.scopes);
      return json(200, { access_token: token, token_type: 'Bearer' });
    });
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  const metadata = {
    issuer: url,
    jwks_uri: `${url}/keys`,
    authorization_endpoint: `${url}/authorize`,
    token_endpoint: `${url}/token`,
  };
  return {
    url,
    next,
    headersOf: async (user, scopes) => ({ authorization: `Bearer ${await tokenOf(user, scopes)}` }),
    close: () => close(server),
  };
}
