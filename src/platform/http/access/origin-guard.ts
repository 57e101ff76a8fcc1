import type { Request, RequestHandler, Response } from 'express';
import { RequestRefusedError } from '../operation/request-errors.ts';

/** Who may talk to the service from a browser, and under which names. */
export interface OriginOptions {
  /**
   * True where no credential is required (mode local) or pages are served (development UI): Host must be a loopback
   * name or one of `allowedHosts`, Origin our own.
   */
  ownNamesOnly: boolean;
  /** Further values of Host for `ownNamesOnly`: `name:port`, or `name` with any port. */
  allowedHosts?: string[];
  /** Further origins (`https://host[:port]`) that may read answers in a browser. */
  allowedOrigins?: string[];
}

const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const PREFLIGHT_SECONDS = 600;
/** The media types that a form, or a script without a preflight, can send (Fetch standard, CORS-safelisted). */
const SIMPLE_TYPES = new Set(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']);
/** Headers of ours that a page of another origin can set after a preflight only. */
const NON_SIMPLE_HEADERS = [
  'authorization',
  'idempotency-key',
  'x-double-texting',
  'x-requested-with',
  'user_id',
  'session_id',
];

/**
 * Middleware against web pages that reach for a service which their reader can reach: DNS rebinding shows in Host,
 * other pages in Origin and Sec-Fetch-Site (MCP Inspector CVE-2025-49596, adk-js #744). Answers CORS
 * preflights of allowed origins.
 */
export function originGuard(options: OriginOptions): RequestHandler {
  const hosts = new Set(options.allowedHosts?.map((host) => host.toLowerCase()));
  const origins = new Set(options.allowedOrigins);
  return (request, response, next) => {
    if (options.ownNamesOnly) requireOwnHost(request, hosts);
    requireOne(request, 'authorization');
    const { origin } = request.headers;
    if (origin !== undefined && origins.has(origin)) return allowOrigin(request, response, origin, next);
    if (origin !== undefined && options.ownNamesOnly && !isSameOrigin(request, origin)) {
      throw new RequestRefusedError('forbidden_origin', 'Forbidden: origin not allowed');
    }
    requireSameSite(request);
    next();
  };
}

function countOf({ rawHeaders }: Request, name: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === name) count += 1;
  return count;
}

/** Node keeps the first of several and a proxy may have judged another one. */
function requireOne(request: Request, name: string): void {
  if (countOf(request, name) <= 1) return;
  throw new RequestRefusedError('malformed_headers', `The request has more than one ${name} header.`);
}

/** Node keeps the first of several Host headers and a proxy may have judged another one: two are refused. */
function requireOwnHost(request: Request, allowed: Set<string>): void {
  const isAllowed = (host: string) => {
    const name = host.toLowerCase();
    return LOOPBACK_HOST.test(name) || allowed.has(name) || allowed.has(name.replace(/:\d{1,5}$/, ''));
  };
  // A target may be a whole URL, and its host counts then (RFC 9112 §3.2.2).
  const [, target] = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i.exec(request.url) ?? [];
  const hosts = [request.headers.host ?? '', ...(target === undefined ? [] : [target])];
  if (countOf(request, 'host') !== 1 || !hosts.every(isAllowed)) {
    throw new RequestRefusedError('forbidden_origin', 'Forbidden: host not allowed');
  }
}

/**
 * Fetch Metadata: what another site makes a browser send is refused, except that its reader follows a link, which
 * changes nothing and lets that site read nothing.
 */
function requireSameSite({ method, headers }: Request): void {
  // Node joins several with commas.
  if (headers['sec-fetch-site']?.toLowerCase().includes('cross-site') !== true) return;
  const isLink = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  if (isLink && method === 'GET') return;
  throw new RequestRefusedError('forbidden_origin', 'Forbidden: request of another site');
}

/**
 * A POST that any page can send without a preflight is refused, whatever the mode; PUT, PATCH and DELETE always have
 * one. It is looked at after the credential, which is such a header and must be looked at first. A POST without a body
 * and a media type passes unless a browser sent it (browsers add Origin to every POST): so command lines do, and the
 * UI, from our own origin, has passed as such. @throws {RequestRefusedError}
 */
export function requireDeliberate(request: Request, takesText: boolean): void {
  const { headers } = request;
  if (request.method !== 'POST' || NON_SIMPLE_HEADERS.some((name) => headers[name] !== undefined)) return;
  const [mediaType = ''] = (headers['content-type'] ?? '').split(';');
  const sent = mediaType.trim().toLowerCase();
  if (sent !== '' && !SIMPLE_TYPES.has(sent)) return;
  const isEmpty = headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0;
  const isOwn = headers.origin === undefined || isSameOrigin(request, headers.origin);
  if (sent === '' && isEmpty && isOwn) return;
  throw new RequestRefusedError(
    'not_deliberate',
    takesText
      ? 'The body must be application/json, or come with a header that no form can send, such as X-Requested-With.'
      : 'The body must be application/json.',
  );
}

function isSameOrigin(request: Request, origin: string): boolean {
  const host = (request.headers.host ?? '').toLowerCase();
  return origin.toLowerCase() === `http://${host}` || origin.toLowerCase() === `https://${host}`;
}

function allowOrigin(request: Request, response: Response, origin: string, next: () => void): void {
  response.setHeader('access-control-allow-origin', origin);
  response.setHeader('access-control-expose-headers', 'etag, x-next-cursor, x-request-id, retry-after, x-limit');
  response.vary('Origin');
  const wanted = request.headers['access-control-request-method'];
  if (request.method !== 'OPTIONS' || wanted === undefined) return next();
  response.setHeader('access-control-allow-methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
  response.setHeader('access-control-allow-headers', request.headers['access-control-request-headers'] ?? '');
  response.setHeader('access-control-max-age', String(PREFLIGHT_SECONDS));
  response.status(204).end();
}
