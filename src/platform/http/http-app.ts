import express, { type Express, type RequestHandler } from 'express';
import type { z } from 'zod';
import type { Metrics } from '../metrics.ts';
import { type AuthOptions, authentication } from './access/bearer.ts';
import type { Audit } from './audit/audit.ts';
import { docsPage } from './openapi/docs-page.ts';
import { checkOperations, openApiDocument } from './openapi/document.ts';
import { type EdgeLog, errorHandler } from './error-handler.ts';
import { createGuards, type OriginOptions, type ProxyOptions } from './guards.ts';
import type { LoginLimit } from './limits/login-limit.ts';
import type { RequestLimits } from './limits/request-limits.ts';
import type { Operation } from './operation/operation.ts';
import { listRoutes } from './operation/paths.ts';
import { RequestRefusedError } from './operation/request-errors.ts';
import type { FindPosition } from './read-position.ts';
import type { Pages } from './pages.ts';
import { auditErrors } from './request-audit.ts';
import { operationRouter } from './router.ts';
import { readJsonBody, readTextBody } from './validation/json-body.ts';
import { createValidation } from './validation/validate.ts';

/** The parts of the HTTP application. */
export interface HttpAppOptions<Context = unknown> {
  operations: Operation<Context>[];
  /** The first argument of all handlers. */
  context: Context;
  /** Further names of applications in requests and credentials → the names [none]. */
  appAliases?: ReadonlyMap<string, string>;
  /** The applications that are hosted: changes within others are refused [every one is]. */
  apps?: { has(appName: string): boolean };
  /** The named schemas of the document. */
  components: Record<string, z.ZodType>;
  auth: AuthOptions;
  /** Where clients reach the service, without a slash at its end [where a request says]. */
  publicUrl?: string | undefined;
  origins: OriginOptions;
  proxies: ProxyOptions;
  log: EdgeLog;
  /** Counts the answers [none are counted]. */
  metrics?: Metrics | undefined;
  /** Largest body after inflating, bytes. */
  maxBodyBytes: number;
  /** The limits of each caller [no limits]. */
  limits?: RequestLimits | undefined;
  /** How often a credential may be wrong [without a limit]. */
  logins?: LoginLimit | undefined;
  /** Where decisions are kept [nowhere]. */
  audit?: Audit | undefined;
  /** Where there is a replica for plain reads: how far the primary is. */
  findPosition?: FindPosition | undefined;
  /** Version of the runtime, for the page at `/` [none]. */
  version?: string;
  /** Pages beside the operations, such as the development UI; behind the origin guard, before our own pages. */
  pages?: Pages[];
}

/**
 * The Express application of a set of operations: the whole order of what a request passes, from its id to its error.
 * @throws Error when the operations contradict each other: the process must not start with them
 */
export function createHttpApp<Context>(options: HttpAppOptions<Context>): Express {
  const { operations, log, origins, proxies, maxBodyBytes, metrics, publicUrl, appAliases = new Map() } = options;
  checkOperations(operations);
  // Made when it is wanted, and not kept: it takes 40 ms of CPU and 9 MB.
  const document = () =>
    openApiDocument(operations, { authMode: options.auth.mode, components: options.components, publicUrl });
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.set('trust proxy', proxies.trusted.length > 0 ? proxies.trusted : false);
  const listeners = [metrics, logged(log)].filter((each) => each !== undefined);
  app.use(createGuards({ origins, proxies, paths: listRoutes(operations).map(({ path }) => path), listeners }));
  app.use(inWordsOf(operations));
  app.use(
    operationRouter(operations, {
      ...options,
      context: options.context as never,
      authenticate: authentication(options.auth, appAliases, options.logins),
      appAliases,
      readJsonBody: readJsonBody(maxBodyBytes),
      readTextBody: readTextBody(maxBodyBytes),
      createValidate: createValidation(document, appAliases, log),
    }),
  );
  const { pages = [], version = '', auth } = options;
  for (const { handler } of pages) app.use(handler);
  app.use(docsPage(document, { version, mode: auth.mode, pages }));
  app.use(() => {
    throw new RequestRefusedError('unknown_path', 'Not Found');
  });
  app.use(auditErrors(options.audit, log));
  app.use(errorHandler({ log, maxBodyBytes, hasIssuer: auth.mode === 'jwt' }));
  return app;
}

/** What no operation takes is refused in the words of the protocol whose door it is below, by its first segment. */
function inWordsOf(operations: readonly Pick<Operation, 'path' | 'toRefusal'>[]): RequestHandler {
  const first = (path: string) => path.split('/', 2)[1] ?? '';
  // What is well known belongs to no door.
  const below = operations.filter(({ path }) => !path.startsWith('/.'));
  const refusals = new Map(below.map(({ path, toRefusal }) => [first(path), toRefusal]));
  return (request, response, next) => {
    response.locals.toRefusal = refusals.get(first(request.path));
    next();
  };
}

/** Says at level `info` what was answered; nothing of a path but its operation, and nothing of a body. */
function logged(log: EdgeLog): Pick<Metrics, 'request'> | undefined {
  if (!log.isLevelEnabled?.('info')) return undefined;
  return {
    request: (operation, status, seconds) =>
      log.info?.({ operation, status, ms: Math.round(seconds * 1000) }, 'request answered'),
  };
}
