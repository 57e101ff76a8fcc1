import { harnessOverridesSchema } from '../agent/definition/overrides.ts';
import { z } from 'zod';
import { contentSchema, jsonObject } from '../core/content.ts';
import { identifierSchema } from '../core/session.ts';

const turn = {
  newMessage: contentSchema.nullish().describe('What the user says; may be absent only when an invocation goes on.'),
  stateDelta: jsonObject.nullish().describe("Merged into the state with the user's event."),
  invocationId: identifierSchema
    .nullish()
    .describe('An ended invocation to go on with, for instance after a confirmation.'),
  customMetadata: jsonObject.nullish().describe("Kept with the user's event."),
  harness: harnessOverridesSchema.nullish(),
};

export const startInvocationSchema = z.looseObject(turn).describe('One prompt of a session.');

export const runRequestSchema = z
  .looseObject({
    appName: identifierSchema,
    userId: identifierSchema,
    sessionId: identifierSchema.describe('An existing session.'),
    ...turn,
    streaming: z.boolean().nullish().describe('True: pieces of text are sent as they come, marked `partial`.'),
    functionCallEventId: z.string().nullish().describe('The event whose function call this message answers.'),
  })
  .describe('One prompt, as the ADK clients send it.');

export const rewindSchema = z
  .looseObject({ rewindBeforeInvocationId: identifierSchema.describe('The first invocation to undo.') })
  .describe('Takes a session back to before an invocation.');

export type StartInvocation = z.infer<typeof startInvocationSchema>;
