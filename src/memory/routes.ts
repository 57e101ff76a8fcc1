import { sessionNotFound } from '../core/session.ts';
import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../core/errors.ts';
import { operation, type Operation } from '../http/operation/operation.ts';
import { ValidationFailedError } from '../http/operation/request-errors.ts';
import { addMemorySchema, memoriesSchema } from './memory.ts';
import { addSessionToMemory, searchMemories } from './memory-store.ts';

const MEMORY = '/apps/{app_name}/users/{user_id}/memory';
const area = 'Memory';
const DEFAULT_LIMIT = 20;
const MOST = 100;

const toUser = (path: Record<string, string>) => ({ appName: path['app_name'] ?? '', userId: path['user_id'] ?? '' });

/** Memory of a user: add a session, search. */
export const memoryRoutes = ({ database }: { database: DatabasePool }): Operation[] => [
  operation({
    method: 'patch',
    path: MEMORY,
    operationId: 'addSessionToMemory',
    area,
    summary: 'Add a session to the memory of its user',
    description: 'Adding it again adds what was said since.',
    body: { schema: addMemorySchema, required: true },
    errors: { 404: 'No such session.' },
    handler: async ({ path, body }) => {
      const { sessionId } = body;
      if (await addSessionToMemory(database.db, { ...toUser(path), sessionId })) return { kind: 'value', value: null };
      throw new NotFoundError(sessionNotFound(sessionId));
    },
  }),
  operation({
    method: 'get',
    path: MEMORY,
    operationId: 'searchMemory',
    area,
    summary: 'Search the memory of a user',
    description: 'Finds what holds any of the words, best match first, then newest.',
    query: [
      { name: 'query', schema: { type: 'string' }, description: 'Words to look for. Required.' },
      {
        name: 'limit',
        schema: { type: 'integer', minimum: 1, maximum: MOST },
        description: `Most memories [${DEFAULT_LIMIT}].`,
      },
    ],
    success: { schema: memoriesSchema, description: 'The memories.' },
    handler: async ({ path, query }) => {
      const { query: words, limit = DEFAULT_LIMIT } = query as { query?: string; limit?: number };
      if (words === undefined) throw new ValidationFailedError([MISSING_QUERY]);
      return { kind: 'value', value: { memories: await searchMemories(database.reads, toUser(path), words, limit) } };
    },
  }),
];

const MISSING_QUERY = { type: 'missing', loc: ['query', 'query'], msg: 'Field required', input: null };
