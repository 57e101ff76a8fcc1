import { z } from 'zod';
import type { DatabasePool } from '../../platform/db/database.ts';
import { area } from '../../platform/http/operation/area.ts';
import { appPath, pageSize, userPath } from '../../platform/http/operation/parameters.ts';
import { deleteHold, type Hold, holdSchema, listHolds, saveHold, setHoldSchema } from './hold-store.ts';
import type { Feature } from '../../platform/feature/feature.ts';

export interface HoldContext {
  database: DatabasePool;
}

const room = area<HoldContext>('Service and applications', {
  read: 'admin',
  write: 'admin',
  owner: 'path',
  isForKeys: true,
});

const HOLD_PATH = '/apps/{app_name}/users/{user_id}/hold';
const DEFAULT_LIMIT = 1_000;
const exampleHold: Hold = {
  appName: 'harness_agent',
  userId: 'u1',
  sessionId: null,
  reason: 'Case 4711',
  createTime: 1_795_200_809.5,
};

const setHold = room.operation({
  method: 'put',
  path: HOLD_PATH,
  operationId: 'setLegalHold',
  isForFormerApps: true,
  summary: 'Set a legal hold',
  description:
    'On all that a user has, or on one session. Erasure, deletion and retention are refused with 409 until it is ' +
    'removed.',
  parameters: { path: userPath },
  body: { schema: setHoldSchema, required: true, example: { reason: exampleHold.reason } },
  handler: async ({ database }, { path, body }) => {
    const key = { ...path, sessionId: body.sessionId ?? undefined };
    await database.transaction((tx) => saveHold(tx, key, body.reason));
  },
});

const removeHold = room.operation({
  method: 'delete',
  path: HOLD_PATH,
  operationId: 'removeLegalHold',
  summary: 'Remove a legal hold',
  description: 'Removing what is not there succeeds too.',
  parameters: {
    path: userPath,
    query: z.object({
      sessionId: z.string().min(1).max(256).optional().describe('The session [the hold on all that the user has].'),
    }),
  },
  handler: async ({ database }, { path, query }) => {
    await deleteHold(database.db, { ...path, sessionId: query.sessionId });
  },
});

const listAll = room.operation({
  method: 'get',
  path: '/apps/{app_name}/holds',
  operationId: 'listLegalHolds',
  load: 'read',
  summary: 'List the legal holds of an application',
  owner: 'service',
  parameters: { path: appPath, query: z.object({ limit: pageSize('Maximum number [1000].').default(DEFAULT_LIMIT) }) },
  success: { schema: z.array(holdSchema), description: 'By user, then by session.', example: [exampleHold] },
  handler: async ({ database }, { path, query }) => {
    return { kind: 'value', value: await listHolds(database.reads, path.appName, query) };
  },
});

const operations = [setHold, removeHold, listAll];

export const holdFeature = { name: 'holds', operations } satisfies Feature<HoldContext>;
