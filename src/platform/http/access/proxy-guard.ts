import type { Express, Request, RequestHandler } from 'express';
import { RequestRefusedError } from '../operation/request-errors.ts';

/** Which proxies stand before the service. */
export interface ProxyOptions {
  /** Addresses and networks (CIDR) of proxies whose `X-Forwarded-For` says where a request comes from. */
  trusted: string[];
  /** True in mode local: what a proxy hands on from elsewhere has no credential and is refused. */
  refusesOthers: boolean;
}

const FORWARDED = /^(?:forwarded|via|x-forwarded-.+)$/;

/** Sets `request.ip` by the headers of trusted proxies, and of nobody else. */
export function trustProxies(app: Express, { trusted }: ProxyOptions): void {
  app.set('trust proxy', trusted.length > 0 ? trusted : false);
}

/** Middleware that keeps a service without a login from being published by a proxy that nobody thought of. */
export function proxyGuard({ refusesOthers }: ProxyOptions): RequestHandler {
  return (request, _response, next) => {
    if (refusesOthers && Object.keys(request.headers).some((name) => FORWARDED.test(name)) && !isFromTrusted(request)) {
      throw new RequestRefusedError(
        'forbidden_origin',
        'Forbidden: the request came through a proxy, and AUTH_MODE local has no login. Use AUTH_MODE key or jwt ' +
          'behind a proxy, or name a proxy that may pass requests on without one in TRUSTED_PROXIES.',
      );
    }
    next();
  };
}

function isFromTrusted({ app, socket }: Request): boolean {
  const isTrusted = app.get('trust proxy fn') as (address: string, hop: number) => boolean;
  return isTrusted(socket.remoteAddress ?? '', 0);
}
