import type { ErrorRequestHandler, Request, Response } from 'express';
import { ForbiddenError, LimitError, UnauthenticatedError } from '../../core/errors.ts';
import type { Resource } from './access/authorize.ts';
import { isExpired } from './access/tokens.ts';
import type { Audit } from './audit/audit.ts';
import type { AuditEntry } from './audit/audit-store.ts';
import { camelCase } from './operation/paths.ts';
import type { Noted } from './operation/operation.ts';
import type { Principal } from './operation/principal.ts';
import { type RefusalReason, RequestRefusedError } from './operation/request-errors.ts';
import type { EdgeLog } from './error-handler.ts';

/** Maximum characters of a name in an audit entry; the path of an unauthenticated request may contain longer ones. */
const MAX_NAME = 256;
/** Reasons of early refusals that are stored: a foreign web page, an unknown proxy, a repeated credential. */
const EDGE_REFUSALS: ReadonlySet<RefusalReason> = new Set(['forbidden_origin', 'not_deliberate', 'malformed_headers']);
const FOREIGN = 'what it asks for belongs to another user or application';

/** @param resource present after the content was validated */
export function toAuditEntry(
  request: Request,
  response: Response,
  resource?: Pick<Resource, 'appName' | 'userId'>,
): AuditEntry {
  const noted = response.locals as Noted;
  const inPath = Object.entries(noted.params ?? {}).flatMap(([name, value]) =>
    typeof value === 'string' ? [[camelCase(name), value.slice(0, MAX_NAME)]] : [],
  );
  const { appName, userId } = resource ?? {};
  const named = { ...(appName === undefined ? {} : { appName }), ...(userId === undefined ? {} : { userId }) };
  return {
    ...toCaller(noted.principal),
    address: request.ip,
    operation: noted.operationId,
    resource: { ...(Object.fromEntries(inPath) as Record<string, string>), ...named },
    requestId: noted.requestId,
  };
}

function toCaller(principal: Principal | undefined): Pick<AuditEntry, 'callerKind' | 'caller'> {
  if (!principal) return { callerKind: 'unknown' };
  if (principal.kind === 'user') return { callerKind: 'user', caller: principal.userId };
  return { callerKind: principal.kind, caller: principal.kind === 'key' ? principal.id : undefined };
}

/** Stores refusals on their way to the error handler, and logs wrong credentials. */
export function auditErrors(audit: Audit | undefined, log: EdgeLog): ErrorRequestHandler {
  return (error: unknown, request, response, next) => {
    auditDenied(audit, error, request, response);
    if (isWrongCredential(error, request)) {
      const { requestId } = response.locals as Noted;
      log.warn({ reason: 'wrong credential', requestId, address: request.ip }, 'a credential was refused');
    }
    next(error);
  };
}

/** Stores the refusal of a request, or of an action of its open stream; other errors are not stored. */
export function auditDenied(audit: Audit | undefined, error: unknown, request: Request, response: Response): void {
  const { isForeign, about } = response.locals as Noted;
  const reason = isForeign ? FOREIGN : toReason(error);
  if (reason !== undefined) audit?.refused(toAuditEntry(request, response, about), reason);
}

function toReason(error: unknown): string | undefined {
  if (error instanceof UnauthenticatedError) return 'no credential, or a wrong one';
  if (error instanceof LimitError) return `limit ${error.limit}`;
  if (error instanceof ForbiddenError) return error.message;
  const isForbidden = error instanceof RequestRefusedError && EDGE_REFUSALS.has(error.reason);
  return isForbidden ? error.message : undefined;
}

/** An expired token is not counted as a wrong credential, because it was valid once. */
const isWrongCredential = (error: unknown, request: Request) =>
  error instanceof UnauthenticatedError && request.headers.authorization !== undefined && !isExpired(error);
