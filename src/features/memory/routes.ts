import { z } from 'zod';
import { contentSchema } from '../../core/content.ts';
import { InvalidError, NotFoundError } from '../../core/errors.ts';
import { identifierSchema, sessionNotFound } from '../../core/session.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { area } from '../../platform/http/operation/area.ts';
import { userPath } from '../../platform/http/operation/parameters.ts';
import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import { idempotencyHeaders, once } from '../../conversation/idempotency/idempotency.ts';
import { MEMORY_TOPIC, type UserMemory } from '../../invocations/memory.ts';
import { findVector, type MemoryJobContext, openEmbedders, runMemoryJobs } from './embed-memories.ts';
import { persist } from '../../invocations/persist.ts';
import { memoryQuerySchema } from './memory-query.ts';
import {
  addToMemory,
  deleteMemories,
  embedLater,
  MAX_FOUND_BYTES,
  MAX_MEMORY,
  MAX_RANKED,
  searchMemories,
} from './memory-store.ts';
import { looseObject } from '../../core/members.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { memories } from '../../platform/db/schema/schema.ts';

const MEMORY_PATH = '/apps/{app_name}/users/{user_id}/memory';
const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 100;

const addMemorySchema = looseObject("Adds what was said in a session to its user's memory.", {
  sessionId: identifierSchema.describe('The session to remember; events that are remembered already stay as they are.'),
});

const memoriesSchema = looseObject('What was said in earlier sessions, best match first.', {
  memories: z
    .array(
      z.looseObject({
        author: z.string().describe('`user` or the name of the agent that said it.'),
        timestamp: z.string().describe('When it was said, ISO 8601.'),
        content: contentSchema.describe('What was said, as the event has it.'),
      }),
    )
    .describe('Best match first; `[]` where nothing matches.'),
});

export interface MemoryContext {
  database: DatabasePool;
  notifications: Notifications;
  agents: ReadonlyMap<string, HostedAgent>;
  log: Log;
  memory?: UserMemory | undefined;
}

const room = area<MemoryContext>('Memory', { read: 'read', write: 'write', owner: 'path' });

const addErrors = { 404: 'No such session.' };

const addSession = room.operation({
  method: 'patch',
  path: MEMORY_PATH,
  operationId: 'addSessionToMemory',
  wire: 'ADK',
  summary: 'Add a session to the memory of its user',
  description:
    'Adding it again adds what was said since, and goes on where an addition broke off. ' +
    `An event of more than ${MAX_MEMORY} bytes is remembered by the first ${MAX_MEMORY} characters of its text.`,
  parameters: { path: userPath, headers: idempotencyHeaders },
  body: { schema: addMemorySchema, required: true, example: { sessionId: 's1' } },
  errors: addErrors,
  handler: async (context, call) => {
    const key = { ...call.path, sessionId: call.body.sessionId };
    const embeds = context.agents.get(key.appName)?.embedder !== undefined;
    const text = await once(context, { operationId: 'addSessionToMemory', errors: addErrors }, call, async (inside) => {
      const last = await addToMemory(inside.database.db, key, 0, embeds);
      if (last === undefined) throw new NotFoundError(sessionNotFound(key.sessionId));
      return 'null';
    });
    // Each batch of events is committed separately, so it stays in memory even if a later batch fails.
    for (let last: number | null | undefined = 0; last != null && !call.response.destroyed; ) {
      last = await addToMemory(context.database.db, key, last, embeds);
    }
    if (embeds) context.notifications.publish(MEMORY_TOPIC);
    return { kind: 'json', text };
  },
});

const searchMemory = room.operation({
  method: 'get',
  path: MEMORY_PATH,
  operationId: 'searchMemory',
  load: 'heavy',
  summary: 'Search the memory of a user',
  description:
    `Finds what holds any of the words, best match first, then newest; of more than ${MAX_RANKED} matches, or ` +
    `8 MiB of their words, the newest are looked at. Where the application asks for embeddings, what has a like ` +
    `meaning is found too. ` +
    `Fewer than \`limit\` where they are more than ${MAX_FOUND_BYTES} bytes together.`,
  parameters: {
    path: userPath,
    query: z.object({
      query: memoryQuerySchema,
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
  handler: async (context, { path, query: { query, limit } }) => {
    const embedder = context.agents.get(path.appName)?.embedder;
    const near = embedder && (await findVector(context, embedder, path, query));
    const found = await searchMemories(context.database.reads, path, query, limit, near);
    const texts = found.flatMap((text, place) => (place === 0 ? [text] : [',', text]));
    return { kind: 'stream', text: { first: ['{"memories":[', ...texts, ']}'] } };
  },
});

/** Maximum number of memories that one search returns to a model. */
const TOOL_LIMIT = 20;
/** Milliseconds of retrying a tool's search while the database is not available. */
const PATIENCE_MS = 2_000;

const toUserMemory = (context: Pick<MemoryContext, 'database' | 'agents' | 'log'>): UserMemory => ({
  search: async (user, query) => {
    const { error } = memoryQuerySchema.safeParse(query);
    if (error) throw new InvalidError(`The words cannot be looked for: ${error.issues[0]?.message}.`);
    const embedder = context.agents.get(user.appName)?.embedder;
    const near = embedder && (await findVector(context, embedder, user, query));
    return persist(() => searchMemories(context.database.db, user, query, TOOL_LIMIT, near), PATIENCE_MS);
  },
});

export const memoryFeature = {
  name: 'memory',
  operations: [addSession, searchMemory],
  provides: (context) => ({ memory: toUserMemory(context) }),
  open: ({ database, agents, log }) => openEmbedders(database, agents, log),
  workers: [runMemoryJobs],
  userTables: [
    {
      table: memories,
      // Embeddings are not imported but computed again, because imported vectors could be malformed.
      setByRuntime: { embedding: 'null', embedding_model: 'null' },
    },
  ],
  onImport: async ({ agents }, tx, user, tables) => {
    if (tables.has('memories') && agents.get(user.appName)?.embedder) await embedLater(tx, user);
  },
  forgetSessions: async (_context, tx, keys, { copiesToo }) => {
    if (copiesToo) for (const key of keys) await deleteMemories(tx, key);
  },
} satisfies Feature<MemoryContext & MemoryJobContext>;
