import { NotFoundError } from '../../../core/errors.ts';
import type { Principal } from './principal.ts';
import { ValidationFailedError } from './request-errors.ts';

/** The user whose things a caller sees where no path names one; `undefined` for one who may act for everybody. */
export const visibleTo = (principal: Principal): string | undefined =>
  principal.kind === 'user' ? principal.userId : undefined;

/**
 * The user that a request is about: the one who is logged in, or the one that it names.
 * @throws {ValidationFailedError} where it must name one and does not. @throws {NotFoundError} for somebody else.
 */
export function ownerOf(principal: Principal, named: string | undefined, place: 'body' | 'query'): string {
  const own = visibleTo(principal);
  if (own !== undefined && named !== undefined && named !== own) throw new NotFoundError(`User not found: ${named}`);
  const userId = own ?? named;
  if (userId !== undefined) return userId;
  throw new ValidationFailedError([{ type: 'missing', loc: [place, 'ownerId'], msg: 'Field required', input: null }]);
}
