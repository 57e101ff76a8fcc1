import { sql } from 'drizzle-orm';
import { z } from 'zod';
import { UnavailableError } from '../../core/errors.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { type Principal, SCOPES } from '../../platform/http/operation/principal.ts';
import { type OperatorContext, operatorOperations } from './operator-routes.ts';
import { measureQueues, type StateContext } from './service-state.ts';
import type { Feature } from '../../platform/feature/feature.ts';

const open = { area: 'Service and applications', scope: 'none', owner: 'open' } as const;

export interface ServiceContext {
  database: DatabasePool;
  version: string;
  /** False once shutdown has begun. */
  isAccepting: () => boolean;
}

const health = operation({
  method: 'get',
  path: '/health',
  operationId: 'health',
  wire: 'ADK',
  ...open,
  summary: 'Is the process alive',
  success: {
    schema: z.looseObject({ status: z.literal('ok').describe('Always `ok`.') }),
    description: 'It is.',
    example: { status: 'ok' },
  },
  handler: async () => ({ kind: 'value', value: { status: 'ok' } }),
});

const ready = operation({
  method: 'get',
  path: '/ready',
  operationId: 'ready',
  wire: 'probes',
  ...open,
  summary: 'Can the process serve requests',
  description: 'Its database answers and it has not been told to stop.',
  success: {
    schema: z.looseObject({ status: z.literal('ready').describe('Always `ready`; otherwise the status is 503.') }),
    description: 'It can.',
    example: { status: 'ready' },
  },
  errors: { 503: 'Not now.' },
  handler: async ({ database, isAccepting }: ServiceContext) => {
    if (!isAccepting()) throw new UnavailableError('The service is stopping.');
    // Fails if the database is not available, or was never migrated.
    await database.reads.execute(sql`select from agent_runtime_migrations limit 1`);
    return { kind: 'value', value: { status: 'ready' } };
  },
});

const version = operation({
  method: 'get',
  path: '/version',
  operationId: 'version',
  wire: 'ADK',
  ...open,
  summary: 'Version of the runtime',
  success: {
    schema: z.looseObject({
      version: z.string().describe('Release of the runtime.'),
      language: z.string().describe('What it is written in: always `typescript`.'),
      language_version: z.string().describe('Version of the Node that it runs on.'),
    }),
    description: 'Version of the runtime and of the language it runs on.',
    example: { version: '0.1.0', language: 'typescript', language_version: '24.21.0' },
  },
  handler: async (context: ServiceContext) => ({
    kind: 'value',
    value: { version: context.version, language: 'typescript', language_version: process.versions.node },
  }),
});

const callerSchema = z.object({
  kind: z.enum(['anonymous', 'key', 'user']).describe('`anonymous` in mode `local`, where nobody is asked.'),
  id: z.string().optional().describe('The id of the key, or the user of the token.'),
  scopes: z.array(z.enum(SCOPES)).describe('What the credential may do.'),
  users: z.array(z.string()).optional().describe('The only users that it acts for; absent: all.'),
  apps: z.array(z.string()).optional().describe('The only applications that it may name; absent: all.'),
  expireTime: z.number().optional().describe('When it ends, Unix seconds; absent: not known, or never.'),
});

const getCaller = operation({
  method: 'get',
  path: '/caller',
  operationId: 'getCaller',
  area: 'Service and applications',
  scope: 'read',
  owner: 'service',
  summary: 'Show what the credential may do',
  description: 'Its own scopes and bounds, so that a page offers only what will be allowed.',
  success: {
    schema: callerSchema,
    description: 'The caller as the service knows it, without secrets.',
    example: { kind: 'key', id: 'batch', scopes: ['invoke', 'read'], users: ['u1'] },
  },
  handler: async (_context, { principal }) => ({ kind: 'value', value: toCaller(principal) }),
});

function toCaller(principal: Principal): z.infer<typeof callerSchema> {
  const { kind, scopes, apps, expiresAt } = principal;
  const id = kind === 'key' ? principal.id : kind === 'user' ? principal.userId : undefined;
  const users = kind === 'key' ? principal.users : kind === 'user' ? [principal.userId] : undefined;
  return {
    kind,
    ...(id !== undefined && { id }),
    scopes: SCOPES.filter((scope) => scopes.has(scope)),
    ...(users && { users: [...users] }),
    ...(apps && { apps: [...apps] }),
    ...(expiresAt !== undefined && { expireTime: expiresAt / 1000 }),
  };
}

const operations = [health, ready, version, getCaller];

export const serviceFeature = {
  name: 'service',
  operations: [...operations, ...operatorOperations],
  // The AgentKit command line requests this path first.
  aliases: { '/ping': ['health'] },
  workers: [measureQueues],
} satisfies Feature<ServiceContext & OperatorContext & StateContext>;
