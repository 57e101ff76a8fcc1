import {
  type CryptoKey,
  type FlattenedJWSInput,
  type JSONWebKeySet,
  type JWSHeaderParameters,
  createLocalJWKSet,
  errors,
} from 'jose';
import { UnavailableError } from '../../core/errors.ts';

/** Where the verification keys of an issuer are. */
export interface JwksOptions {
  issuer: string;
  /** Address of the key set (RFC 7517); without one it is taken from the issuer's discovery document. */
  jwksUrl?: string | undefined;
  /** Milliseconds since 1970, for tests; `Date.now` otherwise. */
  now?: (() => number) | undefined;
  /** Longest wait for the issuer, milliseconds [3000]. */
  timeoutMs?: number | undefined;
}

/** The keys of an issuer, kept between requests. */
export interface KeySource {
  /** @throws UnavailableError when no keys are known and none can be fetched; JWKSNoMatchingKey and the like of jose */
  find(header: JWSHeaderParameters, jws: FlattenedJWSInput): Promise<CryptoKey>;
}

type Resolve = ReturnType<typeof createLocalJWKSet>;

/** After this long a removed key is refused. */
const FRESH_MS = 10 * 60_000;
/** A key that is not in the set makes it be fetched again, at most this often: forged key ids must not cost fetches. */
const UNKNOWN_KEY_COOLDOWN_MS = 30_000;
/** After a failure the issuer is left alone for this long. */
const BACK_OFF_MS = 5_000;
/** An issuer that is away does not lock its users out for this long after the last good answer. */
const STALE_MS = 60 * 60_000;
const DEFAULT_TIMEOUT_MS = 3_000;
const MAX_KEY_SET_BYTES = 256 * 1024;

/**
 * Keeps an issuer's key set. jose's own remote set asks again for every token while the issuer is down (59 fetches for 100
 * tokens) and refuses known keys as soon as its cache is stale; this one fetches once for all who wait, backs off after a
 * failure, and goes on with the keys it has for up to an hour.
 */
export function createKeySource(options: JwksOptions): KeySource {
  const now = options.now ?? Date.now;
  const fetchKeys = keyFetcher(options);
  let keys: { resolve: Resolve; fetchedAt: number } | undefined;
  let failedAt = Number.NEGATIVE_INFINITY;
  let fetching: Promise<void> | undefined;

  const fetchOnce = async () => {
    try {
      keys = { resolve: createLocalJWKSet(await fetchKeys()), fetchedAt: now() };
      failedAt = Number.NEGATIVE_INFINITY;
    } catch {
      failedAt = now();
    }
  };
  const refresh = async () => {
    if (!fetching && now() - failedAt < BACK_OFF_MS) return;
    fetching ??= fetchOnce().finally(() => {
      fetching = undefined;
    });
    await fetching;
  };
  const current = async (maxAgeMs: number) => {
    if (!keys || now() - keys.fetchedAt >= maxAgeMs) await refresh();
    if (!keys || now() - keys.fetchedAt >= STALE_MS) {
      throw new UnavailableError('The keys to verify tokens with cannot be fetched for now.');
    }
    return keys.resolve;
  };

  // Warm from the start; a failure is met again, and reported, by the first request.
  void refresh();

  return {
    async find(header, jws) {
      const resolve = await current(FRESH_MS);
      try {
        return await resolve(header, jws);
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
        const newer = await current(UNKNOWN_KEY_COOLDOWN_MS);
        if (newer === resolve) throw error;
        return newer(header, jws);
      }
    },
  };
}

/** Fetches the key set; the discovery document is asked for its address until it answered once. */
function keyFetcher({ issuer, jwksUrl, timeoutMs }: JwksOptions): () => Promise<JSONWebKeySet> {
  let address = jwksUrl;
  return async () => {
    const signal = AbortSignal.timeout(timeoutMs ?? DEFAULT_TIMEOUT_MS);
    address ??= await discoveredAddress(issuer, signal);
    return (await fetchJson(address, signal)) as unknown as JSONWebKeySet;
  };
}

/** OpenID Connect Discovery 1.0 §4: the document must name the issuer that it was asked of. */
async function discoveredAddress(issuer: string, signal: AbortSignal): Promise<string> {
  const document = await fetchJson(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, signal);
  if (document.issuer !== issuer || typeof document.jwks_uri !== 'string') {
    throw new Error('The discovery document is not this issuer’s, or names no key set.');
  }
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

/** Keys come over https, or over http from this machine (tests, a side-car). */
function requireSecure({ protocol, hostname }: URL): void {
  const isLoopback = hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d+){3}$/.test(hostname);
  if (protocol !== 'https:' && !(protocol === 'http:' && isLoopback))
    throw new Error('Keys are fetched over https only.');
}
