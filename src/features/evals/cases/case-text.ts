import { z } from 'zod';
import type { JsonObject } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { keyAliases } from '../../../platform/http/validation/key-aliases.ts';
import type { Rubric, Turn } from '../metrics/turn.ts';
import type { Scenario } from '../judges/simulator-quality.ts';

/** A case as a run reads it. */
export interface StoredCase {
  evalId: string;
  conversation?: Turn[] | null;
  scenario?: Scenario;
  rubrics?: Rubric[] | null;
  /** What its session begins with. */
  state: JsonObject;
  /** Events of a session of its user, from the first on, that stand before the first turn. */
  history?: { sessionId: string; sequence: number };
}

/** The events of a session that ran a case, without the history that the case begins with. */
export const eventsOfCase = ({ history }: Pick<StoredCase, 'history'>, events: Event[]): Event[] =>
  events.slice(history?.sequence ?? 0);

const scenarioSchema = z.looseObject({ startingPrompt: z.string(), conversationPlan: z.string() });
const spelling = keyAliases(scenarioSchema);

/** Reads the JSON text of a stored case. @throws ZodError where its scenario, in either spelling, lacks a text. */
export function readStoredCase(text: string): StoredCase {
  const { conversationScenario, sessionInput, ...read } = JSON.parse(text) as Omit<StoredCase, 'scenario' | 'state'> & {
    conversationScenario?: unknown;
    sessionInput?: { state?: JsonObject | null; sessionId?: string | null; sequence?: number | null } | null;
  };
  const { state, sessionId, sequence } = sessionInput ?? {};
  return {
    ...read,
    state: state ?? {},
    ...(sessionId != null && sequence != null ? { history: { sessionId, sequence } } : {}),
    ...(conversationScenario == null
      ? {}
      : { scenario: scenarioSchema.parse(spelling.toSchema(conversationScenario)) }),
  };
}
