import type { JsonObject } from '../../core/content.ts';
import { emptyActions, type Event, eventSchema, type NewEvent } from '../../core/event.ts';
import { withoutKnownNulls } from '../../core/zod-graph.ts';

/** Fills in a missing id or author of a client's events, and drops partial events, which are never stored. */
export const toNewEvents = (events: Event[], newId: () => string): NewEvent[] =>
  events
    .filter((event) => event.partial !== true)
    .map((event) => ({
      ...withoutKnownNulls(eventSchema, event),
      id: event.id || newId(),
      invocationId: event.invocationId ?? '',
      author: event.author || 'user',
    }));

/** Creates an event that only changes the state, in the format that ADK uses. */
export const toStateEvent = (stateDelta: JsonObject, newId: () => string): NewEvent => ({
  id: newId(),
  invocationId: `p-${newId()}`,
  author: 'user',
  nodeInfo: { path: '' },
  actions: { ...emptyActions(), stateDelta },
});
