import { z } from 'zod';
import type { Config } from '../../config/config.ts';
import { looseObject } from '../../core/members.ts';
import { runAsSystem } from '../../platform/context.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { listKeys } from '../../platform/http/access/key-ring.ts';
import { pageQuery } from '../../platform/http/operation/cursor.ts';
import { area } from '../../platform/http/operation/area.ts';
import { SCOPES } from '../../platform/http/operation/principal.ts';
import { readServiceState } from './service-state.ts';

export interface OperatorContext {
  config: Pick<Config, 'auth'>;
  database: DatabasePool;
  sweeps: ReadonlyMap<string, number>;
}

const room = area<OperatorContext>('Service and applications', {
  read: 'admin',
  write: 'admin',
  owner: 'service',
  load: 'heavy',
});
const text = (meaning: string) => z.string().describe(meaning);
const number = (meaning: string) => z.number().describe(meaning);
const names = (meaning: string) => z.array(z.string()).optional().describe(meaning);
const list = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.array(looseObject('One of them.', shape)).describe(meaning);

const stateSchema = z.looseObject({
  replicas: list('Processes that listen at the database, oldest first; none behind a pooler without a way past it.', {
    version: text('Its release.'),
    host: text('The name of its machine.'),
    startTime: number('Since when it listens without a break, Unix seconds.'),
  }),
  queues: list('The work that all replicas share.', {
    name: text('What waits there.'),
    waiting: number('How many wait, those that are due later included; at most 1,000 are counted.'),
    more: z.boolean().describe('Whether more than those wait.'),
    running: number('How many are worked on.'),
    oldestSeconds: number(
      'Wait of the one that was due first, of tasks among those counted; null where none waits.',
    ).nullable(),
  }),
  stranded: number(
    'Paused invocations that nothing will resume, because their tasks are gone; the 2,000 that paused last are looked at.',
  ),
  sweeps: list('Jobs of the sweep that the replica which answers has done.', {
    job: text('Its purpose.'),
    secondsAgo: number('Time since it last succeeded.'),
  }),
  keys: list('The valid keys: those of `RUNTIME_API_KEYS`, then those of the file.', {
    id: text('Its id; absent for one of `RUNTIME_API_KEYS`.').optional(),
    scopes: z.array(z.enum(SCOPES)).describe('What it may do.'),
    users: names('The only users that it acts for; absent: all.'),
    apps: names('The only applications that it may name; absent: all.'),
    expires: text('When it ends; absent: never.').optional(),
  }),
});

const getState = room.operation({
  method: 'get',
  path: '/service',
  operationId: 'getServiceState',
  summary: 'Show replicas, queues, sweeps and keys',
  success: {
    schema: stateSchema,
    description: 'The state of the service, without secrets.',
    example: {
      replicas: [{ version: '0.1.0', host: 'runtime-1', startTime: 1_767_225_600 }],
      queues: [{ name: 'invocations', waiting: 2, more: false, running: 1, oldestSeconds: 3.5 }],
      stranded: 0,
      sweeps: [{ job: 'going on with erasures', secondsAgo: 12 }],
      keys: [{ id: 'batch', scopes: ['invoke', 'read'] }],
    },
  },
  handler: async ({ config: { auth }, database, sweeps }: OperatorContext) => {
    const state = await readServiceState(database.db);
    const done = [...sweeps].map(([job, at]) => ({ job, secondsAgo: Math.round((performance.now() - at) / 1000) }));
    const { plain = [], file } = auth.keys ?? {};
    const ofFile = (await listKeys(file)).map((key) => ({ ...key, digest: undefined }));
    const keys = [...plain.map(() => ({ scopes: SCOPES })), ...ofFile];
    return { kind: 'value', value: { ...state, sweeps: done, keys } };
  },
});

const filter = (which: string) => z.string().max(256).optional().describe(`Only ${which}.`);
const time = (which: string) =>
  z.number().min(0).max(9e12).optional().describe(`Only those stored ${which}, Unix seconds.`);

const listAudit = room.operation({
  method: 'get',
  path: '/audit',
  operationId: 'listAudit',
  summary: 'List the audit',
  description:
    'The last entry first. `AUDIT` says what is added. A page looks through 10,000 entries: it may be empty and have ' +
    'a `nextCursor`.',
  parameters: {
    query: pageQuery('entries').extend({
      cursor: z
        .string()
        .regex(/^\d{1,15}$/)
        .optional()
        .describe('The `nextCursor` of the page before.'),
      decision: filter('those that are `allowed`, or `refused`'),
      caller: filter('of this user, or of the key with this id'),
      callerKind: z
        .enum(['user', 'key', 'anonymous', 'unknown'])
        .optional()
        .describe('Only those of a caller of this kind: a user and a key may have the same name.'),
      operation: filter('of this `operationId`'),
      appName: filter('about this application'),
      userId: filter('about this user'),
      from: time('from then on'),
      to: time('before then'),
    }),
  },
  success: {
    schema: z.looseObject({
      items: list('The entries of this page.', {
        time: number('When it was stored, Unix seconds.'),
        decision: text('`allowed`: it was let begin, whatever came of it; or `refused`.'),
        callerKind: text('`user`, `key`, `anonymous`, or `unknown`: refused before it was known.'),
        caller: text('User of the token, or id of the key.').optional(),
        address: text('Address of the client.').optional(),
        operation: text('Its `operationId`, where it was known.').optional(),
        resource: z.record(z.string(), z.string()).describe('Names of its path; user and application of its content.'),
        reason: text('Why it was refused.').optional(),
        requestId: text('The `X-Request-Id` of the answer.'),
        leftOut: number('Refusals of the same caller before it that were not kept.'),
      }),
      nextCursor: text('The `cursor` of the next page; absent on the last one.').optional(),
    }),
    description: 'The entries.',
    example: {
      items: [{ time: 1, decision: 'allowed', callerKind: 'key', resource: {}, requestId: '7d', leftOut: 0 }],
    },
  },
  handler: async ({ database }, { query }) => {
    const p_wanted = JSON.stringify(query);
    const find = () => callFunction<{ page: object }>(database.reads, 'list_audit', { p_wanted });
    return { kind: 'value', value: (await runAsSystem(find)).page };
  },
});

export const operatorOperations = [getState, listAudit];
