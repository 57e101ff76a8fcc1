import { z } from 'zod';
import type { JsonObject } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { identifierSchema } from '../../../core/session.ts';
import { keyAliases } from '../../../platform/http/validation/key-aliases.ts';
import type { Rubric, Turn } from '../metrics/turn.ts';
import type { Scenario } from '../judges/verdicts.ts';
import type { EvalInvocation } from './turns.ts';
import { looseObject, optional } from '../../../core/members.ts';

export const addSessionSchema = looseObject('Turns a session into an evaluation case.', {
  evalId: identifierSchema.describe('Identifier of the new case.'),
  sessionId: identifierSchema.describe('The session to make the case from.'),
  userId: identifierSchema.describe('The owner of that session.'),
  fromSequence: optional(
    z.int().min(1),
    'Number of events that are history: the conversation of the case begins behind them, and a run copies them ' +
      'and the state of then out of the session [0].',
  ),
});

/** A case made from a session; the store adds `creationTimestamp`. */
export interface EvalCase {
  evalId: string;
  conversation: EvalInvocation[];
  sessionInput: { appName: string; userId: string; state: JsonObject; sessionId?: string; sequence?: number };
}

/** Gives each unresolved `{placeholder}` an empty text, because a model call would fail with it. */
export function withPlaceholders(state: JsonObject, instructions: string[]): JsonObject {
  const words = instructions.flatMap((text) =>
    [...text.matchAll(/\{([\p{L}\p{N}_]+)\}/gu)].map(([, word = '']) => word),
  );
  return { ...Object.fromEntries(words.map((word) => [word, ''])), ...state };
}

export interface StoredCase {
  evalId: string;
  conversation?: Turn[] | null;
  scenario?: Scenario;
  rubrics?: Rubric[] | null;
  state: JsonObject;
  /** History before the first turn: the first `sequence` events of a session of the same user. */
  history?: { sessionId: string; sequence: number };
}

export const withoutHistory = ({ history }: Pick<StoredCase, 'history'>, events: Event[]): Event[] =>
  events.slice(history?.sequence ?? 0);

const scenarioSchema = z.looseObject({ startingPrompt: z.string(), conversationPlan: z.string() });

const spelling = keyAliases(scenarioSchema);

/** Names in a stored case may be camelCase or snake_case. @throws ZodError if its scenario lacks a text. */
export function readStoredCase(stored: unknown): StoredCase {
  const { conversationScenario, sessionInput, ...members } = stored as Omit<StoredCase, 'scenario' | 'state'> & {
    conversationScenario?: unknown;
    sessionInput?: { state?: JsonObject | null; sessionId?: string | null; sequence?: number | null } | null;
  };
  const { state, sessionId, sequence } = sessionInput ?? {};
  return {
    ...members,
    state: state ?? {},
    ...(sessionId != null && sequence != null ? { history: { sessionId, sequence } } : {}),
    ...(conversationScenario == null
      ? {}
      : { scenario: scenarioSchema.parse(spelling.toSchema(conversationScenario)) }),
  };
}
