import { z } from 'zod';
import { contentSchema } from '../../core/content.ts';
import { NotFoundError } from '../../core/errors.ts';
import { identifierSchema, sessionNotFound } from '../../core/session.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { userPath } from '../../platform/http/operation/parameters.ts';
import { addSessionToMemory, searchMemories } from './memory-store.ts';

const MEMORY_PATH = '/apps/{app_name}/users/{user_id}/memory';
const area = 'Memory';
const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 100;

/** Body of an addition to the memory. */
const addMemorySchema = z
  .looseObject({
    sessionId: identifierSchema.describe(
      'The session to remember; events that are remembered already stay as they are.',
    ),
  })
  .describe("Adds what was said in a session to its user's memory.");

/** Answer of a search. */
const memoriesSchema = z
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

/** Dependencies of the memory operations. */
interface MemoryContext {
  database: DatabasePool;
}

const addSession = operation({
  method: 'patch',
  path: MEMORY_PATH,
  operationId: 'addSessionToMemory',
  scope: 'write',
  area,
  summary: 'Add a session to the memory of its user',
  description: 'Adding it again adds what was said since.',
  owner: 'path',
  parameters: { path: userPath },
  body: { schema: addMemorySchema, required: true, example: { sessionId: 's1' } },
  errors: { 404: 'No such session.' },
  handler: async ({ database }: MemoryContext, { path, body: { sessionId } }) => {
    if (await addSessionToMemory(database.db, { ...path, sessionId })) return { kind: 'value', value: null };
    throw new NotFoundError(sessionNotFound(sessionId));
  },
});

const searchMemory = operation({
  method: 'get',
  path: MEMORY_PATH,
  operationId: 'searchMemory',
  load: 'heavy',
  scope: 'read',
  area,
  summary: 'Search the memory of a user',
  description: 'Finds what holds any of the words, best match first, then newest.',
  owner: 'path',
  parameters: {
    path: userPath,
    query: z.object({
      query: z.string().describe('Words to look for.'),
      limit: z.int().min(1).max(MAX_LIMIT).default(DEFAULT_LIMIT).describe('Maximum number of memories.'),
    }),
  },
  success: {
    schema: memoriesSchema,
    description: 'The memories.',
    example: {
      memories: [
        {
          author: 'user',
          timestamp: '2026-01-01T00:00:00.250000Z',
          content: { role: 'user', parts: [{ text: 'My name is Ada.' }] },
        },
      ],
    },
  },
  handler: async ({ database }: MemoryContext, { path, query }) => ({
    kind: 'value',
    value: { memories: await searchMemories(database.reads, path, query.query, query.limit) },
  }),
});

/** Memory of a user: add a session, search. */
export const memoryOperations = [addSession, searchMemory];
