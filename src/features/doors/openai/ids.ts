import { type SessionKey, storedIdentifierSchema } from '../../../core/session.ts';

/** An answer of this protocol: an invocation, or the rest of one after the answer to a call. */
export interface ResponseRef {
  key: SessionKey;
  invocationId: string;
  /** Id of the call with whose answer it begins [all of the invocation]. */
  answered?: string | undefined;
}

/** Returns the id of a response: it says by itself where it is, of use to its user alone. */
export const toResponseId = ({ key, invocationId, answered }: ResponseRef, prefix = 'resp_'): string =>
  toId(prefix, [...toNames(key), invocationId, ...(answered === undefined ? [] : [answered])]);

/** Returns the id of a conversation, which is a session. */
export const toConversationId = (key: SessionKey): string => toId('conv_', toNames(key));

/** Reads the id of a response; `undefined` for what is none. */
export function parseResponseId(id: string): ResponseRef | undefined {
  const [appName, userId, sessionId, invocationId, answered, ...rest] = parseId('resp_', id);
  if (!appName || !userId || !sessionId || !invocationId || rest.length > 0) return undefined;
  return { key: { appName, userId, sessionId }, invocationId, answered };
}

/** Reads the id of a conversation; `undefined` for what is none. */
export function parseConversationId(id: string): SessionKey | undefined {
  const [appName, userId, sessionId, ...rest] = parseId('conv_', id);
  return appName && userId && sessionId && rest.length === 0 ? { appName, userId, sessionId } : undefined;
}

const toNames = ({ appName, userId, sessionId }: SessionKey) => [appName, userId, sessionId];

const toId = (prefix: string, names: string[]) => prefix + Buffer.from(JSON.stringify(names)).toString('base64url');

function parseId(prefix: string, id: string): string[] {
  if (!id.startsWith(prefix)) return [];
  try {
    const names = JSON.parse(Buffer.from(id.slice(prefix.length), 'base64url').toString()) as unknown;
    const isList = Array.isArray(names) && names.every((name) => storedIdentifierSchema.safeParse(name).success);
    // One spelling of each: what names the same thing twice could be counted twice.
    return isList && toId(prefix, names as string[]) === id ? (names as string[]) : [];
  } catch {
    return [];
  }
}
