import { z } from 'zod';
import { contentSchema, functionCallSchema, functionResponseSchema, jsonObject } from '../core/content.ts';
import { identifierSchema } from '../core/session.ts';

/** Evaluation sets and cases as ADK's clients send and read them (inventory §2.1); members of later versions are kept. */

const number = () => z.number().nullish();
const objects = () => z.array(jsonObject).nullish();

const intermediateDataSchema = z
  .looseObject({
    invocationEvents: z
      .array(z.looseObject({ author: z.string().nullish(), content: contentSchema.nullish() }))
      .nullish()
      .describe('ADK 2.x: all that was said in between.'),
    toolUses: z.array(functionCallSchema).nullish().describe('ADK 1.x: the function calls.'),
    toolResponses: z.array(functionResponseSchema).nullish(),
    intermediateResponses: z.array(z.unknown()).nullish().describe('ADK 1.x: pairs of an author and parts.'),
  })
  .describe('What happened between the question and the final response.');

const evalInvocationSchema = z
  .looseObject({
    invocationId: z.string().nullish(),
    userContent: contentSchema,
    finalResponse: contentSchema.nullish(),
    intermediateData: intermediateDataSchema.nullish(),
    creationTimestamp: number(),
    inferenceCallCount: number(),
    duration: number(),
    rubrics: objects(),
    appDetails: jsonObject.nullish(),
  })
  .describe('One turn of the conversation.');

export const evalCaseSchema = z
  .looseObject({
    evalId: identifierSchema.describe('Unique within its set.'),
    conversation: z.array(evalInvocationSchema).nullish(),
    conversationScenario: jsonObject.nullish().describe('A plan from which a simulated user speaks.'),
    sessionInput: z
      .looseObject({ appName: z.string(), userId: z.string(), state: jsonObject.nullish() })
      .nullish()
      .describe('The session that the case starts in.'),
    creationTimestamp: number().describe('Unix time in seconds.'),
    rubrics: objects(),
    finalSessionState: jsonObject.nullish(),
  })
  .refine(({ conversation, conversationScenario }) => (conversation == null) !== (conversationScenario == null), {
    message: 'Exactly one of conversation and conversation_scenario must be provided in an EvalCase.',
  })
  .describe('A conversation to evaluate an application with.');

export const evalSetSchema = z
  .looseObject({
    eval_set_id: identifierSchema,
    name: z.string().nullish(),
    description: z.string().nullish(),
    eval_cases: z.array(evalCaseSchema).nullish(),
    creation_timestamp: number().describe('Unix time in seconds; the server sets it.'),
  })
  .describe('A named set of evaluation cases. Its own members are snake_case.');

export const createEvalSetSchema = z.looseObject({ evalSet: evalSetSchema }).describe('A new evaluation set.');

export type EvalCaseBody = z.infer<typeof evalCaseSchema>;

/** ADK's rule for the id of a set that a person names. */
export const EVAL_SET_ID = /^[a-zA-Z0-9_]+$/;

const interval = { minValue: 0, openAtMin: false, maxValue: 1, openAtMax: false };

/** The metrics that need no judge model; clients require an interval of each. */
export const METRICS_INFO = {
  metricsInfo: [
    {
      metricName: 'tool_trajectory_avg_score',
      description: 'Share of the turns whose tool calls are those of the case: names, arguments and order.',
      metricValueInfo: { interval },
    },
    {
      metricName: 'response_match_score',
      description: 'ROUGE-1 of the final responses: how many of their words agree.',
      metricValueInfo: { interval },
    },
  ],
};
