import { z } from 'zod';
import { type Content, getFunctionCalls, type JsonObject, getParts } from '../../../core/content.ts';
import { type Event, isFinalResponse, withoutRewound } from '../../../core/event.ts';
import { identifierSchema } from '../../../core/session.ts';

/** Body of add-session (specification, "Add a session as an evaluation case"). */
export const addSessionSchema = z
  .looseObject({
    evalId: identifierSchema.describe('Identifier of the new case.'),
    sessionId: identifierSchema.describe('The session to make the case from.'),
    userId: identifierSchema.describe('The owner of that session.'),
    fromSequence: z
      .int()
      .min(1)
      .nullish()
      .describe(
        'Number of events that are history: the conversation of the case begins behind them, and a run copies them ' +
          'and the state of then out of the session [0].',
      ),
  })
  .describe('Turns a session into an evaluation case.');

/** One turn of an evaluation case that was made from a session. */
export interface EvalInvocation {
  invocationId: string;
  userContent: Content;
  finalResponse?: Content;
  intermediateData: { invocationEvents: { author: string; content: Content }[] };
  /** Unix time in seconds of the user's content; 0 where the user said nothing. */
  creationTimestamp: number;
}

/** An evaluation case that was made from a session; the store adds `creationTimestamp`. */
export interface EvalCase {
  evalId: string;
  conversation: EvalInvocation[];
  sessionInput: { appName: string; userId: string; state: JsonObject; sessionId?: string; sequence?: number };
}

/**
 * A session's conversation as turns, in the form that every version of ADK reads: events grouped by invocation in
 * first-seen order. A group in which nothing was said (a change of state over HTTP, a compaction) is no turn, nor is a
 * rewound invocation.
 */
export const toEvalInvocations = (events: Event[]): EvalInvocation[] =>
  toTurnParts(events).map(({ invocationId, question, spoken, final }) => ({
    invocationId,
    userContent: question?.content ?? { parts: [] },
    ...(final?.content ? { finalResponse: final.content } : {}),
    intermediateData: {
      invocationEvents: spoken.flatMap(({ author, content, isAnswer }) =>
        !isAnswer && saysSomething(content) ? [{ author, content }] : [],
      ),
    },
    creationTimestamp: question?.timestamp ?? 0,
  }));

/** The events of one turn by what they are in it. */
export interface TurnParts {
  invocationId: string;
  /** All of its events, in order. */
  events: Event[];
  /** What the user said. */
  question: Event | undefined;
  /** What agents said; `isAnswer` is true for the final response, unless it holds calls. */
  spoken: { author: string; content: Content; isAnswer: boolean; event: Event }[];
  final: Event | undefined;
}

/** The turns of a conversation, as {@link toEvalInvocations} finds them, with their events. */
export function toTurnParts(events: Event[]): TurnParts[] {
  const groups = Map.groupBy(withoutRewound(events), (event) => event.invocationId ?? '');
  return [...groups].flatMap(([id, group]) => (group.some(({ content }) => content) ? [partsOfTurn(id, group)] : []));
}

function partsOfTurn(invocationId: string, events: Event[]): TurnParts {
  const said = events.filter((event) => !isUsers(event) && getParts(event.content).length > 0);
  const final = said.findLast(isFinalResponse);
  const spoken = said.flatMap((event) => {
    const { author, content } = event;
    // The calls of a long-running tool stand in a final event: without it the trajectory would lose them.
    const isAnswer = event === final && getFunctionCalls(content).length === 0;
    return content ? [{ author: author ?? 'agent', content, isAnswer, event }] : [];
  });
  const question = events.findLast((event) => isUsers(event) && event.content);
  return { invocationId, events, question, spoken, final };
}

const isUsers = (event: Event) => event.author?.toLowerCase() === 'user';

/** False for a content that ADK leaves out of a case: only empty text, results of code, references to files. */
export const saysSomething = (content: Content) =>
  getParts(content).some((part) => part.functionCall || part.functionResponse || part.text || part.inlineData);

/** The part of a session's own state that no event changed: what the conversation started from; no shared scopes. */
export function toInitialState(state: JsonObject, events: Event[]): JsonObject {
  const changed = new Set(events.flatMap((event) => Object.keys(event.actions?.stateDelta ?? {})));
  const kept = Object.entries(state).filter(([key]) => !changed.has(key) && !/^(app|user):/.test(key));
  return Object.fromEntries(kept);
}

/**
 * A state that fills every `{word}` of the instructions: with its own value, and with `''` where it has none, since a
 * model call with an open placeholder fails. Scoped (`{user:x}`) and optional (`{x?}`) placeholders need no value.
 */
export function withPlaceholders(state: JsonObject, instructions: string[]): JsonObject {
  const words = instructions.flatMap((text) =>
    [...text.matchAll(/\{([\p{L}\p{N}_]+)\}/gu)].map(([, word = '']) => word),
  );
  return { ...Object.fromEntries(words.map((word) => [word, ''])), ...state };
}
