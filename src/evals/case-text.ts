import { z } from 'zod';
import type { JsonObject } from '../core/content.ts';
import { keyAliases } from '../http/validation/key-aliases.ts';
import type { Rubric, Turn } from './metrics/turn.ts';
import type { Scenario } from './judges/simulator-quality.ts';

/** A case as a run reads it. */
export interface StoredCase {
  evalId: string;
  conversation?: Turn[] | null;
  scenario?: Scenario;
  rubrics?: Rubric[] | null;
  /** What its session begins with. */
  state: JsonObject;
}

const scenarioSchema = z.looseObject({ startingPrompt: z.string(), conversationPlan: z.string() });
const spelling = keyAliases(scenarioSchema);

/** Reads the JSON text of a stored case. @throws ZodError where its scenario, in either spelling, lacks a text. */
export function readStoredCase(text: string): StoredCase {
  const { conversationScenario, sessionInput, ...read } = JSON.parse(text) as Omit<StoredCase, 'scenario' | 'state'> & {
    conversationScenario?: unknown;
    sessionInput?: { state?: JsonObject | null } | null;
  };
  return {
    ...read,
    state: sessionInput?.state ?? {},
    ...(conversationScenario == null
      ? {}
      : { scenario: scenarioSchema.parse(spelling.toSchema(conversationScenario)) }),
  };
}
