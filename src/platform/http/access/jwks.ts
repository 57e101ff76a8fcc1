import {
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  type FetchImplementation,
  type JSONWebKeySet,
  type JWTVerifyGetKey,
} from 'jose';
import { UnavailableError } from '../../../core/errors.ts';

export interface JwksOptions {
  /** Base address of the issuer's discovery document. */
  issuer: string;
  /** Address of the key set (RFC 7517). Default: the address in the issuer's discovery document. */
  jwksUrl?: string | undefined;
  /** Time-out of a request to the issuer, in milliseconds. Default: 3000. */
  timeoutMs?: number | undefined;
  /** Called if keys cannot be fetched, at most every five seconds. */
  onFailure?: ((error: unknown) => void) | undefined;
}

/** Maximum age of the key set, and so the longest time that a key removed by the issuer is still accepted. */
const FRESH_MS = 10 * 60_000;
/** Minimum time between two fetches for unknown key ids, so that forged ids cannot cause a fetch each. */
const UNKNOWN_KEY_COOLDOWN_MS = 30_000;
/** Pause after a failed fetch. */
const BACK_OFF_MS = 5_000;
/** Maximum age of the last good key set while the issuer is unavailable, so that its users are not locked out. */
const STALE_MS = 60 * 60_000;
const DEFAULT_TIMEOUT_MS = 3_000;
const MAX_KEY_SET_BYTES = 256 * 1024;

/**
 * jose caches the issuer's keys: it shares concurrent fetches, expires keys, and pauses after an unknown key id.
 * @returns a function that throws UnavailableError if no keys are available, and jose's errors if no key fits
 */
export function createKeySource(options: JwksOptions): JWTVerifyGetKey {
  const source = keySetFetch(options);
  const remote = createRemoteJWKSet(new URL(options.jwksUrl ?? options.issuer), {
    timeoutDuration: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    cacheMaxAge: FRESH_MS,
    cooldownDuration: UNKNOWN_KEY_COOLDOWN_MS,
    [customFetch]: source.fetch,
  });
  // Fills the cache at start-up. A failure is ignored here, because the first request fetches again and reports it.
  void remote.reload().catch(() => undefined);
  return async (header, token) => {
    // jose would consider a repeated response fresh, so its age is checked here.
    if (source.isTooOld()) await remote.reload();
    return remote(header, token);
  };
}

/**
 * A `fetch` for jose that backs off after a failure and returns the last good response meanwhile. jose alone would
 * fetch again for every token, and refuse all tokens until a fetch succeeds.
 */
function keySetFetch({ issuer, jwksUrl, onFailure }: JwksOptions): { fetch: FetchImplementation; isTooOld(): boolean } {
  let address = jwksUrl;
  let last: { keySet: JSONWebKeySet; fetchedAt: number } | undefined;
  let failedAt = Number.NEGATIVE_INFINITY;
  const isTooOld = () => last === undefined || Date.now() - last.fetchedAt >= STALE_MS;
  return {
    isTooOld,
    async fetch(_url, { signal }) {
      if (Date.now() - failedAt >= BACK_OFF_MS) {
        try {
          address ??= await discoveredAddress(issuer, signal);
          last = { keySet: await fetchKeySet({ issuer, jwksUrl: address }, signal), fetchedAt: Date.now() };
        } catch (error) {
          failedAt = Date.now();
          onFailure?.(error);
        }
      }
      if (isTooOld()) throw new UnavailableError('The keys to verify tokens with cannot be fetched for now.');
      return Response.json(last?.keySet);
    },
  };
}

/** @throws {Error} if the keys cannot be fetched, or are none */
export async function fetchKeySet(
  { issuer, jwksUrl }: Pick<JwksOptions, 'issuer' | 'jwksUrl'>,
  signal: AbortSignal,
): Promise<JSONWebKeySet> {
  const keySet = await fetchJson(jwksUrl ?? (await discoveredAddress(issuer, signal)), signal);
  // `createLocalJWKSet` throws for a malformed key set, which must not replace the last good one.
  createLocalJWKSet(keySet as unknown as JSONWebKeySet);
  return keySet as unknown as JSONWebKeySet;
}

/** The discovery document must name the issuer it came from (OpenID Connect Discovery 1.0 §4). */
async function discoveredAddress(issuer: string, signal: AbortSignal): Promise<string> {
  const document = await fetchJson(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, signal);
  if (document.issuer !== issuer || typeof document.jwks_uri !== 'string')
    throw new Error('The discovery document is not this issuer’s, or names no key set.');
  return document.jwks_uri;
}

async function fetchJson(address: string, signal: AbortSignal): Promise<Record<string, unknown>> {
  requireSecure(new URL(address));
  const response = await fetch(address, { redirect: 'error', signal, headers: { accept: 'application/json' } });
  if (!response.ok) throw new Error(`The issuer answered ${response.status}.`);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > MAX_KEY_SET_BYTES) throw new Error(`The issuer answered more than ${MAX_KEY_SET_BYTES} bytes.`);
    chunks.push(chunk);
  }
  const value: unknown = JSON.parse(Buffer.concat(chunks).toString());
  if (typeof value !== 'object' || value === null) throw new Error('The issuer answered no JSON object.');
  return value as Record<string, unknown>;
}

/** Requires https; http is allowed from this machine (tests, a side-car). */
function requireSecure({ protocol, hostname }: URL): void {
  const isLoopback = hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d+){3}$/.test(hostname);
  if (protocol !== 'https:' && !(protocol === 'http:' && isLoopback))
    throw new Error('Keys are fetched over https only.');
}
