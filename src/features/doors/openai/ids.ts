import type { SessionKey } from '../../../core/session.ts';
import { type InvocationRef, readHandle, toHandle } from '../handle.ts';

export const toResponseId = (ref: InvocationRef): string => `resp_${toHandle(ref)}`;

export const toConversationId = (key: SessionKey): string => `conv_${toHandle({ key, invocationId: '' })}`;

/** Decodes the id of a response or conversation; `undefined` if the id is invalid or of the other kind. */
export const parseId = (kind: 'resp_' | 'conv_', id: string): InvocationRef | undefined =>
  id.startsWith(kind) ? readHandle(id.slice(kind.length)) : undefined;
