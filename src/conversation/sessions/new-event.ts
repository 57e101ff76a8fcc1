import type { JsonObject } from '../../core/content.ts';
import { type Event, eventSchema, type NewEvent } from '../../core/event.ts';
import { withoutKnownNulls } from '../../core/zod-graph.ts';

/** Events of a client made ready for the store: what names them is filled in; pieces of a stream are never stored. */
export const toNewEvents = (events: Event[], newId: () => string): NewEvent[] =>
  events
    .filter((event) => event.partial !== true)
    .map((event) => ({
      ...withoutKnownNulls(eventSchema, event),
      id: event.id || newId(),
      invocationId: event.invocationId ?? '',
      author: event.author || 'user',
    }));

/** An event that changes the state and says nothing, as ADK makes it. */
export const toStateEvent = (stateDelta: JsonObject, newId: () => string): NewEvent => ({
  id: newId(),
  invocationId: `p-${newId()}`,
  author: 'user',
  nodeInfo: { path: '' },
  actions: { stateDelta, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} },
});
