import { type RequestListener, createServer } from 'node:http';
import { type CryptoKey, type JWK, exportJWK, generateKeyPair } from 'jose';
import { close, listen } from './edge.ts';

/** A token issuer on loopback: a discovery document and a key set, which a test may change, delay or break. */
export interface Issuer {
  url: string;
  jwksUrl: string;
  /** What the key set holds now. */
  keys: JWK[];
  /** How often the key set was asked for. */
  fetches: number;
  /** Answers instead of the key set: a status and a body. */
  broken: { status: number; body: string; headers?: Record<string, string> } | undefined;
  /** When set, answers wait for it. */
  gate: Promise<void> | undefined;
  close(): Promise<void>;
}

/** Here the key set is always whole, for redirects that must not be followed. */
export const MOVED_PATH = '/moved-keys';

export interface SigningKey {
  privateKey: CryptoKey;
  publicKey: CryptoKey;
  jwk: JWK;
}

/** A fresh signing key; `jwk` is its public half as a key set shows it. */
export async function signingKey(algorithm: string, keyId?: string): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm, { extractable: true });
  const jwk = { ...(await exportJWK(publicKey)), use: 'sig', ...(keyId === undefined ? {} : { kid: keyId }) };
  return { privateKey, publicKey, jwk };
}

export async function startIssuer(keys: JWK[]): Promise<Issuer> {
  const answer = async (...[request, response]: Parameters<RequestListener>) => {
    const isKeySet = request.url === '/keys' || request.url === MOVED_PATH;
    if (isKeySet) issuer.fetches++;
    await issuer.gate;
    const broken = request.url === MOVED_PATH ? undefined : issuer.broken;
    const { status, body, headers } = broken ?? { status: 200, body: undefined, headers: {} };
    const document = { issuer: issuer.url, jwks_uri: issuer.jwksUrl };
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(body ?? JSON.stringify(isKeySet ? { keys: issuer.keys } : document));
  };
  const server = createServer((request, response) => void answer(request, response));
  const url = `http://127.0.0.1:${await listen(server)}`;
  const issuer: Issuer = {
    url,
    jwksUrl: `${url}/keys`,
    keys,
    fetches: 0,
    broken: undefined,
    gate: undefined,
    close: () => close(server),
  };
  return issuer;
}
