import { type FunctionResponse, getFunctionResponses } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { READ_RESULT } from '../../core/names.ts';

/** True for a response that gives a model a handle: a note says how to read the rest. */
export function hasHandle({ response }: Pick<FunctionResponse, 'response'>): boolean {
  const { handle, note } = response ?? {};
  return typeof handle === 'string' && typeof note === 'string' && note.includes(READ_RESULT);
}

export const givesHandle = ({ content }: Event): boolean => getFunctionResponses(content).some(hasHandle);
