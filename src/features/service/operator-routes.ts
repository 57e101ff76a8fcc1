import { z } from 'zod';
import type { Config } from '../../config/config.ts';
import { looseObject } from '../../core/members.ts';
import { runAsSystem } from '../../platform/context.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { listKeys } from '../../platform/http/access/key-ring.ts';
import { listEntries } from '../../platform/http/audit/audit-store.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { SCOPES } from '../../platform/http/operation/principal.ts';

/** The parts of the process that its operators look at. */
interface OperatorContext {
  config: Config;
  database: DatabasePool;
  sweeps: ReadonlyMap<string, number>;
}

const forOperators = { method: 'get', scope: 'admin', owner: 'service' } as const;
const text = (meaning: string) => z.string().describe(meaning);
const number = (meaning: string) => z.number().describe(meaning);

const replica = looseObject('A process that listens at the database.', {
  version: text('Its release.'),
  host: text('The name of its machine.'),
  startTime: number('Since when it listens without a break, Unix seconds.'),
});
const queue = looseObject('Work that all replicas share.', {
  name: text('What waits there.'),
  waiting: number('How many wait, those that are due later included.'),
  running: number('How many are worked on.'),
  oldestSeconds: number('How long the one that was due first has waited; null where none waits.').nullable(),
});
const sweep = looseObject('A job of the sweep of the replica that answers.', {
  job: text('Its purpose.'),
  secondsAgo: number('Time since it last succeeded, or had nothing to do.'),
});
const stateSchema = z.looseObject({
  replicas: z.array(replica).describe('Oldest first; none behind a pooler without `DATABASE_DIRECT_URL`.'),
  queues: z.array(queue).describe('By name.'),
  sweeps: z.array(sweep).describe('Those that it has done since its start.'),
});

const getState = operation({
  ...forOperators,
  path: '/service',
  operationId: 'getServiceState',
  load: 'heavy',
  summary: 'Show replicas, queues and sweeps',
  success: {
    schema: stateSchema,
    description: 'The state of the service.',
    example: {
      replicas: [{ version: '0.1.0', host: 'runtime-1', startTime: 1_767_225_600 }],
      queues: [{ name: 'invocations', waiting: 2, running: 1, oldestSeconds: 3.5 }],
      sweeps: [{ job: 'going on with erasures', secondsAgo: 12 }],
    },
  },
  handler: async ({ database, sweeps }: OperatorContext) => {
    const state = await runAsSystem(() => callFunction<object>(database.db, 'service_state', {}));
    const secondsSince = (at: number) => Math.round((performance.now() - at) / 1000);
    const done = [...sweeps].map(([job, at]) => ({ job, secondsAgo: secondsSince(at) }));
    return { kind: 'value', value: { ...state, sweeps: done } };
  },
});

const filter = (meaning: string) => z.string().max(256).optional().describe(meaning);
const time = (meaning: string) => z.number().min(0).max(253_402_300_799).optional().describe(meaning);
const decision = z.enum(['allowed', 'refused']);
const entry = looseObject('A decision on a request.', {
  time: number('When it was stored, Unix seconds.'),
  decision: decision.describe('`allowed`: it was let begin, whatever came of it.'),
  callerKind: z.enum(['unknown', 'anonymous', 'key', 'user']).describe('`unknown`: refused before it was known.'),
  caller: text('User of the token, or id of the key.').nullable(),
  address: text('Address of the client.').nullable(),
  operation: text('Its `operationId`, where it was known.').nullable(),
  resource: z.record(z.string(), z.string()).describe('What its path names, and user and application of its content.'),
  reason: text('Why it was refused.').nullable(),
  requestId: text('The `X-Request-Id` of the answer.'),
  leftOut: number('Refusals of the same caller before it that were not kept.'),
});
const exampleEntry: z.output<typeof entry> = {
  time: 1_767_225_600,
  decision: 'allowed',
  callerKind: 'key',
  caller: 'batch',
  address: '192.0.2.1',
  operation: 'deleteSession',
  resource: { appName: 'harness_agent', userId: 'u1', sessionId: 's1' },
  reason: null,
  requestId: '7d0c',
  leftOut: 0,
};

const listAudit = operation({
  ...forOperators,
  path: '/audit',
  operationId: 'listAudit',
  load: 'heavy',
  summary: 'List the audit',
  description: 'The last entry first; nothing is added where `AUDIT` is `off`.',
  parameters: {
    query: pageQuery('entries').extend({
      decision: decision.optional().describe('Only these.'),
      caller: filter('Only of this user, or of the key with this id.'),
      operation: filter('Only of this `operationId`.'),
      appName: filter('Only about this application.'),
      userId: filter('Only about this user.'),
      from: time('Only those stored from then on, Unix seconds.'),
      to: time('Only those stored before then, Unix seconds.'),
    }),
  },
  success: {
    schema: looseObject('A page of the audit.', {
      items: z.array(entry).describe('Its entries.'),
      nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
    }),
    description: 'The entries.',
    example: { items: [exampleEntry] },
  },
  handler: async ({ database }: OperatorContext, { query: { limit, cursor, ...wanted } }) => {
    const place = toPlace(cursor);
    // The cursor of another list is a place before all entries.
    const before = place && (Number.isSafeInteger(Number(place.id)) ? Number(place.id) : 0);
    const found = await runAsSystem(() => listEntries(database.reads, wanted, before, limit + 1));
    const listed = found.map(({ id, time: at, ...row }) => ({
      ...row,
      place: { time: at.toISOString().replace('Z', '000Z'), id: String(id) },
    }));
    const page = toPage(listed, limit, ({ place: { time: at }, ...row }) => ({ time: Date.parse(at) / 1000, ...row }));
    return { kind: 'value', value: page };
  },
});

const key = looseObject('A key.', {
  id: text('Absent for a key of `RUNTIME_API_KEYS`.').optional(),
  scopes: z.array(z.enum(SCOPES)).describe('What it may do.'),
  users: z.array(z.string()).optional().describe('The only users that it acts for; absent: all.'),
  apps: z.array(z.string()).optional().describe('The only applications that it may name; absent: all.'),
  expires: text('When it ends; absent: never.').optional(),
});

const listAllKeys = operation({
  ...forOperators,
  path: '/keys',
  operationId: 'listKeys',
  summary: 'List the keys, without secrets',
  description: 'Those of `RUNTIME_API_KEYS`, then those of the file; none where callers have other credentials.',
  success: { schema: z.array(key), description: 'The keys.', example: [{ id: 'batch', scopes: ['invoke', 'read'] }] },
  errors: { 503: 'The file of keys cannot be read for now.' },
  handler: async ({ config: { auth } }: OperatorContext) => {
    const [plain, file] = auth.mode === 'key' ? [auth.keys, auth.file] : [[], undefined];
    return { kind: 'value', value: [...plain.map(() => ({ scopes: SCOPES })), ...(await listKeys(file))] };
  },
});

/** The service as its operators see it: replicas and queues, the audit, keys without secrets. */
export const operatorOperations = [getState, listAudit, listAllKeys];
