import { type SessionKey, storedIdentifierSchema } from '../../core/session.ts';

/** An invocation, or the part of it that follows the answer to one call. */
export interface InvocationRef {
  key: SessionKey;
  invocationId: string;
  /** Id of the call whose answer starts the part; absent for the whole invocation. */
  answeredCallId?: string | undefined;
}

/**
 * Encodes an invocation as the opaque id that clients get. It contains the location, so that any replica finds the
 * invocation without a lookup table. It is no secret, because it works only for the invocation's user.
 */
export function toHandle({
  key: { appName, userId, sessionId },
  invocationId,
  answeredCallId = '',
}: InvocationRef): string {
  const names = [appName, userId, sessionId, invocationId, answeredCallId].filter(Boolean);
  // Line feeds separate the names, because no name contains one.
  return Buffer.from(names.join('\n')).toString('base64url');
}

/** Decodes a handle; `undefined` if it is invalid or, with `ofUser`, belongs to another user. */
export function readHandle(handle: string, ofUser?: string): InvocationRef | undefined {
  const names = Buffer.from(handle, 'base64url').toString().split('\n');
  const [appName = '', userId = '', sessionId = '', invocationId = '', answeredCallId] = names;
  const ref = { key: { appName, userId, sessionId }, invocationId, answeredCallId };
  const isValid = names.length > 2 && names.every((name) => storedIdentifierSchema.safeParse(name).success);
  return isValid && toHandle(ref) === handle && (ofUser ?? userId) === userId ? ref : undefined;
}
