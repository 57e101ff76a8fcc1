import { z } from 'zod';
import { LOCAL_USER } from '../../core/names.ts';
import { identifierSchema, type SessionKey } from '../../core/session.ts';
import { type Principal, requireOwner } from '../../platform/http/operation/principal.ts';

const doorUserSchema = identifierSchema
  .optional()
  .describe('The owner of the session [of a token: its user; of a key that acts for all, and locally: `user`].');

/**
 * Clients of some protocols cannot name a user. With an API key for all users they share the default user.
 * @throws {ValidationFailedError} if an API key is bound to users and the request names no user
 */
export function toDoorUser(principal: Principal, userId: string | undefined): string {
  const actsForAll = principal.kind === 'anonymous' || (principal.kind === 'key' && !principal.users);
  return requireOwner(principal, userId ?? (actsForAll ? LOCAL_USER : undefined), 'query', 'user_id');
}

export const doorQuery = z.object({ user_id: doorUserSchema });
/** What the OpenAPI document calls the parameter of {@link doorQuery}. */
export const doorParameters = { DoorUserId: doorQuery.shape.user_id };
type DoorQuery = z.output<typeof doorQuery>;

export const doorOwner = {
  user: ({ query }: { query: DoorQuery }) => query.user_id as string,
  absent: ({ query }: { query: DoorQuery }) => `User not found: ${query.user_id}`,
};

/** @throws {ValidationFailedError} if the request must name a user and does not */
export const toDoorKey = (
  { appName, sessionId }: Omit<SessionKey, 'userId'>,
  { query, principal }: { query: DoorQuery; principal: Principal },
): SessionKey => ({ appName, userId: toDoorUser(principal, query.user_id), sessionId });
