import { z } from 'zod';
import {
  contentSchema,
  freeForm,
  functionCallSchema,
  functionResponseSchema,
  jsonObject,
} from '../../../core/content.ts';
import { bodyList, bodyText, name, number, text } from '../../../core/members.ts';
import { InvalidError } from '../../../core/errors.ts';
import { identifierSchema } from '../../../core/session.ts';
import { rubricType } from '../metrics/criteria.ts';
import { exampleAnswer, exampleEvent } from '../../../conversation/sessions/session-context.ts';

/**
 * Cases and their session input accept unknown properties, which later versions of ADK may add. Turns, rubrics and
 * scenarios refuse them, as in ADK, because a misspelled expectation would never be checked.
 */
const rubricSchema = z.strictObject({
  rubricId: z.string().max(1_024).describe('Unique among the rubrics that a turn is judged by.'),
  rubricContent: z
    .strictObject({ textProperty: text('The property, as a sentence.') })
    .describe('What the judge answers with yes or no.'),
  description: text('What it is for; the judge does not see it.'),
  type: rubricType.nullish().describe('The kind of rubric, which names the metric that reads it.'),
});
const rubrics = (meaning: string) => bodyList(rubricSchema).nullish().describe(meaning);

const intermediateDataSchema = z
  .strictObject({
    invocationEvents: bodyList(
      z.looseObject({
        author: name('`user` or the name of the agent.'),
        content: contentSchema.nullish().describe('What it said: text, function calls or function responses.'),
      }),
    )
      .nullish()
      .describe('ADK 2.x: all that was said in between.'),
    toolUses: bodyList(functionCallSchema).nullish().describe('ADK 1.x: the function calls.'),
    toolResponses: bodyList(functionResponseSchema).nullish().describe('ADK 1.x: the function responses.'),
    intermediateResponses: bodyList(z.unknown()).nullish().describe('ADK 1.x: pairs of an author and parts.'),
  })
  .describe('What happened between the question and the final response.');

const evalInvocationSchema = z
  .strictObject({
    invocationId: name('The invocation of the session that the turn was made from.'),
    userContent: contentSchema.describe(
      'What the user says; `{"parts": []}` where the turn began without a user event.',
    ),
    finalResponse: contentSchema.nullish().describe("The agent's answer; in a case the expected one."),
    intermediateData: intermediateDataSchema
      .nullish()
      .describe('What happened between the question and the final response; in a case the expected tool calls.'),
    creationTimestamp: number("Time of the user's event, Unix seconds; 0 where it is not known."),
    inferenceCallCount: number('Number of model calls of the turn.'),
    duration: number('How long the turn took, seconds.'),
    modelDuration: number('How much of it models took.'),
    toolDuration: number('How much of it tools took.'),
    rubrics: rubrics('What a judge model checks in this turn, beside the rubrics of the case.'),
    appDetails: freeForm('The agents of the turn with instructions and tools, by name, as ADK 2.x notes them.'),
  })
  .describe('One turn of the conversation.');

export const evalCaseSchema = z
  .looseObject({
    evalId: identifierSchema.describe('Unique within its set.'),
    conversation: bodyList(evalInvocationSchema)
      .nullish()
      .describe('The turns, in order; either this or `conversationScenario` is given.'),
    conversationScenario: z
      .strictObject({
        startingPrompt: bodyText.describe('What the simulated user says first.'),
        conversationPlan: bodyText.describe('What it goes on to say, and when it is done.'),
        userPersona: z
          .union([bodyText, jsonObject])
          .nullish()
          .describe('Who it is: the id of a built-in one, or an object; kept as sent.'),
      })
      .nullish()
      .describe('A plan from which a simulated user speaks.'),
    sessionInput: z
      .looseObject({
        appName: z.string().max(256).describe('The application that the case was made for.'),
        userId: z.string().max(256).describe('The user that the agent sees.'),
        state: freeForm('State that the session begins with [`{}`].'),
        sessionId: text('With `sequence`: a session of this user, in the application that runs the case.'),
        sequence: z
          .int()
          .min(1)
          .nullish()
          .describe(
            'The case goes on from here: the events of that session up to this one, and its state of then in the ' +
              'place of `state`, are copied before the first turn.',
          ),
      })
      .refine(({ sessionId, sequence }) => sequence == null || sessionId != null, {
        message: 'A sequence is one of a session: sessionId is missing.',
      })
      .nullish()
      .describe('The session that the case starts in.'),
    creationTimestamp: number('Unix time in seconds; set by the server where absent.'),
    rubrics: rubrics('What a judge model checks in every turn.'),
    finalSessionState: freeForm('State that the session should end with; kept for clients, no metric reads it.'),
  })
  .refine(({ conversation, conversationScenario }) => (conversation == null) !== (conversationScenario == null), {
    message: 'Exactly one of conversation and conversation_scenario must be provided in an EvalCase.',
  })
  .refine(({ conversation, conversationScenario }) => conversation?.length !== 0 || conversationScenario != null, {
    message: 'A conversation needs a turn to evaluate.',
  })
  .describe('A conversation to evaluate an application with.');

/** Source of the answers of a model or of tools in a run: `live` from the deployed agent, `stored` from the case. */
type ExecutionMode = 'live' | 'stored';

export interface ExecutionModes {
  modelExecutionMode: ExecutionMode;
  toolExecutionMode: ExecutionMode;
}

/** Execution modes as clients send them. The ADK Web UI sends `replay` instead of `stored`. */
const modeSchema = z.enum(['live', 'replay', 'stored']).nullish();
const toModeSchema = (source: string, otherwise: string) =>
  modeSchema.describe(`Where the answers of ${source}, or the cases (\`replay\`, which is \`stored\`) [${otherwise}].`);
const modelMode = (otherwise: string) => toModeSchema('the model come from: the model', otherwise);
const toolMode = (otherwise: string) => toModeSchema('tools come from: the tools', otherwise);

export const runModes = {
  modelExecutionMode: modelMode('that of the set'),
  toolExecutionMode: toolMode('that of the set'),
};

/** Returns the first given execution mode, that of the request before that of the set. Default: `live`. */
export const toExecutionMode = (...modes: z.infer<typeof modeSchema>[]): ExecutionMode =>
  (modes.find((one) => one != null) ?? 'live') === 'live' ? 'live' : 'stored';

export const evalSetSchema = z
  .looseObject({
    eval_set_id: identifierSchema.describe('Unique within the application; of a new set letters, digits and `_`.'),
    name: name('Name to show [the id].'),
    description: text('What the set is for.'),
    eval_cases: bodyList(evalCaseSchema).nullish().describe('The cases, oldest first.'),
    creation_timestamp: number('Unix time in seconds; the server sets it.'),
    model_execution_mode: modelMode('`live`'),
    tool_execution_mode: toolMode('`live`'),
  })
  .describe('A named set of evaluation cases. Its own members are snake_case.');

export const createEvalSetSchema = z
  .looseObject({ evalSet: evalSetSchema.describe('The set, with its first cases where it has some.') })
  .describe('A new evaluation set.');

export type EvalCaseBody = z.infer<typeof evalCaseSchema>;

/** Ids that ADK allows for sets that are created or read. Adding a session may create a set with any id. */
export const EVAL_SET_ID = /^[a-zA-Z0-9_]+$/;

/** @throws {InvalidError} if a new set's id has characters that ADK does not allow */
export function checkSetId(evalSetId: string): void {
  if (EVAL_SET_ID.test(evalSetId)) return;
  throw new InvalidError(`Invalid Eval Set ID. Eval Set ID should have the \`${EVAL_SET_ID.source}\` format`);
}

export const exampleEvalCase = {
  evalId: 'case1',
  conversation: [
    {
      invocationId: exampleEvent.invocationId,
      userContent: exampleEvent.content,
      finalResponse: exampleAnswer.content,
      creationTimestamp: exampleEvent.timestamp,
    },
  ],
  sessionInput: { appName: 'harness_agent', userId: 'u1', state: {} },
  creationTimestamp: 1_767_225_700.5,
} satisfies z.input<typeof evalCaseSchema>;

export const exampleEvalSet = {
  eval_set_id: 'arithmetic',
  name: 'Arithmetic',
  description: 'Questions that need the calculator.',
  eval_cases: [exampleEvalCase],
  creation_timestamp: 1_767_225_700.5,
} satisfies z.input<typeof evalSetSchema>;

/** An evaluation set in files and responses. Times are in Unix seconds. */
export type EvalSetDocument = z.infer<typeof evalSetSchema> & { eval_cases: EvalCaseBody[] };

/** Id and time for sets from files that contain neither, such as files of ADK 1.x. */
export interface FileDefaults {
  evalSetId: string;
  now: number;
  newId: () => string;
}
