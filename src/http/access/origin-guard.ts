import type { Request, RequestHandler, Response } from 'express';
import { RequestRefusedError } from '../operation/request-errors.ts';

/** Who may talk to the service from a browser, and under which names. */
export interface OriginOptions {
  /**
   * True where only this machine may ask (local mode, development UI): Host must be a loopback name, Origin our own.
   */
  loopbackOnly: boolean;
  /** Further values of Host (`name` or `name:port`) for `loopbackOnly`, for instance behind a proxy of one's own. */
  allowedHosts?: string[];
  /** Further origins (`https://host[:port]`) that may read answers in a browser. */
  allowedOrigins?: string[];
}

const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;
const PREFLIGHT_SECONDS = 600;

/**
 * Middleware against web pages that reach for a service on the reader's own machine: DNS rebinding shows in Host, other
 * pages in Origin (MCP Inspector CVE-2025-49596, adk-js #744). Answers CORS preflights of allowed origins.
 */
export function originGuard(options: OriginOptions): RequestHandler {
  const hosts = new Set(options.allowedHosts?.map((host) => host.toLowerCase()));
  const origins = new Set(options.allowedOrigins);
  return (request, response, next) => {
    if (options.loopbackOnly) requireOwnHost(request, hosts);
    const { origin } = request.headers;
    if (origin === undefined) return next();
    if (origins.has(origin)) return allowOrigin(request, response, origin, next);
    if (options.loopbackOnly && !isSameOrigin(request, origin)) {
      throw new RequestRefusedError('forbidden_origin', 'Forbidden: origin not allowed');
    }
    next();
  };
}

/** Node keeps the first of several Host headers and a proxy may have judged another one: two are refused. */
function requireOwnHost(request: Request, allowed: Set<string>): void {
  const host = request.headers.host ?? '';
  const sent = request.rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === 'host');
  if (sent.length !== 1 || !(LOOPBACK_HOST.test(host) || allowed.has(host.toLowerCase()))) {
    throw new RequestRefusedError('forbidden_origin', 'Forbidden: host not allowed');
  }
}

function isSameOrigin(request: Request, origin: string): boolean {
  const host = (request.headers.host ?? '').toLowerCase();
  return origin.toLowerCase() === `http://${host}` || origin.toLowerCase() === `https://${host}`;
}

function allowOrigin(request: Request, response: Response, origin: string, next: () => void): void {
  response.setHeader('access-control-allow-origin', origin);
  response.setHeader('access-control-expose-headers', 'x-next-cursor, x-request-id, retry-after');
  response.vary('Origin');
  const wanted = request.headers['access-control-request-method'];
  if (request.method !== 'OPTIONS' || wanted === undefined) return next();
  response.setHeader('access-control-allow-methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
  response.setHeader('access-control-allow-headers', request.headers['access-control-request-headers'] ?? '');
  response.setHeader('access-control-max-age', String(PREFLIGHT_SECONDS));
  response.status(204).end();
}
