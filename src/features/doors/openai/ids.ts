import type { SessionKey } from '../../../core/session.ts';
import { type InvocationRef, readHandle, toHandle } from '../handle.ts';

/** Returns the id of a response. */
export const toResponseId = (ref: InvocationRef): string => `resp_${toHandle(ref)}`;

/** Returns the id of a conversation, which is a session. */
export const toConversationId = (key: SessionKey): string => `conv_${toHandle({ key, invocationId: '' })}`;

/** Reads an id of either kind; `undefined` for what is none. */
export const parseId = (kind: 'resp_' | 'conv_', id: string): InvocationRef | undefined =>
  id.startsWith(kind) ? readHandle(id.slice(kind.length)) : undefined;
