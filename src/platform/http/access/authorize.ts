import { ForbiddenError, type NotFoundError } from '../../../core/errors.ts';
import { type Demand, requireScope } from '../operation/demands.ts';
import type { Operation } from '../operation/operation.ts';
import { isBound, mayActFor, mayUse, type Principal } from '../operation/principal.ts';

/** What a request is about, as far as it names it. */
export interface Resource {
  appName?: string | undefined;
  userId?: string | undefined;
  /** Further scopes that its content needs. */
  demands?: readonly Demand[] | undefined;
  /** The 404 of it: of what belongs to another a caller learns as much as of what does not exist. */
  absent: () => NotFoundError;
}

const FOR_KEYS = 'This operation is for runtime keys, not for tokens of users.';

/**
 * The one decision on who may do what: the scope of the operation, then what the caller is bound to, then the scopes
 * that the content needs.
 * @throws {ForbiddenError} where a scope is missing. @throws {NotFoundError} for what is another's
 */
export function authorize(principal: Principal, operation: Operation<unknown>, resource: Resource): void {
  const { scope, isForKeys } = operation;
  if (scope !== 'none') requireScope(principal, { scope, because: 'this operation needs it.' });
  if (isForKeys && principal.kind === 'user') throw new ForbiddenError(FOR_KEYS);
  const { appName, userId, demands = [] } = resource;
  if (userId !== undefined && !mayActFor(principal, userId)) throw resource.absent();
  if (appName !== undefined && !mayUse(principal, appName)) throw resource.absent();
  if (isBound(principal) && spansUsers(principal, operation, appName)) {
    throw new ForbiddenError('The credential is bound to users or applications, and this operation is about all.');
  }
  for (const demand of demands) requireScope(principal, demand);
}

/** What describes applications is for everybody who may read; the rest of what nobody owns is about all users. */
function spansUsers(principal: Principal, { owner, scope }: Operation<unknown>, appName: string | undefined): boolean {
  if (owner !== 'caller' && (owner !== 'service' || scope === 'read')) return false;
  return appName === undefined || (principal.kind === 'key' && principal.users !== undefined);
}
