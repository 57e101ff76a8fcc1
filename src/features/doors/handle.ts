import { type SessionKey, storedIdentifierSchema } from '../../core/session.ts';

/** An invocation in its session, or the rest of one after the answer to a call. */
export interface InvocationRef {
  key: SessionKey;
  /** '' of a whole session. */
  invocationId: string;
  /** Id of the call with whose answer it begins [all of the invocation]. */
  answered?: string | undefined;
}

/** Returns the word by which a client comes back to an invocation, which says where it is: of use to its user alone. */
export function toHandle({ key: { appName, userId, sessionId }, invocationId, answered = '' }: InvocationRef): string {
  const names = [appName, userId, sessionId, invocationId, answered].filter(Boolean);
  // No name has a line feed.
  return Buffer.from(names.join('\n')).toString('base64url');
}

/** Reads a handle, of one user where that is given; `undefined` for what is none. */
export function readHandle(handle: string, ofUser?: string): InvocationRef | undefined {
  const names = Buffer.from(handle, 'base64url').toString().split('\n');
  const [appName = '', userId = '', sessionId = '', invocationId = '', answered] = names;
  const ref = { key: { appName, userId, sessionId }, invocationId, answered };
  const isValid = names.length > 2 && names.every((name) => storedIdentifierSchema.safeParse(name).success);
  return isValid && toHandle(ref) === handle && (ofUser ?? userId) === userId ? ref : undefined;
}
