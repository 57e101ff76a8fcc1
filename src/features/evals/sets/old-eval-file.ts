import { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { jsonObject } from '../../../core/content.ts';
import type { EvalSetDocument, FileDefaults } from './eval-set.ts';

const oldTurn = z.looseObject({
  query: z.string(),
  reference: z.string().nullish(),
  expected_tool_use: z.array(z.looseObject({ tool_name: z.string(), tool_input: jsonObject.nullish() })).nullish(),
  expected_intermediate_agent_responses: z.array(z.looseObject({ author: z.string(), text: z.string() })).nullish(),
});

const oldSessions = z.array(
  z.looseObject({
    name: z.string(),
    data: z.array(oldTurn),
    initial_session: z
      .looseObject({ state: jsonObject.nullish(), app_name: z.string().nullish(), user_id: z.string().nullish() })
      .nullish(),
  }),
);

/** True if the JSON is a file of an early ADK version, in which a set is a list of sessions without an id. */
export const isOldFile = (json: unknown): boolean => Array.isArray(json);

/**
 * Converts a file's sessions, with new ids and the current time. @throws {InvalidError} if it is no list of sessions
 */
export function fromOldSessions(
  json: unknown,
  { evalSetId, now, newId }: FileDefaults,
): { set: EvalSetDocument; dropped: string[] } {
  const result = oldSessions.safeParse(json);
  if (!result.success) {
    const reasons = result.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
    throw new InvalidError(`The file is no list of sessions of ADK 1.x: ${reasons.join('; ')}`);
  }
  const dropped = result.data.flatMap(({ data }, session) =>
    data.flatMap(({ expected_tool_use: uses }, turn) =>
      (uses ?? []).flatMap((use, place) =>
        'mock_tool_output' in use ? [`[${session}].data[${turn}].expected_tool_use[${place}].mock_tool_output`] : [],
      ),
    ),
  );
  const cases = result.data.map(({ name, data, initial_session: start }) => ({
    evalId: name,
    conversation: data.map((turn) => toTurn(turn, now, newId())),
    ...(start && Object.keys(start).length > 0
      ? { sessionInput: { appName: start.app_name ?? '', userId: start.user_id ?? '', state: start.state ?? {} } }
      : {}),
    creationTimestamp: now,
    finalSessionState: {},
  }));
  return {
    set: { eval_set_id: evalSetId, name: evalSetId, eval_cases: cases, creation_timestamp: now },
    dropped,
  };
}

const toTurn = (turn: z.infer<typeof oldTurn>, now: number, invocationId: string) => ({
  invocationId,
  userContent: { parts: [{ text: turn.query }], role: 'user' },
  finalResponse: { parts: [{ text: turn.reference ?? '' }], role: 'model' },
  intermediateData: {
    toolUses: (turn.expected_tool_use ?? []).map(({ tool_name: name, tool_input: args }) => ({
      name,
      args: args ?? {},
    })),
    toolResponses: [],
    intermediateResponses: (turn.expected_intermediate_agent_responses ?? []).map(({ author, text }) => [
      author,
      [{ text }],
    ]),
  },
  creationTimestamp: now,
});
