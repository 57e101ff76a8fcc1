import { z } from 'zod';
import { contentSchema } from '../../core/content.ts';
import { identifierSchema } from '../../core/session.ts';

/** Body of an addition to the memory. */
export const addMemorySchema = z
  .looseObject({
    sessionId: identifierSchema.describe(
      'The session to remember; events that are remembered already stay as they are.',
    ),
  })
  .describe("Adds what was said in a session to its user's memory.");

/** Answer of a search. */
export const memoriesSchema = z
  .looseObject({
    memories: z
      .array(
        z.looseObject({
          author: z.string().describe('`user` or the name of the agent that said it.'),
          timestamp: z.string().describe('When it was said, ISO 8601.'),
          content: contentSchema.describe('What was said, as the event has it.'),
        }),
      )
      .describe('Best match first; `[]` where nothing matches.'),
  })
  .describe('What was said in earlier sessions, best match first.');
