import { z } from 'zod';
import type { DatabasePool } from '../../platform/db/database.ts';
import { area } from '../../platform/http/operation/area.ts';
import { userPath } from '../../platform/http/operation/parameters.ts';
import { findUserStorage } from './storage-store.ts';
import type { Feature } from '../../platform/feature/feature.ts';

const room = area<{ database: DatabasePool }>('Service and applications', {
  read: 'read',
  write: 'write',
  owner: 'path',
});

const storageSchema = z
  .object({
    bytes: z.int().describe('Sum of the three.'),
    maxBytes: z.int().nullable().describe('MAX_USER_BYTES; null where there is no limit.'),
    eventBytes: z.int().describe('Events and states of all sessions, and starts that wait, as JSON.'),
    artifactBytes: z.int().describe('All versions of artifacts with their metadata.'),
    memoryBytes: z.int().describe('Memories as JSON with their vectors, without the index of their words.'),
  })
  .describe('Bytes that a user keeps in an application.');

const showStorage = room.operation({
  method: 'get',
  path: '/apps/{app_name}/users/{user_id}/storage',
  operationId: 'getUserStorage',
  summary: 'Show how much a user keeps',
  description:
    'Each copy, of a fork or a rewind, counts as much as what it was made of. Writes that would add to more than ' +
    '`maxBytes` are refused with 413; deletions are not.',
  parameters: { path: userPath },
  success: {
    schema: storageSchema,
    description: 'What is counted.',
    example: { bytes: 1_800, maxBytes: 1_073_741_824, eventBytes: 1_000, artifactBytes: 700, memoryBytes: 100 },
  },
  handler: async ({ database }: { database: DatabasePool }, { path }) => {
    const storage = await findUserStorage(database.reads, path);
    return { kind: 'value', value: { ...storage, maxBytes: database.db.limits.maxUserBytes } };
  },
});

const operations = [showStorage];

export const storageFeature = { name: 'storage', operations } satisfies Feature<{ database: DatabasePool }>;
