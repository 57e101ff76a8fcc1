import { once } from 'node:events';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import { InvalidTokenError, NotFoundError } from '../../core/errors.ts';
import { runWith } from '../context.ts';
import type { JsonStream } from '../json-stream.ts';
import type { Metrics } from '../metrics.ts';
import { createAuthorize, type Resource, toCallerId } from './access/authorize.ts';
import type { Authenticate } from './access/bearer.ts';
import type { Audit } from './audit/audit.ts';
import { requireDeliberate } from './guards.ts';
import type { RequestLimits } from './limits/caller-limits.ts';
import { type Answer, type Load, loadFor, needsHostedApp, type Noted, type Operation } from './operation/operation.ts';
import {
  byFixedSegmentsFirst,
  camelCase,
  expressPath,
  listRoutes,
  pathPattern,
  type Route,
} from './operation/paths.ts';
import { ANONYMOUS, NOT_VALID_ANY_MORE, type Principal, whenEnded } from './operation/principal.ts';
import { toBase } from './operation/public-base.ts';
import { RequestRefusedError } from './operation/request-errors.ts';
import { auditDenied, toAuditEntry } from './request-audit.ts';
import type { ReadBody } from './validation/json-body.ts';
import type { Validate, ValidRequest } from './validation/validate.ts';

export interface RouterOptions<Context> {
  /** The first argument of every handler. */
  context: Context;
  /** The hosted applications; changes within other applications are refused. Default: every application is hosted. */
  apps?: { has(appName: string): boolean };
  /** The URL under which clients reach the service, without a trailing slash. Default: taken from each request. */
  publicUrl?: string | undefined;
  /** Counts responses and streams. Default: no metrics. */
  metrics?: Metrics | undefined;
  /** The limits of each caller. Default: no limits. */
  limits?: RequestLimits | undefined;
  /** Stores access decisions. Default: no audit. */
  audit?: Audit | undefined;
}

interface Steps extends RouterOptions<never> {
  /** Absent: no credential is required and all callers are anonymous. */
  authenticate: Authenticate | undefined;
  readJsonBody: ReadBody;
  readTextBody: ReadBody;
  createValidate: (operation: Operation) => Validate;
  /** Alias of an application in requests → the application's name. */
  appAliases: ReadonlyMap<string, string>;
}

/**
 * Creates a router with a route per path of each operation. A request is authenticated before its body is read, and its
 * caller compared with the path's user before validation, so that unauthorised callers learn nothing from an error.
 */
export function operationRouter(operations: Operation[], steps: Steps): Router {
  const router = Router({ caseSensitive: true });
  const handlers = new Map(operations.map((each) => [each, createHandler(each, steps)]));
  const routes = listRoutes(operations).toSorted(byFixedSegmentsFirst);
  router.use(bySegments(routes.map((route) => ({ ...route, handler: handlers.get(route.operation) }))));
  router.use(methodNotAllowed(routes));
  return router;
}

/** Groups routes by number of segments, so that a path is compared only with routes of the same number. */
function bySegments(routes: (Route & { handler: RequestHandler | undefined })[]): RequestHandler {
  const routers = new Map<number, Router>();
  for (const { path, operation, handler } of routes) {
    const count = countSegments(path);
    const router = routers.get(count) ?? Router({ caseSensitive: true });
    routers.set(count, router);
    if (handler) router[operation.method](expressPath(path), handler);
  }
  return (request, response, next) => {
    // A client that resolves `..` in a name sends the container's path with a trailing slash, which must not delete it.
    if (request.method === 'DELETE' && request.path.endsWith('/')) return next('router');
    const router = routers.get(countSegments(request.path));
    // OPTIONS is left out, because an Express router would answer it for the first matching template only.
    if (router && request.method !== 'OPTIONS') router(request, response, next);
    else next();
  };
}

/** A trailing slash starts no segment. */
function countSegments(path: string): number {
  let count = 0;
  for (let at = path.indexOf('/'); at !== -1 && at < path.length - 1; at = path.indexOf('/', at + 1)) count += 1;
  return count;
}

function createHandler(operation: Operation, steps: Steps): RequestHandler {
  const { owner, body, wire } = operation;
  // An operation without authentication that changes something is limited by address.
  const limits = owner === 'open' && operation.method === 'get' ? undefined : steps.limits?.(operation);
  const authorize = createAuthorize(operation);
  // Without a declared body, the runtime's own operations read one to refuse it: its sender meant something by it.
  const readBody = body?.isText ? steps.readTextBody : body || wire === undefined ? steps.readJsonBody : undefined;
  const validate = steps.createValidate(operation);
  const readContent = createContentReader(operation, steps.appAliases);
  const hosted = needsHostedApp(operation) ? steps.apps : undefined;
  const answer = createAnswer(operation, steps);
  return async (request, response) => {
    const noted = response.locals as Noted;
    noteOperation(operation, steps, request, response);
    if (owner !== 'open') noted.principal = (await steps.authenticate?.(request)) ?? ANONYMOUS;
    const principal = noted.principal ?? ANONYMOUS;
    const named = readPath(operation, request, noted, steps.appAliases);
    authorize(principal, named);
    requireDeliberate(request, body?.isText === true);
    noted.caller = toCallerId(principal, noted.network, named.userId);
    // Only an API key acts for users. If the content names the user, that user's limits apply after validation.
    const isNamedLater = principal.kind === 'key' && typeof owner === 'object';
    if (!isNamedLater) await limits?.admit(noted.caller, request, response);
    await readBody?.(request, response);
    const valid = await validate(request, response);
    const resource = readContent?.(valid, named, noted) ?? named;
    noted.about = resource;
    if (readContent) authorize(principal, resource);
    if (hosted) requireHosted(hosted, resource.appName ?? (valid.body as { appName?: unknown } | undefined)?.appName);
    if (typeof owner === 'object') noted.caller = toCallerId(principal, noted.network, resource.userId);
    if (isNamedLater) await limits?.admit(noted.caller, request, response);
    await answer(request, response, { valid, principal, resource });
  };
}

function requireHosted(apps: { has(appName: string): boolean }, appName: unknown): void {
  if (typeof appName === 'string' && !apps.has(appName)) throw new NotFoundError(`App not found: ${appName}`);
}

function noteOperation(
  { operationId, path, isStream, success, resourceMetadata, toRefusal }: Operation,
  { metrics, publicUrl }: Pick<Steps, 'metrics' | 'publicUrl'>,
  request: Request,
  response: Response,
): void {
  const noted = response.locals as Noted;
  Object.assign(noted, { route: path, operationId, params: request.params, toRefusal } satisfies Partial<Noted>);
  if (resourceMetadata !== undefined)
    noted.metadataUrl = `${toBase({ PUBLIC_URL: publicUrl }, request)}${resourceMetadata}`;
  // A WebSocket does not end with its response; the server counts WebSockets.
  if (isStream && success?.status !== 101 && metrics)
    response.once('close', metrics.raise('agent_runtime_streams', { operation: operationId }));
}

/** Runs before any byte of the body is read. */
function readPath(
  operation: Operation,
  request: Request,
  noted: Noted,
  appAliases: ReadonlyMap<string, string>,
): Resource {
  const { app_name: appName, user_id: userId } = request.params as Record<string, string | undefined>;
  return {
    appName: appName === undefined ? undefined : (appAliases.get(appName) ?? appName),
    userId,
    absent: () => markForeign(noted, notFound(operation, request)),
  };
}

function createContentReader({ owner, demands }: Operation, appAliases: ReadonlyMap<string, string>) {
  const named = typeof owner === 'object' ? owner : undefined;
  if (!named && !demands) return undefined;
  return (valid: ValidRequest, fromPath: Resource, noted: Noted): Resource => {
    const appName = named?.app?.(valid);
    return {
      appName: appName === undefined ? fromPath.appName : (appAliases.get(appName) ?? appName),
      userId: named?.user(valid) ?? fromPath.userId,
      demands: demands?.(valid),
      absent: named ? () => markForeign(noted, new NotFoundError(named.absent(valid))) : fromPath.absent,
    };
  };
}

/** Marks a 404 about another user's or application's resource, so that the audit stores it. */
function markForeign(noted: Noted, error: NotFoundError): NotFoundError {
  noted.isForeign = true;
  return error;
}

function notFound({ absent }: Operation, request: Request): NotFoundError {
  const names = Object.entries(request.params).map(([name, text]) => [camelCase(name), text]);
  const text = absent?.(Object.fromEntries(names) as never);
  const { user_id: userId } = request.params;
  return new NotFoundError(text ?? (typeof userId === 'string' ? `User not found: ${userId}` : 'Not Found'));
}

function createAnswer(operation: Operation, steps: Steps) {
  const limits = steps.limits?.(operation);
  const kind = { isRead: operation.method === 'get' && loadFor(operation) !== 'invoke' };
  const audit = steps.audit?.isAbout(kind) ? steps.audit : undefined;
  const status = operation.success?.status ?? 200;
  // A WebSocket does not end with its response, and checks its credential itself.
  const lasts = status !== 101 && (operation.isStream === true || loadFor(operation) === 'invoke');
  return async (
    request: Request,
    response: Response,
    { valid, principal, resource }: { valid: ValidRequest; principal: Principal; resource: Resource },
  ): Promise<void> => {
    const { requestId, caller = '' } = response.locals as Noted;
    const call = {
      ...valid,
      principal,
      request,
      response,
      notFound: () => notFound(operation, request),
      countAgain: async (load?: Load) => {
        await limits?.count(caller, request, response, load).catch((error: unknown) => {
          auditDenied(steps.audit, error, request, response);
          throw error;
        });
      },
    };
    if (audit) await audit.allowed(toAuditEntry(request, response, resource), kind);
    // A repeated `traceparent` is ignored.
    const { traceparent } = request.headers;
    const callerTrace = typeof traceparent === 'string' ? traceparent : undefined;
    const userId = rowsFor(principal, resource.userId);
    const keyId = principal.kind === 'key' ? principal.id : undefined;
    const groups = principal.kind === 'user' ? principal.groups : undefined;
    const requestContext = { caller, requestId, callerTrace, userId, groups, keyId };
    const lasting = lasts ? whileValid(principal, response) : undefined;
    const work = runWith(
      { ...requestContext, ended: lasting?.signal, hasRead: () => limits?.hasRead(response) },
      async () => {
        const answer = (await operation.handler(steps.context, call)) ?? { kind: 'value', value: null };
        // Sent within the context, because the pieces are read from the database while they are sent.
        return answer.kind === 'stream' ? sendPieces(response, answer.text) : answer;
      },
    );
    sendAnswer(response, await (lasting ? lasting.orEnded(work) : work), status);
  };
}

/**
 * Watches the credential of a request that may take long. When it expires or is revoked, the caller gets an error,
 * unless the response has begun: a stream ends itself. The handler's work continues, as when a client disconnects.
 */
function whileValid(principal: Principal, response: Response) {
  if (principal.expiresAt === undefined && !principal.onRevoked) return undefined;
  const ended = new AbortController();
  const cancel = whenEnded(principal, () => ended.abort(new InvalidTokenError(NOT_VALID_ANY_MORE)));
  return {
    signal: ended.signal,
    orEnded: <Result>(work: Promise<Result>) =>
      new Promise<Result>((resolve, reject) => {
        // The error comes after listeners that respond in another protocol's format.
        const refuse = () => response.headersSent || reject(ended.signal.reason as Error);
        ended.signal.addEventListener('abort', () => setImmediate(refuse));
        work.then(resolve, reject).finally(cancel);
      }),
  };
}

/** The user to whose rows row-level security restricts statements; `undefined` for a caller who acts for all. */
function rowsFor(principal: Principal, named: string | undefined): string | undefined {
  if (principal.kind === 'user') return principal.userId;
  if (principal.kind !== 'key' || principal.users === undefined) return undefined;
  return named ?? (principal.users.size === 1 ? [...principal.users][0] : undefined);
}

type Sendable = Exclude<Answer, { kind: 'stream' }>;

/** A value that JSON cannot express becomes `null`. */
function sendAnswer(response: Response, answer: Sendable, status: number): void {
  if (answer.kind === 'sent') return;
  const text = answer.kind === 'json' ? answer.text : (JSON.stringify(answer.value) ?? 'null');
  const length = Buffer.byteLength(text);
  response.writeHead(answer.status ?? status, { 'content-type': 'application/json', 'content-length': length });
  // The response is a string, because Node writes strings together with the headers, but bytes in a second write.
  response.end(text);
}

/** Maximum characters of a text that is sent as a string; a longer one would take three times its size in memory. */
const MAX_SHORT = 16_384;

/** Sends a text in pieces at the client's reading speed. If the client disconnects, it returns without an error. */
async function sendPieces(response: Response, { first, rest }: JsonStream): Promise<Sendable> {
  const length = first.reduce((sum, text) => sum + text.length, 0);
  if (!rest && length <= MAX_SHORT) return { kind: 'json', text: first.join('') };
  response.setHeader('content-type', 'application/json');
  const bytes = toBytes(first);
  const size = bytes.reduce((sum, { byteLength }) => sum + byteLength, 0);
  if (!rest) response.setHeader('content-length', size);
  await write(response, bytes);
  for await (const texts of rest ?? []) {
    if (response.destroyed) return { kind: 'sent' };
    await write(response, toBytes(texts));
  }
  response.end();
  return { kind: 'sent' };
}

/** Converts the texts to bytes and empties the list, to free memory. */
const toBytes = (texts: string[]) => texts.splice(0).map((text) => Buffer.from(text));

/** Writes all pieces, then waits until the client has read them or has disconnected. */
async function write(response: Response, pieces: Buffer[]): Promise<void> {
  response.cork();
  for (const piece of pieces.splice(0)) response.write(piece);
  response.uncork();
  if (!response.writableNeedDrain) return;
  const disconnection = new AbortController();
  const onClose = () => disconnection.abort();
  response.once('close', onClose);
  await once(response, 'drain', { signal: disconnection.signal }).catch(() => undefined);
  response.off('close', onClose);
}

/**
 * Answers requests that no route matched: OPTIONS on a known path with 204, other methods with 405, both with `Allow`.
 * Runs after all routes, because a path may match several templates with different methods.
 */
function methodNotAllowed(routes: Route[]): RequestHandler {
  const known = routes.map(({ path, operation }) => ({
    method: operation.method.toUpperCase(),
    pattern: pathPattern(path),
  }));
  return (request, response, next) => {
    const methods = known.filter(({ pattern }) => pattern.test(request.path)).map(({ method }) => method);
    if (methods.length === 0) return next();
    const all = methods.includes('GET') ? [...methods, 'HEAD', 'OPTIONS'] : [...methods, 'OPTIONS'];
    const allow = [...new Set(all)].join(', ');
    if (request.method !== 'OPTIONS')
      throw new RequestRefusedError('method_not_allowed', 'Method Not Allowed', { allow });
    response.writeHead(204, { allow }).end();
  };
}
