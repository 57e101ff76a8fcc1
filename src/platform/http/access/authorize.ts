import { ForbiddenError, NotFoundError } from '../../../core/errors.ts';
import type { Demand } from '../operation/demands.ts';
import type { Operation } from '../operation/operation.ts';
import type { Principal } from '../operation/principal.ts';

/** The application, the user and the object that a request names; a request may name fewer of them. */
export interface Resource {
  appName?: string | undefined;
  userId?: string | undefined;
  /** Scopes that the request's content requires in addition to the operation's scope. */
  demands?: readonly Demand[] | undefined;
  /**
   * Makes the 404 for another user's resource, the same as for a missing one, so that callers cannot tell them apart.
   */
  absent: () => NotFoundError;
}

/** What follows `Not Found.` for an operation that does not exist for tokens. */
export const ABSENT_FOR_TOKENS = 'It is there for runtime keys; POST /run runs an agent with a token.';
const FOR_KEYS = 'This operation is for runtime keys, not for tokens of users.';

/**
 * @throws {ForbiddenError} if a scope is missing
 * @throws {NotFoundError} if the resource belongs to another user or application, or the operation is not there for
 *   the credential
 */
type Authorize = (principal: Principal, resource: Resource) => void;

/** Authorises by scope, by user and application, and by content. Nothing else authorises. */
export function createAuthorize(operation: Operation): Authorize {
  const { scope, isForKeys, isAbsentForTokens, servesBoundKeys, owner } = operation;
  const own: Demand | undefined = scope === 'none' ? undefined : { scope, because: 'this operation needs it.' };
  // Every caller with the scope `read` may see descriptions of applications. Other operations without an owner concern
  // all users.
  const spansUsers = !servesBoundKeys && (owner === 'caller' || (owner === 'service' && scope !== 'read'));
  return (principal, { appName, userId, demands = [], absent }) => {
    if (isAbsentForTokens && principal.kind === 'user') throw new NotFoundError(`Not Found. ${ABSENT_FOR_TOKENS}`);
    if (own) requireScope(principal, own);
    if (isForKeys && principal.kind === 'user') throw new ForbiddenError(FOR_KEYS);
    if (userId !== undefined && !mayActFor(principal, userId)) throw absent();
    if (appName !== undefined && !(principal.apps?.has(appName) ?? true)) throw absent();
    // A key of some applications must not learn which others a user has.
    if (owner === 'path' && appName === undefined && principal.apps) throw absent();
    const isBoundToUsers = principal.kind === 'key' && principal.users !== undefined;
    const isBound = isBoundToUsers || principal.apps !== undefined;
    if (isBound && spansUsers && (isBoundToUsers || appName === undefined))
      throw new ForbiddenError('The credential is bound to users or applications, and this operation is about all.');
    for (const demand of demands) requireScope(principal, demand);
  };
}

/** @throws {ForbiddenError} if the caller lacks the scope */
export function requireScope({ scopes }: Principal, { scope, because }: Demand): void {
  if (!scopes.has(scope))
    throw new ForbiddenError(`The credential does not have the scope \`${scope}\`: ${because}`, scope);
}

export function mayActFor(principal: Principal, userId: string): boolean {
  if (principal.kind === 'user') return principal.userId === userId;
  return principal.kind === 'anonymous' || (principal.users?.has(userId) ?? true);
}

/** Users whose data the caller may read; `undefined`: all. @throws {NotFoundError} if `named` has another user */
export function readableUsers(principal: Principal, named: string[] | undefined): string[] | undefined {
  const foreign = named?.find((userId) => !mayActFor(principal, userId));
  if (foreign !== undefined) throw new NotFoundError(`User not found: ${foreign}`);
  if (named) return named;
  if (principal.kind === 'user') return [principal.userId];
  return principal.kind === 'key' && principal.users ? [...principal.users] : undefined;
}

/** The name under which limits count a caller: the user, the user for whom a key acts, the key, or the address. */
export function toCallerId(principal: Principal, address: string, userId?: string): string {
  if (principal.kind === 'user') return `user:${principal.userId}`;
  if (principal.kind === 'anonymous') return `address:${address}`;
  return `key:${principal.id ?? ''}${userId === undefined ? '' : `/${userId}`}`;
}
