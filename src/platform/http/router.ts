import { type Request, type RequestHandler, type Response, Router } from 'express';
import { setTimeout as sleep } from 'node:timers/promises';
import { runAsUser, runWith } from '../context.ts';
import type { Metrics } from '../metrics.ts';
import { LimitError, NotFoundError } from '../../core/errors.ts';
import { entryOf, keepRefusal, notedAbsent } from './audited.ts';
import { authorize, type Resource } from './access/authorize.ts';
import type { Authenticate } from './access/bearer.ts';
import { requireDeliberate } from './access/origin-guard.ts';
import type { Audit } from './operation/audit.ts';
import { type Answer, loadOf, type Operation } from './operation/operation.ts';
import { ANONYMOUS, callerId, type Principal } from './operation/principal.ts';
import { byFixedSegmentsFirst, camelCase, expressPath, pathPattern, type Route, routesOf } from './operation/paths.ts';
import { RequestRefusedError } from './operation/request-errors.ts';
import type { RequestLimits } from './operation/request-limits.ts';
import { type FindPosition, positioned } from './read-position.ts';
import type { Validate } from './validation/validate.ts';

/** What every operation passes on its way to its handler. */
interface Steps {
  authenticate: Authenticate;
  readJsonBody: RequestHandler;
  readTextBody: RequestHandler;
  validationOf: (operation: Operation) => Validate;
  /** The application that a name of a request means. */
  appNameOf: (name: string) => string;
  /** What one caller may take of what all share; without it as much as there is. */
  limits?: RequestLimits | undefined;
  /** Counts open streams; without it nobody does. */
  metrics?: Metrics | undefined;
  audit?: Audit | undefined;
  /** Where there is a replica for plain reads: how far the primary is. */
  findPosition?: FindPosition | undefined;
}

/**
 * A refusal for a limit waits so long for each refusal of the caller that waits already, at most {@link MAX_PAUSE_MS}:
 * whoever asks again and again, on however many connections, is answered ten times a second.
 */
const PAUSE_MS = 100;
const MAX_PAUSE_MS = 30_000;
/** Refusals that wait, by caller. */
const refusals = new Map<string, number>();

/**
 * A router with one route per path of each operation. A request is authenticated before its body is read, and
 * compared with the path's user before it is validated, so that a stranger learns nothing from either.
 */
export function operationRouter(operations: Operation<unknown>[], steps: Steps): Router {
  const router = Router({ caseSensitive: true });
  const handlers = new Map(operations.map((operation) => [operation, serve(operation, steps)]));
  const routes = routesOf(operations).toSorted(byFixedSegmentsFirst);
  router.use(bySegments(routes.map(({ path, operation }) => ({ path, operation, handler: handlers.get(operation) }))));
  router.use(methodNotAllowed(routes));
  return router;
}

/** Routes by the number of their segments, of which a path has as many: it is compared with those only. */
function bySegments(routes: (Route<unknown> & { handler: RequestHandler | undefined })[]): RequestHandler {
  const routers = new Map<number, Router>();
  for (const { path, operation, handler } of routes) {
    const count = segmentsOf(path);
    const router = routers.get(count) ?? Router({ caseSensitive: true });
    routers.set(count, router);
    if (handler) router[operation.method](expressPath(path), handler);
  }
  return (request, response, next) => {
    const router = routers.get(segmentsOf(request.path));
    // A router of Express answers OPTIONS by itself, for the first template that matches.
    if (router && request.method !== 'OPTIONS') router(request, response, next);
    else next();
  };
}

/** How many segments a path has; a slash at its end begins none. */
function segmentsOf(path: string): number {
  let count = 0;
  for (let at = path.indexOf('/'); at !== -1 && at < path.length - 1; at = path.indexOf('/', at + 1)) count += 1;
  return count;
}

/** All that a request of one operation passes, in this order. */
function serve(operation: Operation<unknown>, steps: Steps): RequestHandler {
  const { authenticate, limits, metrics, appNameOf } = steps;
  const { owner, body } = operation;
  const readBody = body && (body.isText ? steps.readTextBody : steps.readJsonBody);
  const answerTo = answering(operation, steps);
  return async (request, response) => {
    nameOperation(operation, metrics, request, response);
    if (owner !== 'open') await authenticated(authenticate, request, response);
    const principal = principalOf(response);
    const resource = inPath(operation, request, appNameOf);
    authorize(principal, operation, { ...resource, absent: notedAbsent(response, resource.absent) });
    requireDeliberate(request, body?.isText === true);
    const caller = callerId(principal, networkFor(response), resource.userId);
    response.locals.caller = caller;
    if (limits && owner !== 'open' && !isNamedLater(principal, operation)) {
      await refusedSlowly(caller, () => limits.admit(caller, operation, request, response));
    }
    if (readBody) await passed(readBody, request, response);
    await answerTo(request, response, principal, resource);
  };
}

/** Says which operation answers, for the log, for metrics and for the audit. */
function nameOperation(
  { operationId, path, isStream, success }: Operation<unknown>,
  metrics: Metrics | undefined,
  request: Request,
  response: Response,
): void {
  response.locals.route = path;
  response.locals.operationId = operationId;
  // Express takes them away before the handlers of errors.
  response.locals.params = request.params;
  // A WebSocket leaves its response behind; the server counts those.
  if (isStream && success?.status !== 101 && metrics) {
    response.once('close', metrics.stream(operationId));
  }
}

/** What the path alone says, before a byte of the body is read. */
function inPath(operation: Operation<unknown>, request: Request, appNameOf: Steps['appNameOf']): Resource {
  const { app_name: appName, user_id: userId } = request.params as Record<string, string | undefined>;
  return {
    appName: appName === undefined ? undefined : appNameOf(appName),
    userId,
    absent: () => notFound(operation, request),
  };
}

/** Runs a middleware to its end. */
const passed = (handler: RequestHandler, request: Request, response: Response): Promise<void> =>
  new Promise((resolve, reject) => {
    void handler(request, response, (error?: unknown) => (error === undefined ? resolve() : reject(error)));
  });

/** Only a key acts for users, and only what is validated may name one outside the path. */
const isNamedLater = (principal: Principal, { owner }: Operation<unknown>) =>
  principal.kind === 'key' && typeof owner === 'object';

/** Whoever guessed wrong too often waits for the answer as everybody over a limit does. */
async function authenticated(authenticate: Steps['authenticate'], request: Request, response: Response): Promise<void> {
  try {
    response.locals.principal = await authenticate(request);
  } catch (error) {
    if (error instanceof LimitError) await waitForTurn(`address ${networkFor(response)}`);
    throw error;
  }
}

async function refusedSlowly<T>(caller: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof LimitError) await waitForTurn(caller);
    throw error;
  }
}

async function waitForTurn(caller: string): Promise<void> {
  const waiting = (refusals.get(caller) ?? 0) + 1;
  refusals.set(caller, waiting);
  await sleep(Math.min(waiting * PAUSE_MS, MAX_PAUSE_MS));
  const left = (refusals.get(caller) ?? 1) - 1;
  if (left > 0) refusals.set(caller, left);
  else refusals.delete(caller);
}

/** The 404 of what a path names. */
function notFound({ absent }: Operation<unknown>, request: Request): NotFoundError {
  const names = Object.entries(request.params).map(([name, text]) => [camelCase(name), text]);
  const text = absent?.(Object.fromEntries(names) as never);
  const { user_id: userId } = request.params;
  return new NotFoundError(text ?? (typeof userId === 'string' ? `User not found: ${userId}` : 'Not Found'));
}

/** The address of the client, as the first step of the application noted it. */
const networkFor = (response: Response) => response.locals.network as string;

const principalOf = (response: Response): Principal =>
  (response.locals.principal as Principal | undefined) ?? ANONYMOUS;

/** Answers a request that has been let in, whose body was read. */
function answering(operation: Operation<unknown>, steps: Steps) {
  const { validationOf, appNameOf, limits, audit, findPosition } = steps;
  const validate = validationOf(operation);
  const kind = { isRead: isRead(operation) };
  const saysMore = typeof operation.owner === 'object' || operation.demands !== undefined;
  return async (request: Request, response: Response, principal: Principal, named: Resource): Promise<void> => {
    const valid = await validate(request);
    const resource = saysMore ? resourceOf(operation, valid, named, appNameOf) : named;
    if (saysMore) authorize(principal, operation, { ...resource, absent: notedAbsent(response, resource.absent) });
    if (typeof operation.owner === 'object') {
      response.locals.caller = callerId(principal, networkFor(response), operation.owner.user(valid));
    }
    const caller = response.locals.caller as string;
    const call = {
      ...valid,
      principal,
      request,
      response,
      notFound: () => notFound(operation, request),
      countAgain: async () => {
        await limits?.count(caller, operation).catch((error: unknown) => {
          keepRefusal(audit, error, request, response);
          throw error;
        });
      },
    };
    const answer = await refusedSlowly(caller, async () => {
      if (limits && isNamedLater(principal, operation)) await limits.admit(caller, operation, request, response);
      if (audit?.isAbout(kind)) await audit.allowed(entryOf(request, response, resource), kind);
      const requestId = response.locals.requestId as string;
      const handle = () => limitedTo(principal, resource.userId, () => operation.handler(undefined, call));
      const context = { caller, requestId, callerTrace: traceOf(request) };
      return runWith(context, () => positioned(findPosition, operation, call, handle));
    });
    sendAnswer(response, answer, operation.success?.status ?? 200);
  };
}

/** True for what changes nothing and runs nothing. */
const isRead = (operation: Operation<unknown>) => operation.method === 'get' && loadOf(operation) !== 'invoke';

/** The trace context of a caller; of several headers none counts. */
const traceOf = ({ headers: { traceparent } }: Request) => (typeof traceparent === 'string' ? traceparent : undefined);

/** Whoever acts for certain users only: the database shows the work the rows of the one that the request is about. */
function limitedTo<T>(principal: Principal, named: string | undefined, work: () => Promise<T>): Promise<T> {
  const isBoundKey = principal.kind === 'key' && principal.users !== undefined;
  const userId = principal.kind === 'user' ? principal.userId : isBoundKey ? named : undefined;
  return userId === undefined ? work() : runAsUser(userId, work);
}

/** What only the validated content of a request says: whose it is, and what further scopes it needs. */
function resourceOf(
  { owner, demands }: Operation<unknown>,
  valid: Awaited<ReturnType<Validate>>,
  fromPath: Resource,
  appNameOf: Steps['appNameOf'],
): Resource {
  const named = typeof owner === 'object' ? owner : undefined;
  const appName = named?.app?.(valid);
  return {
    appName: appName === undefined ? fromPath.appName : appNameOf(appName),
    userId: named?.user(valid) ?? fromPath.userId,
    demands: demands?.(valid),
    absent: named ? () => new NotFoundError(named.absent(valid)) : fromPath.absent,
  };
}

/** Text of `json` answers goes out as it is; a value without a JSON form goes out as `null`. */
function sendAnswer(response: Response, answer: Answer, status: number): void {
  if (answer.kind === 'sent') return;
  const text = answer.kind === 'json' ? answer.text : (JSON.stringify(answer.value) ?? 'null');
  const length = Buffer.byteLength(text);
  response.writeHead(answer.status ?? status, { 'content-type': 'application/json', 'content-length': length });
  // As text, which Node sends together with the headers; bytes would be a second write.
  response.end(text);
}

/**
 * For what no route took: OPTIONS on a known path 204, another method 405, both with `Allow`; otherwise on to the next
 * handler. It stands behind all routes, because a path may match several templates that have different methods.
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
