import { type SessionKey, storedIdentifierSchema } from '../../core/session.ts';

/** An invocation, and the session in which it is. */
export interface InvocationRef {
  key: SessionKey;
  invocationId: string;
}

/** Returns the name by which a client comes back to an invocation: of use to its user alone. */
export const toHandle = ({ key: { appName, sessionId }, invocationId }: InvocationRef): string =>
  [appName, sessionId, invocationId].map((name) => Buffer.from(name).toString('base64url')).join('.');

/** Reads a handle of a user's invocation; `undefined` for what is none. */
export function readHandle(handle: string, userId: string): InvocationRef | undefined {
  const names = handle.split('.').map((name) => Buffer.from(name, 'base64url').toString());
  const [appName = '', sessionId = '', invocationId = ''] = names;
  const ref = { key: { appName, userId, sessionId }, invocationId };
  if (!names.every((name) => storedIdentifierSchema.safeParse(name).success)) return undefined;
  return toHandle(ref) === handle ? ref : undefined;
}
