import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Request, RequestHandler, Response } from 'express';
import helmet from 'helmet';
import { toEssence } from '../../core/media-type.ts';
import { runWith } from '../context.ts';
import { toNetwork } from '../net/network.ts';
import { getBodyBytes } from './limits/caller-limits.ts';
import { artifactNamePatterns } from './operation/paths.ts';
import type { Noted } from './operation/operation.ts';
import { RequestRefusedError } from './operation/request-errors.ts';

/** The allowed browser origins, and the host names of the service. */
export interface OriginOptions {
  /**
   * True in mode local, which has no login, and with the development UI: `Host` must be a loopback name or one of
   * `allowedHosts`, and `Origin` the service's own.
   */
  ownNamesOnly: boolean;
  /** Additional `Host` values for `ownNamesOnly`: `name:port`, or `name` with any port. */
  allowedHosts?: string[];
  /** Additional origins (`https://host[:port]`) whose pages may read responses. */
  allowedOrigins?: string[];
}

export interface ProxyOptions {
  /** Addresses and networks (CIDR) of proxies whose `X-Forwarded-For` is trusted. */
  trusted: string[];
  /** True in mode local: requests through other proxies are refused, because mode local has no login. */
  refusesOthers: boolean;
}

/** `operation` is the operation's id, `unknown` if no route matched. */
export type ResponseListener = (operation: string, status: number, seconds: number) => void;

interface GuardOptions {
  origins: OriginOptions;
  proxies: ProxyOptions;
  paths: string[];
  /** Called for every response, with the operation that the router found. */
  listeners: ResponseListener[];
}

const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const FORWARDED = /^(?:forwarded|via|x-forwarded-.+)$/;
const PREFLIGHT_SECONDS = 600;
/** Status for a client that disconnected before the response, as in nginx's log. */
const CLIENT_CLOSED_REQUEST = 499;
/** Media types that a form, or a script without a preflight, can send (Fetch standard, CORS-safelisted). */
const SIMPLE_TYPES = new Set(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']);
/** The runtime's headers that a page of another origin can send only after a preflight. */
const NON_SIMPLE_HEADERS = [
  'authorization',
  'idempotency-key',
  'x-double-texting',
  'x-requested-with',
  'user_id',
  'session_id',
];

/**
 * Does all that precedes the router: request id, metrics, headers of every response, CORS preflights. Refuses a request
 * through an unknown proxy, from a foreign web page, or with a malformed path. Detects DNS rebinding by `Host`, and
 * foreign pages by `Origin` and `Sec-Fetch-Site` (MCP Inspector CVE-2025-49596, adk-js #744). It is one middleware,
 * because Express matches the path for each (1 µs).
 */
export function createGuards(options: GuardOptions): RequestHandler {
  const { origins, proxies, listeners } = options;
  const hosts = new Set(origins.allowedHosts?.map((host) => host.toLowerCase()));
  const allowedOrigins = new Set(origins.allowedOrigins);
  const headers = securityHeaders();
  const names = artifactNamePatterns(options.paths);
  return (request, response, next) => {
    const noted = response.locals as Noted;
    noted.requestId = setRequestId(request, response);
    if (listeners.length > 0) countAnswer(response, listeners);
    noted.network = toNetwork(request.ip);
    for (const [name, value] of headers) response.setHeader(name, value);
    if (proxies.refusesOthers) requireNoProxy(request);
    if (origins.ownNamesOnly) requireOwnHost(request, hosts);
    // Node uses the first of repeated headers, and a proxy may have checked another.
    if (countHeaders(request, 'authorization') > 1)
      throw new RequestRefusedError('malformed_headers', 'The request has more than one authorization header.');
    const { origin } = request.headers;
    if (origin !== undefined && allowedOrigins.has(origin)) {
      allowOrigin(request, response, origin);
      if (answerPreflight(request, response)) return;
    } else {
      if (origin !== undefined && origins.ownNamesOnly && !isSameOrigin(request, origin))
        throw new RequestRefusedError('forbidden_origin', 'Forbidden: origin not allowed');
      requireSameSite(request);
    }
    request.url = normalizeUrl(request.url, names);
    next();
  };
}

/** Sets the `x-request-id` of the response: the one of the caller or a proxy if it is a plain token, else a new one. */
function setRequestId(request: Request, response: Response): string {
  const sent = request.headers['x-request-id'];
  const id = typeof sent === 'string' && /^[\w.-]{1,128}$/.test(sent) ? sent : randomUUID();
  response.setHeader('x-request-id', id);
  return id;
}

function countAnswer(response: Response, listeners: ResponseListener[]): void {
  const startedAt = performance.now();
  response.once('close', () => {
    const { operationId = 'unknown', requestId } = response.locals as Noted;
    const status = response.headersSent ? response.statusCode : CLIENT_CLOSED_REQUEST;
    const seconds = (performance.now() - startedAt) / 1000;
    runWith({ requestId }, () => listeners.forEach((tell) => tell(operationId, status, seconds)));
  });
}

/**
 * The headers of every response, which is data: nothing in it may run, be framed or be cached. Pages replace the
 * content security policy. Computed once, because helmet's fourteen functions take 40 µs per request.
 */
function securityHeaders(): Map<string, string> {
  const setHeaders = helmet({
    contentSecurityPolicy: { useDefaults: false, directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] } },
    // Only the proxy knows whether clients reach this host over https.
    strictTransportSecurity: false,
  });
  const headers = new Map<string, string>([['cache-control', 'no-store']]);
  const recorder = {
    setHeader: (name: string, value: string) => headers.set(name.toLowerCase(), value),
    removeHeader: (name: string) => headers.delete(name.toLowerCase()),
  };
  setHeaders({} as IncomingMessage, recorder as unknown as ServerResponse, () => undefined);
  return headers;
}

/** Refuses requests through a proxy, so that no proxy can expose a service without a login by mistake. */
function requireNoProxy(request: Request): void {
  if (!Object.keys(request.headers).some((name) => FORWARDED.test(name)) || isFromTrusted(request)) return;
  throw new RequestRefusedError(
    'forbidden_origin',
    'Forbidden: the request came through a proxy, and AUTH_MODE local has no login. Set RUNTIME_API_KEYS or ' +
      'JWT_ISSUER behind a proxy, or name a proxy that may pass requests on without one in TRUSTED_PROXIES.',
  );
}

function isFromTrusted({ app, socket }: Request): boolean {
  const isTrusted = app.get('trust proxy fn') as (address: string, hop: number) => boolean;
  return isTrusted(socket.remoteAddress ?? '', 0);
}

function countHeaders({ rawHeaders }: Request, name: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === name) count += 1;
  return count;
}

/** Refuses a `Host` that is not the service's, and a repeated one. */
function requireOwnHost(request: Request, allowed: Set<string>): void {
  const isAllowed = (host: string) => {
    const name = host.toLowerCase();
    return LOOPBACK_HOST.test(name) || allowed.has(name) || allowed.has(name.replace(/:\d{1,5}$/, ''));
  };
  // If the request target is a whole URL, its host takes precedence over `Host` (RFC 9112 §3.2.2).
  const [, target] = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i.exec(request.url) ?? [];
  const hosts = [request.headers.host ?? '', ...(target === undefined ? [] : [target])];
  if (countHeaders(request, 'host') !== 1 || !hosts.every(isAllowed))
    throw new RequestRefusedError('forbidden_origin', 'Forbidden: host not allowed');
}

/** Refuses a browser's cross-site request (Fetch Metadata), unless it follows a link. */
function requireSameSite({ method, headers }: Request): void {
  // Node joins repeated headers with commas.
  if (headers['sec-fetch-site']?.toLowerCase().includes('cross-site') !== true) return;
  const isLink = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  if (isLink && method === 'GET') return;
  throw new RequestRefusedError('forbidden_origin', 'Forbidden: request of another site');
}

function isSameOrigin(request: Request, origin: string): boolean {
  const host = (request.headers.host ?? '').toLowerCase();
  return origin.toLowerCase() === `http://${host}` || origin.toLowerCase() === `https://${host}`;
}

function allowOrigin(request: Request, response: Response, origin: string): void {
  response.setHeader('access-control-allow-origin', origin);
  response.setHeader(
    'access-control-expose-headers',
    'etag, x-next-cursor, x-request-id, retry-after, x-limit, x-ignored-members, x-invocation-id',
  );
  response.vary('Origin');
}

/** Answers a CORS preflight. @returns false if the request is no preflight */
function answerPreflight({ method, headers }: Request, response: Response): boolean {
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
  response.setHeader('access-control-allow-methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
  response.setHeader('access-control-allow-headers', headers['access-control-request-headers'] ?? '');
  response.setHeader('access-control-max-age', String(PREFLIGHT_SECONDS));
  response.status(204).end();
  return true;
}

/**
 * Refuses malformed percent-escapes, to which Express would respond with an HTML page. Percent-encodes slashes in an
 * artifact name, so that the router sees the name as one segment.
 */
function normalizeUrl(url: string, artifactNames: RegExp[]): string {
  const [path = '', ...search] = url.split('?');
  try {
    if (path.includes('%')) decodeURIComponent(path);
  } catch {
    throw new RequestRefusedError('malformed_path', 'The path has a percent-escape that is not valid UTF-8.');
  }
  return [encodeArtifactName(path, artifactNames), ...search].join('?');
}

function encodeArtifactName(path: string, artifactNames: RegExp[]): string {
  for (const pattern of artifactNames) {
    const [, before, name, after] = pattern.exec(path) ?? [];
    if (name !== undefined) return `${before}${name.replaceAll('/', '%2F')}${after}`;
  }
  return path;
}

/**
 * Refuses a POST that any web page can send without a preflight, in every mode. PUT, PATCH, DELETE and a credential's
 * header always have a preflight. A POST with neither body nor media type is allowed, because command lines and the UI
 * send it, but not from another origin (browsers add `Origin` to every POST).
 * @throws {RequestRefusedError}
 */
export function requireDeliberate(request: Request, takesText: boolean): void {
  const { headers } = request;
  if (request.method !== 'POST' || NON_SIMPLE_HEADERS.some((name) => headers[name] !== undefined)) return;
  const sent = toEssence(headers['content-type'] ?? '');
  if (sent !== '' && !SIMPLE_TYPES.has(sent)) return;
  const isOwn = headers.origin === undefined || isSameOrigin(request, headers.origin);
  if (sent === '' && getBodyBytes(request) === 0 && isOwn) return;
  throw new RequestRefusedError(
    'not_deliberate',
    takesText
      ? 'The body must be application/json, or come with a header that no form can send, such as X-Requested-With.'
      : 'The body must be application/json.',
  );
}
