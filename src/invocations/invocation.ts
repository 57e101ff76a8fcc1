import type { FunctionCall } from '../sessions/content.ts';
import { functionCallsOf, functionResponsesOf } from '../sessions/content.ts';
import type { Event, NewEvent } from '../sessions/event.ts';

/** How an invocation stands. `paused` waits for a person; the last four are final. */
export type InvocationStatus = 'queued' | 'running' | 'paused' | 'succeeded' | 'failed' | 'interrupted' | 'cancelled';

/** Why an invocation did not succeed: a stable code and a sentence for people. */
export interface InvocationError {
  code: string;
  message: string;
}

/** What the response of a call says that will never be answered by its tool. */
const INTERRUPTED_RESPONSE = { error: 'The call was interrupted before it answered.' };

/** The function calls of these events that no function response answers, in order. */
export function openFunctionCalls(events: Event[]): FunctionCall[] {
  const answered = new Set(events.flatMap(({ content }) => functionResponsesOf(content).map(({ id }) => id)));
  return events.flatMap(({ content }) => functionCallsOf(content)).filter(({ id }) => !answered.has(id));
}

/**
 * The events that end an invocation which cannot go on: one that answers its open calls, so that providers accept every later
 * turn, and one that says why. `events` are those that it stored so far.
 */
export function endingEvents(
  invocationId: string,
  author: string,
  events: Event[],
  error: InvocationError,
  newId: () => string,
): NewEvent[] {
  const open = openFunctionCalls(events);
  const parts = open.map((call) => ({
    functionResponse: { id: call.id, name: call.name, response: INTERRUPTED_RESPONSE },
  }));
  const answers: NewEvent[] =
    open.length === 0 ? [] : [{ id: newId(), invocationId, author, content: { role: 'user', parts } }];
  const interrupted = error.code === 'interrupted' || error.code === 'cancelled';
  const end: NewEvent = { id: newId(), invocationId, author, errorCode: error.code, errorMessage: error.message };
  return [...answers, interrupted ? { ...end, interrupted } : end];
}
