import type { JsonObject } from '../core/content.ts';
import type { NewEvent } from '../core/event.ts';
import type { InvocationRequest } from './context.ts';

/** Returns the user events that a claim stores. */
export const claimedUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? [] : userEvents(request, newId);

/** Returns the user events that are stored with the first event of the agent, or with the end. */
export const deferredUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? userEvents(request, newId) : [];

/**
 * True where the request names tools, skills or a model, which may not exist. Its user event is stored with the first
 * event of the agent, so that a wrong request leaves none and its correction does not ask twice.
 */
const isUncertain = ({ overrides: { tools, skills, modelName } }: InvocationRequest): boolean =>
  tools !== undefined || skills !== undefined || modelName !== undefined;

/** The event that opens an invocation; none where it only goes on. */
function userEvents(request: InvocationRequest, newId: () => string): NewEvent[] {
  const { invocationId, content, stateDelta } = request;
  if (!content && !stateDelta) return [];
  const event: NewEvent = {
    id: newId(),
    invocationId,
    author: 'user',
    nodeInfo: { path: '' },
    ...(content ? { content: { ...content, role: content.role ?? 'user' } } : {}),
    actions: {
      stateDelta: stateDelta ?? {},
      artifactDelta: {},
      requestedAuthConfigs: {},
      requestedToolConfirmations: {},
    },
  };
  return [event];
}

/** Returns the state with the keys of the request that it lacks: `temp:` ones, and `all` until they are stored. */
export function withDelta(state: JsonObject, delta: JsonObject | undefined, all: boolean): JsonObject {
  const missing = Object.entries(delta ?? {}).filter(([name]) => all || name.startsWith('temp:'));
  return { ...state, ...Object.fromEntries(missing) };
}
