import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Request, RequestHandler, Response } from 'express';
import helmet from 'helmet';
import { runWith } from '../context.ts';
import type { Metrics } from '../metrics.ts';
import { toNetwork } from '../net/network.ts';
import { artifactNamePatterns } from './operation/paths.ts';
import { RequestRefusedError } from './operation/request-errors.ts';

/** Allowed origins of browsers and allowed names of the service. */
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

/** Proxies before the service. */
export interface ProxyOptions {
  /** Addresses and networks (CIDR) of proxies whose `X-Forwarded-For` says where a request comes from. */
  trusted: string[];
  /** True in mode local: a request that another proxy hands on has no credential and is refused. */
  refusesOthers: boolean;
}

interface GuardOptions {
  origins: OriginOptions;
  proxies: ProxyOptions;
  /** The templates of all routes. */
  paths: string[];
  /** Listeners for every answer, with the operation that the router has named. */
  listeners: Pick<Metrics, 'request'>[];
}

const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const FORWARDED = /^(?:forwarded|via|x-forwarded-.+)$/;
const PREFLIGHT_SECONDS = 600;
/** The status of an answer whose client had gone, as nginx logs it. */
const CLIENT_CLOSED_REQUEST = 499;
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
 * The step before the router: names and counts the request, sets the headers of every answer, and refuses requests
 * that come through an unknown proxy, that a web page has sent (DNS rebinding shows in Host, other pages in Origin and
 * Sec-Fetch-Site: MCP Inspector CVE-2025-49596, adk-js #744), or whose path is broken. Answers CORS preflights of
 * allowed origins. One handler, because Express compares the path for each (1 µs).
 */
export function createGuards(options: GuardOptions): RequestHandler {
  const { origins, proxies, listeners } = options;
  const hosts = new Set(origins.allowedHosts?.map((host) => host.toLowerCase()));
  const allowedOrigins = new Set(origins.allowedOrigins);
  const headers = securityHeaders();
  const names = artifactNamePatterns(options.paths);
  return (request, response, next) => {
    response.locals.requestId = setRequestId(request, response);
    if (listeners.length > 0) countAnswer(response, listeners);
    response.locals.network = toNetwork(request.ip);
    for (const [name, value] of headers) response.setHeader(name, value);
    if (proxies.refusesOthers) requireNoProxy(request);
    if (origins.ownNamesOnly) requireOwnHost(request, hosts);
    requireOne(request, 'authorization');
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

/** Every response says which request it answers; an id of the caller or a proxy is kept when it is a plain token. */
function setRequestId(request: Request, response: Response): string {
  const sent = request.headers['x-request-id'];
  const id = typeof sent === 'string' && /^[\w.-]{1,128}$/.test(sent) ? sent : randomUUID();
  response.setHeader('x-request-id', id);
  return id;
}

function countAnswer(response: Response, listeners: Pick<Metrics, 'request'>[]): void {
  const startedAt = performance.now();
  response.once('close', () => {
    const { operationId = 'unknown', requestId } = response.locals as { operationId?: string; requestId: string };
    const status = response.headersSent ? response.statusCode : CLIENT_CLOSED_REQUEST;
    const seconds = (performance.now() - startedAt) / 1000;
    runWith({ requestId }, () => listeners.forEach((each) => each.request(operationId, status, seconds)));
  });
}

/**
 * The headers of every answer, which is data: nothing in it may run, be framed or be kept by a cache. Pages set a
 * policy of their own. They are constant: to run helmet's fourteen functions for each request costs 40 µs.
 */
function securityHeaders(): Map<string, string> {
  const setHeaders = helmet({
    contentSecurityPolicy: { useDefaults: false, directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] } },
    // Only the proxy knows whether the name is served over https.
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

/** Keeps a service without a login from being published by a proxy by mistake. */
function requireNoProxy(request: Request): void {
  if (!Object.keys(request.headers).some((name) => FORWARDED.test(name)) || isFromTrusted(request)) return;
  throw new RequestRefusedError(
    'forbidden_origin',
    'Forbidden: the request came through a proxy, and AUTH_MODE local has no login. Use AUTH_MODE key or jwt ' +
      'behind a proxy, or name a proxy that may pass requests on without one in TRUSTED_PROXIES.',
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

/** Node keeps the first of several headers, and a proxy may have judged another one: two are refused. */
function requireOne(request: Request, name: string): void {
  if (countHeaders(request, name) <= 1) return;
  throw new RequestRefusedError('malformed_headers', `The request has more than one ${name} header.`);
}

/** Two Host headers are refused as two of `authorization` are. */
function requireOwnHost(request: Request, allowed: Set<string>): void {
  const isAllowed = (host: string) => {
    const name = host.toLowerCase();
    return LOOPBACK_HOST.test(name) || allowed.has(name) || allowed.has(name.replace(/:\d{1,5}$/, ''));
  };
  // A target may be a whole URL, and its host counts then (RFC 9112 §3.2.2).
  const [, target] = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i.exec(request.url) ?? [];
  const hosts = [request.headers.host ?? '', ...(target === undefined ? [] : [target])];
  if (countHeaders(request, 'host') !== 1 || !hosts.every(isAllowed))
    throw new RequestRefusedError('forbidden_origin', 'Forbidden: host not allowed');
}

/** Refuses a browser's request that another site caused (Fetch Metadata), except for following a link. */
function requireSameSite({ method, headers }: Request): void {
  // Node joins several with commas.
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

/** Answers a CORS preflight. @returns false for every other request */
function answerPreflight({ method, headers }: Request, response: Response): boolean {
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
  response.setHeader('access-control-allow-methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
  response.setHeader('access-control-allow-headers', headers['access-control-request-headers'] ?? '');
  response.setHeader('access-control-max-age', String(PREFLIGHT_SECONDS));
  response.status(204).end();
  return true;
}

/**
 * Refuses broken percent-escapes, where Express would answer with a page of HTML, and percent-encodes the raw slashes
 * of an artifact name, so that the name is one segment for the router.
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
 * Refuses a POST that any page can send without a preflight, whatever the mode; PUT, PATCH and DELETE always have one.
 * It comes after the credential, which is such a header and must be checked first. A POST without a body and a media
 * type passes unless a browser sent it (browsers add Origin to every POST): command lines send such, and the UI, from
 * our own origin, has passed as such. @throws {RequestRefusedError}
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
