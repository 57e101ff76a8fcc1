import type { SessionKey } from '../../../core/session.ts';
import { type InvocationRef, joinNames, splitNames } from '../handle.ts';

/** An answer of this protocol: an invocation, or the rest of one after the answer to a call. */
export interface ResponseRef extends InvocationRef {
  /** Id of the call with whose answer it begins [all of the invocation]. */
  answered?: string | undefined;
}

/** Returns the id of a response: it says by itself where it is, of use to its user alone. */
export const toResponseId = ({ key, invocationId, answered }: ResponseRef, prefix = 'resp_'): string =>
  prefix + joinNames([...toNames(key), invocationId, ...(answered === undefined ? [] : [answered])]);

/** Returns the id of a conversation, which is a session. */
export const toConversationId = (key: SessionKey): string => `conv_${joinNames(toNames(key))}`;

/** Reads the id of a response; `undefined` for what is none. */
export function parseResponseId(id: string): ResponseRef | undefined {
  const [appName = '', userId = '', sessionId = '', invocationId = '', answered] = splitNames(id.slice(5));
  const ref = { key: { appName, userId, sessionId }, invocationId, answered };
  return toResponseId(ref) === id ? ref : undefined;
}

/** Reads the id of a conversation; `undefined` for what is none. */
export function parseConversationId(id: string): SessionKey | undefined {
  const [appName = '', userId = '', sessionId = ''] = splitNames(id.slice(5));
  const key = { appName, userId, sessionId };
  return toConversationId(key) === id ? key : undefined;
}

const toNames = ({ appName, userId, sessionId }: SessionKey) => [appName, userId, sessionId];
