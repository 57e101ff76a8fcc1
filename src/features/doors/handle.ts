import { type SessionKey, storedIdentifierSchema } from '../../core/session.ts';

/** An invocation, and the session in which it is. */
export interface InvocationRef {
  key: SessionKey;
  invocationId: string;
}

/** Joins names to one word, which a client takes as it is: no name has a line feed. */
export const joinNames = (names: readonly string[]): string => Buffer.from(names.join('\n')).toString('base64url');

/** Splits what {@link joinNames} made; no names for anything else. */
export function splitNames(joined: string): string[] {
  const names = Buffer.from(joined, 'base64url').toString().split('\n');
  return names.every((name) => storedIdentifierSchema.safeParse(name).success) ? names : [];
}

/** Returns the name by which a client comes back to an invocation: of use to its user alone. */
export const toHandle = ({ key: { appName, sessionId }, invocationId }: InvocationRef): string =>
  joinNames([appName, sessionId, invocationId]);

/** Reads a handle of a user's invocation; `undefined` for what is none. */
export function readHandle(handle: string, userId: string): InvocationRef | undefined {
  const [appName = '', sessionId = '', invocationId = ''] = splitNames(handle);
  const ref = { key: { appName, userId, sessionId }, invocationId };
  return toHandle(ref) === handle ? ref : undefined;
}
