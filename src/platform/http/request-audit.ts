import type { ErrorRequestHandler, Request, Response } from 'express';
import { ForbiddenError, LimitError, UnauthenticatedError } from '../../core/errors.ts';
import type { Resource } from './access/authorize.ts';
import { isExpired } from './access/bearer.ts';
import type { Audit } from './audit/audit.ts';
import type { AuditEntry } from './audit/audit-store.ts';
import { camelCase } from './operation/paths.ts';
import type { Principal } from './operation/principal.ts';
import { type RefusalReason, RequestRefusedError } from './operation/request-errors.ts';
import type { EdgeLog } from './error-handler.ts';

/** Longest name in an entry: a stranger's path may have longer ones than any identifier. */
const MAX_NAME = 256;
/** The refusals of a page of another site, of a proxy and of a repeated credential. */
const EDGE_REFUSALS: ReadonlySet<RefusalReason> = new Set(['forbidden_origin', 'not_deliberate', 'malformed_headers']);
const FOREIGN = 'what it asks for belongs to another user or application';

/** The facts in `response.locals` that the steps of a request leave for later steps. */
export interface Noted {
  requestId: string;
  /** The address of the client; if IPv6, its network. */
  network: string;
  /** The template of the path. It and `params` are copied, because Express removes them before an error handler. */
  route?: string;
  operationId?: string;
  params?: Request['params'];
  principal?: Principal;
  /** The caller's name to the limits. */
  caller?: string;
  /** True for a 404 about another user's or application's resource, which the audit keeps. */
  isForeign?: boolean;
}

/** Returns the entry of a request. @param resource present once the content is validated */
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

/** Keeps refusals on their way to the error handler, and logs wrong credentials. */
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

/** Keeps the refusal of a request, or of a further action of its open stream; other failures are not kept. */
export function auditDenied(audit: Audit | undefined, error: unknown, request: Request, response: Response): void {
  const { isForeign } = response.locals as Noted;
  const reason = isForeign ? FOREIGN : toReason(error);
  if (reason !== undefined) audit?.refused(toAuditEntry(request, response), reason);
}

/** Returns the reason of a refusal; `undefined` for every other error. */
function toReason(error: unknown): string | undefined {
  if (error instanceof UnauthenticatedError) return 'no credential, or a wrong one';
  if (error instanceof LimitError) return `limit ${error.limit}`;
  if (error instanceof ForbiddenError) return error.message;
  const isForbidden = error instanceof RequestRefusedError && EDGE_REFUSALS.has(error.reason);
  return isForbidden ? error.message : undefined;
}

/** An expired token is no wrong credential, because it was valid once. */
const isWrongCredential = (error: unknown, request: Request) =>
  error instanceof UnauthenticatedError && request.headers.authorization !== undefined && !isExpired(error);
