import type { ErrorRequestHandler, Request, Response } from 'express';
import { ForbiddenError, LimitError, UnauthenticatedError } from '../../core/errors.ts';
import type { Resource } from './access/authorize.ts';
import { isExpired } from './access/bearer.ts';
import type { Audit, AuditEntry } from './operation/audit.ts';
import { camelCase } from './operation/paths.ts';
import type { Principal } from './operation/principal.ts';
import { type RefusalReason, RequestRefusedError } from './operation/request-errors.ts';
import type { EdgeLog } from './error-handler.ts';

/** Longest name that an entry keeps: a stranger's path may be longer than any identifier. */
const MAX_NAME = 256;
/** Reasons of refusals for pages of other sites, proxies and duplicate credentials. */
const EDGE_REFUSALS: ReadonlySet<RefusalReason> = new Set(['forbidden_origin', 'not_deliberate', 'malformed_headers']);
const FOREIGN = 'what it asks for belongs to another user or application';

/** Notes of earlier steps on a request. */
interface Noted {
  requestId: string;
  principal?: Principal;
  operationId?: string;
  params?: Request['params'];
}

/** The 404 of what is another's, which the audit tells apart from that of what does not exist. */
export const notedAbsent =
  <E extends Error>(response: Response, absent: () => E): (() => E) =>
  () => {
    response.locals.isForeign = true;
    return absent();
  };

/** The entry of a request; `resource` where its content has been read. */
export function entryOf(
  request: Request,
  response: Response,
  resource?: Pick<Resource, 'appName' | 'userId'>,
): AuditEntry {
  const locals = response.locals as Noted;
  const inPath = Object.entries(locals.params ?? {}).flatMap(([name, value]) =>
    typeof value === 'string' ? [[camelCase(name), value.slice(0, MAX_NAME)]] : [],
  );
  const { appName, userId } = resource ?? {};
  const named = { ...(appName === undefined ? {} : { appName }), ...(userId === undefined ? {} : { userId }) };
  return {
    ...getCaller(locals.principal),
    address: request.ip,
    operation: locals.operationId,
    resource: { ...(Object.fromEntries(inPath) as Record<string, string>), ...named },
    requestId: locals.requestId,
  };
}

function getCaller(principal: Principal | undefined): Pick<AuditEntry, 'callerKind' | 'caller'> {
  if (!principal) return { callerKind: 'unknown' };
  if (principal.kind === 'user') return { callerKind: 'user', caller: principal.userId };
  return { callerKind: principal.kind, caller: principal.kind === 'key' ? principal.id : undefined };
}

/**
 * Keeps refusals on their way to the error handler, and writes a line for a wrong credential: one a second at most,
 * with the number of those that it leaves out.
 */
export function keepRefusals(audit: Audit | undefined, log: EdgeLog): ErrorRequestHandler {
  return (error: unknown, request, response, next) => {
    keepRefusal(audit, error, request, response);
    if (isWrongCredential(error, request)) {
      const { requestId } = response.locals as { requestId: string };
      log.warn({ reason: 'wrong credential', requestId, address: request.ip }, 'a credential was refused');
    }
    next(error);
  };
}

/** Keeps that a request, or what follows on its open stream, was refused; not that it failed for another reason. */
export function keepRefusal(audit: Audit | undefined, error: unknown, request: Request, response: Response): void {
  const reason = response.locals.isForeign === true ? FOREIGN : toReason(error);
  if (reason !== undefined) audit?.refused(entryOf(request, response), reason);
}

/** Why a request may not do what it asks for; `undefined` for every other error. */
function toReason(error: unknown): string | undefined {
  if (error instanceof UnauthenticatedError) return 'no credential, or a wrong one';
  if (error instanceof LimitError) return `limit ${error.limit}`;
  if (error instanceof ForbiddenError) return error.message;
  const isForbidden = error instanceof RequestRefusedError && EDGE_REFUSALS.has(error.reason);
  return isForbidden ? error.message : undefined;
}

/** A token that has only expired was valid once. */
const isWrongCredential = (error: unknown, request: Request) =>
  error instanceof UnauthenticatedError && request.headers.authorization !== undefined && !isExpired(error);
