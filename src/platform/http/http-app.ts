import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import express, { type Express, type RequestHandler } from 'express';
import helmet from 'helmet';
import type { z } from 'zod';
import { runWith } from '../context.ts';
import { LoopTurns } from '../work/loop-turns.ts';
import type { Metrics } from '../metrics.ts';
import { networkOf } from '../net/network.ts';
import { type AuthOptions, authentication } from './access/bearer.ts';
import { docsPage } from './openapi/docs-page.ts';
import { checkOperations } from './openapi/check-operations.ts';
import { openApiDocument } from './openapi/document.ts';
import { keepRefusals } from './audited.ts';
import { type EdgeLog, errorHandler } from './error-handler.ts';
import { readJsonBody, readTextBody } from './validation/json-body.ts';
import type { Audit } from './operation/audit.ts';
import type { Operation } from './operation/operation.ts';
import type { LoginLimit, RequestLimits } from './operation/request-limits.ts';
import { type OriginOptions, originGuard } from './access/origin-guard.ts';
import { type ProxyOptions, proxyGuard, trustProxies } from './access/proxy-guard.ts';
import { artifactNameEncoder, routesOf } from './operation/paths.ts';
import { RequestRefusedError } from './operation/request-errors.ts';
import type { FindPosition } from './read-position.ts';
import { operationRouter } from './router.ts';
import { createValidation } from './validation/validate.ts';

/** What the HTTP application is made of. */
export interface HttpAppOptions {
  operations: Operation<unknown>[];
  /** The application that a name of a request or of a credential means [itself]. */
  appNameOf?: (name: string) => string;
  /** The named schemas of the document. */
  components: Record<string, z.ZodType>;
  auth: AuthOptions;
  origins: OriginOptions;
  proxies: ProxyOptions;
  log: EdgeLog;
  /** Counts the answers; without it nobody does. */
  metrics?: Metrics | undefined;
  /** Largest body after inflating, bytes. */
  maxBodyBytes: number;
  /** Maximum number of values in a JSON body. */
  maxBodyValues: number;
  /** What one caller may take of what all share; without it as much as there is. */
  limits?: RequestLimits | undefined;
  /** How often a credential may be wrong; without it as often as one likes. */
  logins?: LoginLimit | undefined;
  /** Where decisions are kept; without it nowhere. */
  audit?: Audit | undefined;
  /** Where there is a replica for plain reads: how far the primary is. */
  findPosition?: FindPosition | undefined;
  /**
   * Pages beside the operations, for instance the development UI; they come before "Not Found" and pass the origin
   * guard.
   */
  pages?: RequestHandler[];
}

/**
 * The Express application of a set of operations: the whole order of what a request passes, from its id to its error.
 * @throws Error when the operations contradict each other: the process must not start with them
 */
export function createHttpApp(options: HttpAppOptions): Express {
  const { operations, log, maxBodyBytes, maxBodyValues, appNameOf = (name) => name } = options;
  checkOperations(operations);
  // Made when it is wanted, and kept by nobody: it takes 40 ms of CPU and 9 MB.
  const document = () => openApiDocument(operations, { authMode: options.auth.mode, components: options.components });
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  trustProxies(app, options.proxies);
  const seen = [options.metrics, logged(log)].filter((each) => each !== undefined);
  const turns = new LoopTurns();
  app.use(
    inOrder([
      requestId,
      ...(seen.length > 0 ? [countRequests(seen)] : []),
      byTurns(turns),
      securityHeaders(),
      proxyGuard(options.proxies),
      originGuard(options.origins),
      normalizePath(routesOf(operations).map(({ path }) => path)),
    ]),
  );
  app.use(
    operationRouter(operations, {
      authenticate: authentication(options.auth, appNameOf, options.logins),
      appNameOf,
      readJsonBody: readJsonBody({ maxBytes: maxBodyBytes, maxValues: maxBodyValues, turns }),
      readTextBody: readTextBody({ maxBytes: maxBodyBytes, turns }),
      validationOf: createValidation(document),
      limits: options.limits,
      metrics: options.metrics,
      audit: options.audit,
      findPosition: options.findPosition,
    }),
  );
  app.use(docsPage(document));
  for (const page of options.pages ?? []) app.use(page);
  app.use(() => {
    throw new RequestRefusedError('unknown_path', 'Not Found');
  });
  app.use(keepRefusals(options.audit, log));
  app.use(errorHandler({ log, maxBodyBytes }));
  return app;
}

/** Handlers as Express runs them one after the other, without its look at the path for each of them (1 µs). */
const inOrder =
  (handlers: RequestHandler[]): RequestHandler =>
  (request, response, done) => {
    let at = 0;
    const next = (error?: unknown): void => {
      const handler = handlers[at++];
      if (error !== undefined || !handler) return done(error);
      try {
        void handler(request, response, next);
      } catch (thrown) {
        done(thrown);
      }
    };
    next();
  };

/** Every response says which request it answers; a caller's or proxy's own id is kept when it is a plain token. */
const requestId: RequestHandler = (request, response, next) => {
  const sent = request.headers['x-request-id'];
  const id = typeof sent === 'string' && /^[\w.-]{1,128}$/.test(sent) ? sent : randomUUID();
  response.locals.requestId = id;
  response.setHeader('x-request-id', id);
  next();
};

/** Nobody is known yet: requests with the same credential are taken for those of one caller. */
const byTurns =
  (turns: LoopTurns): RequestHandler =>
  (request, response, next) => {
    // To find it takes 5 µs: it is found once.
    const network = networkOf(request.ip);
    response.locals.network = network;
    turns.run(network, request.headers.authorization ?? '', next);
  };

/** The status of an answer that nobody waited for, as nginx logs it. */
const CLIENT_CLOSED_REQUEST = 499;

/** Says at level `info` what was answered; nothing of a path but its operation, and nothing of a body. */
function logged(log: EdgeLog): Pick<Metrics, 'request'> | undefined {
  if (!log.isLevelEnabled?.('info')) return undefined;
  return {
    request: (operation, status, seconds) =>
      log.info?.({ operation, status, ms: Math.round(seconds * 1000) }, 'request answered'),
  };
}

/** Counts every answer under the operation that the router names. */
const countRequests =
  (seen: Pick<Metrics, 'request'>[]): RequestHandler =>
  (_request, response, next) => {
    const startedAt = performance.now();
    response.once('close', () => {
      const operationId = (response.locals.operationId as string | undefined) ?? 'unknown';
      const status = response.headersSent ? response.statusCode : CLIENT_CLOSED_REQUEST;
      const seconds = (performance.now() - startedAt) / 1000;
      const work = { requestId: response.locals.requestId as string };
      runWith(work, () => seen.forEach((each) => each.request(operationId, status, seconds)));
    });
    next();
  };

/** Answers are data: nothing in them may run, be framed or be kept by a cache. Pages set a policy of their own. */
function securityHeaders(): RequestHandler {
  const headers = helmet({
    contentSecurityPolicy: { useDefaults: false, directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] } },
    // Whether the name is served over https is the proxy's knowledge, not ours.
    strictTransportSecurity: false,
  });
  // They are the same for every request; helmet's fourteen functions cost 40 µs each time.
  const constant = new Map<string, string>([['cache-control', 'no-store']]);
  const recorder = {
    setHeader: (name: string, value: string) => constant.set(name.toLowerCase(), value),
    removeHeader: (name: string) => constant.delete(name.toLowerCase()),
  };
  headers({} as IncomingMessage, recorder as unknown as ServerResponse, () => undefined);
  return (_request, response, next) => {
    for (const [name, value] of constant) response.setHeader(name, value);
    next();
  };
}

/**
 * Refuses broken percent-escapes, where Express would answer with a page of HTML, and encodes slashes in artifact
 * names.
 */
function normalizePath(paths: string[]): RequestHandler {
  const encode = artifactNameEncoder(paths);
  return (request, _response, next) => {
    const [path = '', ...search] = request.url.split('?');
    try {
      if (path.includes('%')) decodeURIComponent(path);
    } catch {
      throw new RequestRefusedError('malformed_path', 'The path has a percent-escape that is not valid UTF-8.');
    }
    request.url = [encode(path), ...search].join('?');
    next();
  };
}
