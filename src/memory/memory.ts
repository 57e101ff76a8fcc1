import { z } from 'zod';
import { contentSchema } from '../core/content.ts';
import { identifierSchema } from '../core/session.ts';

export const addMemorySchema = z
  .looseObject({ sessionId: identifierSchema.describe('The session to remember.') })
  .describe("Adds what was said in a session to its user's memory.");

export const memoriesSchema = z
  .looseObject({
    memories: z.array(
      z.looseObject({
        author: z.string().describe('Who said it.'),
        timestamp: z.string().describe('When it was said, ISO 8601.'),
        content: contentSchema,
      }),
    ),
  })
  .describe('What was said in earlier sessions, best match first.');
