import { ForbiddenError, type NotFoundError } from '../../../core/errors.ts';
import type { Demand } from '../operation/demands.ts';
import type { Operation } from '../operation/operation.ts';
import type { Principal } from '../operation/principal.ts';

/** The resource of a request, as far as the request names it. */
export interface Resource {
  appName?: string | undefined;
  userId?: string | undefined;
  /** Further scopes that the content of the request needs. */
  demands?: readonly Demand[] | undefined;
  /** The 404 for a resource of another, the same as for one that does not exist, so that callers learn nothing. */
  absent: () => NotFoundError;
}

const FOR_KEYS = 'This operation is for runtime keys, not for tokens of users.';

/**
 * Decides whether a principal may send a request.
 * @throws {ForbiddenError} if a scope is missing @throws {NotFoundError} for a resource of another
 */
type Authorize = (principal: Principal, resource: Resource) => void;

/** Prepares the only decision on who may call an operation: by scope, by user and application, by content. */
export function createAuthorize({ scope, isForKeys, owner }: Operation): Authorize {
  const own: Demand | undefined = scope === 'none' ? undefined : { scope, because: 'this operation needs it.' };
  // Descriptions of applications are for all who may read. Every other operation without an owner is about all users.
  const spansUsers = owner === 'caller' || (owner === 'service' && scope !== 'read');
  return (principal, { appName, userId, demands = [], absent }) => {
    if (own) requireScope(principal, own);
    if (isForKeys && principal.kind === 'user') throw new ForbiddenError(FOR_KEYS);
    if (userId !== undefined && !mayActFor(principal, userId)) throw absent();
    if (appName !== undefined && !(principal.apps?.has(appName) ?? true)) throw absent();
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

/** True if a caller may read and write the resources of this user. */
export function mayActFor(principal: Principal, userId: string): boolean {
  if (principal.kind === 'user') return principal.userId === userId;
  return principal.kind === 'anonymous' || (principal.users?.has(userId) ?? true);
}

/** Returns the name to which limits apply: a user, a user for whom a key acts, a key alone, or an address. */
export function toCallerId(principal: Principal, address: string, userId?: string): string {
  if (principal.kind === 'user') return `user:${principal.userId}`;
  if (principal.kind === 'anonymous') return `address:${address}`;
  return `key:${principal.id ?? ''}${userId === undefined ? '' : `/${userId}`}`;
}
