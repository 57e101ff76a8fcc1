import { z } from 'zod';
import { harnessOverridesSchema } from '../../agent/definition/overrides.ts';

const mode = z.enum(['stored', 'live']).nullish();

export const replayRequestSchema = z
  .looseObject({
    modelExecutionMode: mode.describe('Where the answers of the model come from [`stored`]; `live` costs money.'),
    toolExecutionMode: mode.describe(
      'Where the answers of tools come from [`stored`]; `live` runs them, with what they do elsewhere.',
    ),
    maxLiveTokens: z
      .int()
      .min(0)
      .nullish()
      .describe('What the calls of the live model may use together; one that may use more is not made [no limit].'),
    harness: harnessOverridesSchema
      .nullish()
      .describe('Changes of the deployed agent to try, beside those that the invocation had itself.'),
  })
  .describe('How to replay an invocation: at least one of model and tools from what is stored.');

export const replayDifferenceSchema = z
  .looseObject({
    event: z.int().describe('Place of the event within the invocation, from 0; the prompt counts.'),
    sequence: z.int().optional().describe('Its place in the session, from 1; absent for one that is not stored.'),
    eventId: z.string().optional().describe('Its id; absent for one that is not stored.'),
    path: z
      .string()
      .describe(
        'JSON pointer (RFC 6901) within the event, or from `/request` on within what the model was given for it: ' +
          '`instruction`, `tools`, `modelName`, `sampling`, `outputSchema`, `hooks`, `contents`. Empty where one side has no such event.',
      ),
    before: z.unknown().describe('The stored value; `{digest}` where only that is kept; shortened where it is long.'),
    after: z.unknown().describe('The value now.'),
  })
  .describe('The first place where a replay is not what was stored.');

export const replayBreakSchema = z
  .looseObject({
    kind: z
      .enum(['declared', 'between_invocations', 'undeclared'])
      .describe(
        '`declared`: a summary, a rewind, a refused message or a late response changed earlier contents, or ' +
          '`read_result` was added. `between_invocations`: the instruction or the tools are not those of the last ' +
          'invocation. `undeclared`: all others.',
      ),
    agent: z.string().describe('The agent whose request it is.'),
    part: z.enum(['model', 'instruction', 'tools', 'contents']).describe('The part in which it stops being alike.'),
    why: z.string().describe('What changed: names of placeholders or tools, or what replaced earlier contents.'),
    count: z.int().describe('Number of requests with this break.'),
    sequence: z
      .int()
      .optional()
      .describe('Place in the session, from 1, of the event of the first of these calls; absent if it is not stored.'),
    eventId: z.string().optional().describe('Its id; absent for one that is not stored.'),
  })
  .describe('A break: a request that does not begin with the one before it of the same agent and branch.');

export const replaySchema = z
  .looseObject({
    status: z
      .enum(['same', 'different', 'stopped', 'not_compared'])
      .describe(
        '`stopped`: no difference was found before it could not go on. `not_compared`: none was found, and something ' +
          'that models were given was not compared; `notes` say what.',
      ),
    events: z.int().describe('Number of events of the agent that were compared.'),
    liveModelCalls: z.int().describe('Number of calls of a live model.'),
    liveTokens: z.int().optional().describe('Tokens that those calls used.'),
    liveToolCalls: z.int().describe('Number of tools that were really run.'),
    difference: replayDifferenceSchema.optional().describe('The first difference; absent where there is none.'),
    eventDifference: replayDifferenceSchema
      .optional()
      .describe('The first difference in an event, where the very first one is in what a model was given.'),
    stopped: z.string().optional().describe('Why it did not go on to the end.'),
    output: z
      .looseObject({
        before: z.string().describe('The stored one.'),
        after: z.string().describe('That of the replay.'),
      })
      .describe('The last text of the agent.'),
    breaks: z
      .array(replayBreakSchema)
      .optional()
      .describe('Breaks of the prompt cache, the first 100 that differ in kind, agent, part or why; absent: none.'),
    notes: z.array(z.string()).describe('What this replay did not compare, and which calls it did not make.'),
  })
  .describe('What came of a replay.');
