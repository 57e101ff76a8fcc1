import { type SessionKey, storedIdentifierSchema } from '../../core/session.ts';
import type { LocalRun } from '../../invocations/local-run.ts';

/** An invocation, or only the part of an invocation that follows the answer to a call for which it had paused. */
export interface InvocationRef {
  key: SessionKey;
  invocationId: string;
  /** Id of the answered call after which the part begins. Absent: the whole invocation is meant. */
  answeredCallId?: string | undefined;
  /** The running invocation, if this process runs it and the current HTTP request started it. */
  run?: LocalRun | undefined;
}

/**
 * An invocation as the opaque id that clients get. It contains all names, so any replica finds the invocation without a
 * lookup table. It is no secret, because it works only for the invocation's user.
 */
export function toHandle({
  key: { appName, userId, sessionId },
  invocationId,
  answeredCallId = '',
}: InvocationRef): string {
  const names = [appName, userId, sessionId, invocationId, answeredCallId].filter(Boolean);
  // Names are separated by line feeds, because no name contains a line feed.
  return Buffer.from(names.join('\n')).toString('base64url');
}

/** Decodes an id of {@link toHandle}; `undefined` if it is invalid, or belongs to another user than `ofUser`. */
export function readHandle(handle: string, ofUser?: string): InvocationRef | undefined {
  const names = Buffer.from(handle, 'base64url').toString().split('\n');
  const [appName = '', userId = '', sessionId = '', invocationId = '', answeredCallId] = names;
  const ref = { key: { appName, userId, sessionId }, invocationId, answeredCallId };
  const isValid = names.length > 2 && names.every((name) => storedIdentifierSchema.safeParse(name).success);
  return isValid && toHandle(ref) === handle && (ofUser ?? userId) === userId ? ref : undefined;
}
