import { type Request, type RequestHandler, type Response, Router } from 'express';
import { setTimeout as sleep } from 'node:timers/promises';
import { asCaller } from '../core/caller.ts';
import { actingFor } from '../db/acting-user.ts';
import { workingOn } from '../core/work.ts';
import type { Metrics } from '../core/metrics.ts';
import { networkOf } from '../core/network.ts';
import { LimitError, NotFoundError } from '../core/errors.ts';
import { entryOf, notedAbsent } from './audited.ts';
import { authorize, type Resource } from './access/authorize.ts';
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
  authenticate: RequestHandler;
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
  const handlers = new Map(operations.map((operation) => [operation, handlersOf(operation, steps)]));
  const routes = routesOf(operations).toSorted(byFixedSegmentsFirst);
  for (const { path, operation } of routes) {
    router[operation.method](expressPath(path), ...(handlers.get(operation) ?? []));
  }
  router.use(methodNotAllowed(routes));
  return router;
}

function handlersOf(operation: Operation<unknown>, steps: Steps): RequestHandler[] {
  const { owner, body } = operation;
  return [
    nameOperation(operation, steps.metrics),
    ...(owner === 'open' ? [] : [authenticated(steps.authenticate)]),
    authorizePath(operation, steps),
    requireDeliberate({ takesText: body?.isText === true }),
    admitEarly(operation, steps.limits),
    ...(body ? [body.isText ? steps.readTextBody : steps.readJsonBody] : []),
    serve(operation, steps),
  ];
}

/** Says which operation answers, for the log, for metrics and for the audit. */
function nameOperation(
  { operationId, path, isStream }: Operation<unknown>,
  metrics: Metrics | undefined,
): RequestHandler {
  return (request, response, next) => {
    response.locals.route = path;
    response.locals.operationId = operationId;
    // Express takes them away before the handlers of errors.
    response.locals.params = request.params;
    // A WebSocket leaves its response behind; the server counts those.
    if (isStream && request.headers.upgrade === undefined && metrics) {
      response.once('close', metrics.stream(operationId));
    }
    next();
  };
}

/** What the path alone decides, before a byte of the body is read. */
function authorizePath(operation: Operation<unknown>, { appNameOf }: Pick<Steps, 'appNameOf'>): RequestHandler {
  return (request, response, next) => {
    const { app_name: sent, user_id: userId } = request.params as Record<string, string | undefined>;
    const appName = sent === undefined ? undefined : appNameOf(sent);
    const absent = notedAbsent(response, () => notFound(operation, request));
    authorize(principalOf(response), operation, { appName, userId, absent });
    next();
  };
}

/** Only a key acts for users, and only what is validated may name one outside the path. */
const isNamedLater = (principal: Principal, { owner }: Operation<unknown>) =>
  principal.kind === 'key' && typeof owner === 'object';

/** Counts a request before its body is read, where its caller is known by then. */
function admitEarly(operation: Operation<unknown>, limits: RequestLimits | undefined): RequestHandler {
  return async (request, response, next) => {
    const principal = principalOf(response);
    const { user_id: userId } = request.params as Record<string, string | undefined>;
    const caller = callerId(principal, networkOf(request.ip), userId);
    response.locals.caller = caller;
    if (limits && operation.owner !== 'open' && !isNamedLater(principal, operation)) {
      await refusedSlowly(caller, () => limits.admit(caller, operation, request, response));
    }
    next();
  };
}

/** Whoever guessed wrong too often waits for the answer as everybody over a limit does. */
const authenticated =
  (authenticate: RequestHandler): RequestHandler =>
  (request, response, next) =>
    refusedSlowly(`address ${networkOf(request.ip)}`, async () => authenticate(request, response, next));

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

const principalOf = (response: Response): Principal =>
  (response.locals.principal as Principal | undefined) ?? ANONYMOUS;

function serve(operation: Operation<unknown>, steps: Steps): RequestHandler {
  const { validationOf, appNameOf, limits, audit, findPosition } = steps;
  const validate = validationOf(operation);
  const kind = { isRead: isRead(operation) };
  return async (request: Request, response: Response) => {
    const valid = await validate(request);
    const principal = principalOf(response);
    const resource = resourceOf(operation, valid, request, appNameOf);
    authorize(principal, operation, { ...resource, absent: notedAbsent(response, resource.absent) });
    if (typeof operation.owner === 'object') {
      response.locals.caller = callerId(principal, networkOf(request.ip), operation.owner.user(valid));
    }
    const caller = response.locals.caller as string;
    const call = {
      ...valid,
      principal,
      request,
      response,
      notFound: () => notFound(operation, request),
      countAgain: async () => limits?.count(caller, operation),
    };
    const answer = await refusedSlowly(caller, async () => {
      if (limits && isNamedLater(principal, operation)) await limits.admit(caller, operation, request, response);
      if (audit?.isAbout(kind)) await audit.allowed(entryOf(request, response, resource), kind);
      const work = { requestId: response.locals.requestId as string, callerTrace: traceOf(request) };
      const handle = () => limitedTo(principal, resource.userId, () => operation.handler(undefined, call));
      return workingOn(work, () => asCaller(caller, () => positioned(findPosition, operation, call, handle)));
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
  return userId === undefined ? work() : actingFor(userId, work);
}

/** What only the validated content of a request says: whose it is, and what further scopes it needs. */
function resourceOf(
  operation: Operation<unknown>,
  valid: Awaited<ReturnType<Validate>>,
  request: Request,
  appNameOf: Steps['appNameOf'],
): Resource {
  const { owner, demands } = operation;
  const named = typeof owner === 'object' ? owner : undefined;
  const appName = named?.app?.(valid) ?? (request.params as Record<string, string | undefined>).app_name;
  return {
    appName: appName === undefined ? undefined : appNameOf(appName),
    userId: named?.user(valid) ?? (request.params as Record<string, string | undefined>).user_id,
    demands: demands?.(valid),
    absent: named ? () => new NotFoundError(named.absent(valid)) : () => notFound(operation, request),
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
