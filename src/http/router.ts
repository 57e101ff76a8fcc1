import { type Request, type RequestHandler, type Response, Router } from 'express';
import { NotFoundError } from '../core/errors.ts';
import { mayActFor } from './access/bearer.ts';
import type { Answer, Call, Operation, Principal } from './operation/operation.ts';
import { byFixedSegmentsFirst, expressPath, pathPattern } from './operation/paths.ts';
import { RequestRefusedError } from './operation/request-errors.ts';
import type { Validate } from './validation/validate.ts';

/** What every operation passes on its way to its handler. */
interface Steps {
  authenticate: RequestHandler;
  readJson: RequestHandler;
  readText: RequestHandler;
  validate: Validate;
}

/**
 * A router with one route per operation. A request is authenticated before its body is read, and compared with the path's
 * user before it is validated, so that a stranger learns nothing from either.
 */
export function operationRouter(operations: Operation[], steps: Steps): Router {
  const router = Router({ caseSensitive: true });
  for (const operation of operations.toSorted(byFixedSegmentsFirst)) {
    const before = operation.access === 'open' ? [] : [steps.authenticate, ownerOnly(operation)];
    const body = operation.body ? [operation.body.isText ? steps.readText : steps.readJson] : [];
    router[operation.method](expressPath(operation.path), ...before, ...body, serve(operation, steps.validate));
  }
  router.use(otherMethods(operations));
  return router;
}

/** Of what belongs to another user a caller learns as much as of what does not exist. */
function ownerOnly(operation: Operation): RequestHandler {
  return (request, response, next) => {
    const path = request.params as Record<string, string>;
    const userId = path.user_id;
    if (userId !== undefined && !mayActFor(principalOf(response), userId)) {
      throw new NotFoundError(operation.absent?.(path) ?? `User not found: ${userId}`);
    }
    next();
  };
}

const principalOf = (response: Response): Principal =>
  (response.locals.principal as Principal | undefined) ?? { kind: 'anonymous' };

function serve(operation: Operation, validate: Validate): RequestHandler {
  return async (request: Request, response: Response) => {
    response.locals.route = operation.path;
    const { params, query, body } = request as { params: Record<string, unknown>; query: object; body?: unknown };
    const valid = await validate(operation, { path: params, query: query as Record<string, unknown>, body });
    const call: Call<unknown> = { ...valid, principal: principalOf(response), request, response };
    sendAnswer(response, await operation.handler(call as Call<never>));
  };
}

/** Text of `json` answers goes out as it is; a value without a JSON form goes out as `null`. */
function sendAnswer(response: Response, answer: Answer): void {
  if (answer.kind === 'sent') return;
  const text = answer.kind === 'json' ? answer.text : (JSON.stringify(answer.value) ?? 'null');
  const body = Buffer.from(text);
  response.writeHead(answer.status ?? 200, { 'content-type': 'application/json', 'content-length': body.length });
  response.end(body);
}

/**
 * For what no route took: OPTIONS on a known path 204, another method 405, both with `Allow`; otherwise on to the next
 * handler. It stands behind all routes, because a path may match several templates that have different methods.
 */
function otherMethods(operations: Operation[]): RequestHandler {
  const known = operations.map(({ method, path }) => ({ method: method.toUpperCase(), pattern: pathPattern(path) }));
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
