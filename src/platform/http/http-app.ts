import express, { type ErrorRequestHandler, type Express } from 'express';
import type { Metrics } from '../metrics.ts';
import { type AuthOptions, authentication } from './access/bearer.ts';
import { docsPage } from './openapi/docs-page.ts';
import { checkOperations, type Components, openApiDocument } from './openapi/document.ts';
import { type EdgeLog, errorHandler } from './error-handler.ts';
import { createGuards, type OriginOptions, type ProxyOptions, type ResponseListener } from './guards.ts';
import type { LoginLimit } from './limits/login-limit.ts';
import type { Noted, Operation } from './operation/operation.ts';
import { listRoutes } from './operation/paths.ts';
import { RequestRefusedError } from './operation/request-errors.ts';
import type { Pages } from './operation/pages.ts';
import { auditErrors } from './request-audit.ts';
import { operationRouter, type RouterOptions } from './router.ts';
import { readJsonBody, readTextBody } from './validation/json-body.ts';
import { createValidation } from './validation/validate.ts';

export interface HttpAppOptions<Context = unknown> extends RouterOptions<Context> {
  operations: Operation<Context>[];
  /** Alias of an application in requests and credentials → the application's name. Default: no aliases. */
  appAliases?: ReadonlyMap<string, string>;
  components: Components;
  auth: AuthOptions;
  origins: OriginOptions;
  proxies: ProxyOptions;
  log: EdgeLog;
  /** Maximum size of a body after decompression, in bytes. */
  maxBodyBytes: number;
  /** Limits wrong credentials. Default: no limit. */
  logins?: LoginLimit | undefined;
  /** Version of the runtime, shown on the page at `/`. Default: none is shown. */
  version?: string;
  /** What the settings leave out. Default: nothing. */
  unserved?: Unserved[];
  /** Static pages such as the development UI. They are served after the guards and before `/` and `/docs`. */
  pages?: Pages[];
}

/** Operations or pages that the settings leave out; a request for them is told in `how` which setting serves them. */
export interface Unserved {
  method: string;
  pattern: RegExp;
  how: string;
}

/** @throws Error if the operations contradict each other, so that the process does not start with them */
export function createHttpApp<Context>(options: HttpAppOptions<Context>): Express {
  const { operations, log, origins, proxies, maxBodyBytes, metrics, publicUrl, appAliases = new Map() } = options;
  checkOperations(operations);
  // The OpenAPI document takes 40 ms of CPU and 9 MB, so it is built for each request and not kept.
  const document = (hasCopies: boolean) => () =>
    openApiDocument(operations, { authMode: options.auth.mode, components: options.components, publicUrl, hasCopies });
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.set('trust proxy', proxies.trusted.length > 0 ? proxies.trusted : false);
  const listeners = [measured(metrics), logged(log)].filter((each) => each !== undefined);
  app.use(createGuards({ origins, proxies, paths: listRoutes(operations).map(({ path }) => path), listeners }));
  app.use(
    operationRouter(operations, {
      ...options,
      context: options.context as never,
      authenticate: authentication(options.auth, appAliases, options.logins),
      appAliases,
      readJsonBody: readJsonBody(maxBodyBytes),
      readTextBody: readTextBody(maxBodyBytes),
      createValidate: createValidation(document(true), appAliases, log),
    }),
  );
  const { pages = [], unserved = [], version = '', auth } = options;
  for (const { handler } of pages) app.use(handler);
  app.use(docsPage(document(false), { version, mode: auth.mode, pages }));
  app.use(({ method, path }) => {
    const asked = method === 'HEAD' ? 'get' : method.toLowerCase();
    const known = unserved.find((each) => each.method === asked && each.pattern.test(path));
    throw new RequestRefusedError('unknown_path', known ? `Not Found. ${known.how}` : 'Not Found');
  });
  app.use(inWordsOf(operations));
  app.use(auditErrors(options.audit, log));
  app.use(errorHandler({ log, maxBodyBytes, hasIssuer: auth.issuers !== undefined }));
  return app;
}

/** A request that matches no operation is refused in the protocol of the operations with its first path segment. */
function inWordsOf(operations: readonly Pick<Operation, 'path' | 'toRefusal'>[]): ErrorRequestHandler {
  const first = (path: string) => path.split('/', 2)[1] ?? '';
  // `/.well-known/…` paths belong to no single protocol.
  const below = operations.filter(({ path }) => !path.startsWith('/.'));
  const refusals = new Map(below.map(({ path, toRefusal }) => [first(path), toRefusal]));
  return (error, request, response, next) => {
    if (error instanceof RequestRefusedError && error.isUnmatched)
      (response.locals as Noted).toRefusal = refusals.get(first(request.path));
    next(error);
  };
}

/** Logs each response at level `info`: the operation instead of the path, and nothing of a body. */
function logged(log: EdgeLog): ResponseListener | undefined {
  if (!log.isLevelEnabled?.('info')) return undefined;
  return (operation, status, seconds) =>
    log.info?.({ operation, status, ms: Math.round(seconds * 1000) }, 'request answered');
}

const measured = (metrics: Metrics | undefined): ResponseListener | undefined =>
  metrics &&
  ((operation, status, seconds) =>
    metrics.record('agent_runtime_http_request_duration_seconds', seconds, { operation, status: String(status) }));
