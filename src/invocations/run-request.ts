import { harnessOverridesSchema } from '../agent/definition/overrides.ts';
import { z } from 'zod';
import { contentSchema, freeForm } from '../core/content.ts';
import { text } from '../core/members.ts';
import { identifierSchema } from '../core/session.ts';

const turn = {
  newMessage: contentSchema.nullish().describe('What the user says; may be absent only when an invocation goes on.'),
  stateDelta: freeForm("Merged into the state with the user's event."),
  invocationId: identifierSchema
    .nullish()
    .describe('An ended invocation to go on with, for instance after a confirmation.'),
  customMetadata: freeForm("Kept with the user's event."),
  harness: harnessOverridesSchema
    .nullish()
    .describe('Changes of the deployed agent for this invocation only; what is left out stays as deployed.'),
};

export const startInvocationSchema = z.looseObject(turn).describe('One prompt of a session.');

export const runRequestSchema = z
  .looseObject({
    appName: identifierSchema.describe('A name of `/list-apps`.'),
    userId: identifierSchema.describe('The owner of the session; with a user-pool token its own user.'),
    sessionId: identifierSchema.describe('An existing session.'),
    ...turn,
    streaming: z
      .boolean()
      .nullish()
      .describe('True: `/run_sse` sends text as it comes, in events marked `partial` [false]. `/run` ignores it.'),
    functionCallEventId: text('The event whose function call this message answers.'),
  })
  .describe('One prompt, as the ADK clients send it.');

export const rewindSchema = z
  .looseObject({ rewindBeforeInvocationId: identifierSchema.describe('The first invocation to undo.') })
  .describe('Takes a session back to before an invocation.');

export type StartInvocation = z.infer<typeof startInvocationSchema>;
