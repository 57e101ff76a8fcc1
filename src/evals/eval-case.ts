import { z } from 'zod';
import {
  type Content,
  type FunctionCall,
  functionCallsOf,
  type FunctionResponse,
  functionResponsesOf,
  type JsonObject,
  type Part,
  partsOf,
} from '../core/content.ts';
import { type Event, isFinalResponse } from '../core/event.ts';
import { identifierSchema } from '../core/session.ts';

export const addSessionSchema = z
  .looseObject({
    evalId: identifierSchema.describe('Identifier of the new case.'),
    sessionId: identifierSchema.describe('The session to make the case from.'),
    userId: identifierSchema.describe('The owner of that session.'),
  })
  .describe('Turns a session into an evaluation case.');

/** What happened between the user's content and the final response; both generations of clients read their own members. */
interface IntermediateData {
  invocationEvents: { author: string; content: Content }[];
  toolUses: FunctionCall[];
  toolResponses: FunctionResponse[];
  intermediateResponses: [author: string, parts: Part[]][];
}

/** One turn of an evaluation case. */
export interface EvalInvocation {
  invocationId: string;
  userContent: Content;
  finalResponse?: Content;
  intermediateData: IntermediateData;
  creationTimestamp: number;
}

/** An evaluation case as the wire shows it; the store adds `creationTimestamp`. */
export interface EvalCase {
  evalId: string;
  conversation: EvalInvocation[];
  sessionInput: { appName: string; userId: string; state: JsonObject };
}

/**
 * A session's conversation as turns: events grouped by invocation in first-seen order (inventory §2.2). Groups in which nothing
 * was said (a change of state over HTTP) are no turns.
 */
export function toEvalInvocations(events: Event[]): EvalInvocation[] {
  const groups = Map.groupBy(events, (event) => event.invocationId ?? '');
  return [...groups].flatMap(([id, group]) =>
    group.some(({ content }) => content) ? [toEvalInvocation(id, group)] : [],
  );
}

function toEvalInvocation(invocationId: string, group: Event[]): EvalInvocation {
  const asked = group.findLast((event) => isUsers(event) && event.content);
  const spoken = group.filter((event) => !isUsers(event) && partsOf(event.content).length > 0);
  const final = spoken.findLast(isFinalResponse);
  const intermediate = spoken.filter((event) => event !== final || functionCallsOf(event.content).length > 0);
  return {
    invocationId,
    userContent: asked?.content ?? { parts: [] },
    ...(final?.content ? { finalResponse: final.content } : {}),
    intermediateData: toIntermediateData(intermediate),
    creationTimestamp: asked?.timestamp ?? 0,
  };
}

const isUsers = (event: Event) => event.author?.toLowerCase() === 'user';

function toIntermediateData(events: Event[]): IntermediateData {
  const said = events.flatMap(({ author, content }) => (content ? [{ author: author ?? 'agent', content }] : []));
  return {
    invocationEvents: said,
    toolUses: said.flatMap(({ content }) => functionCallsOf(content)),
    toolResponses: said.flatMap(({ content }) => functionResponsesOf(content)),
    intermediateResponses: said.flatMap(({ author, content }): [string, Part[]][] => {
      const texts = partsOf(content).filter((part) => part.text != null);
      return texts.length > 0 ? [[author, texts]] : [];
    }),
  };
}

/** The part of a session's own state that no event changed: what the conversation started from. Shared scopes are left out. */
export function toInitialState(state: JsonObject, events: Event[]): JsonObject {
  const changed = new Set(events.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})));
  const kept = Object.entries(state).filter(([key]) => !changed.has(key) && !/^(app|user):/.test(key));
  return Object.fromEntries(kept);
}
