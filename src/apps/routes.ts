import type { DatabasePool } from '../db/database.ts';
import { UnavailableError } from '../errors.ts';
import { operation, type Operation } from '../http/operation.ts';
import { checkDatabase } from './store.ts';

const area = 'Service and applications';
const okSchema = { type: 'object' };

/** What the service operations need. */
interface ServiceContext {
  database: DatabasePool;
  /** Applications that this process serves, by name. */
  agents: ReadonlyMap<string, unknown>;
  version: string;
  /** False from the moment on that the process is told to stop. */
  isAccepting: () => boolean;
}

/** Service and applications: is it alive, is it ready, what does it serve. */
export const serviceRoutes = ({ database, agents, version, isAccepting }: ServiceContext): Operation[] => [
  operation({
    method: 'get',
    path: '/health',
    operationId: 'health',
    area,
    access: 'open',
    summary: 'Is the process alive',
    success: { schema: okSchema, description: 'It is.' },
    handler: async () => ({ kind: 'value', value: { status: 'ok' } }),
  }),
  operation({
    method: 'get',
    path: '/ready',
    operationId: 'ready',
    area,
    access: 'open',
    summary: 'Can the process serve requests',
    description: 'Its database answers and it has not been told to stop.',
    success: { schema: okSchema, description: 'It can.' },
    errors: { 503: 'Not now.' },
    handler: async () => {
      if (!isAccepting()) throw new UnavailableError('The service is stopping.');
      await checkDatabase(database.db);
      return { kind: 'value', value: { status: 'ready' } };
    },
  }),
  operation({
    method: 'get',
    path: '/version',
    operationId: 'version',
    area,
    access: 'open',
    summary: 'Version of the runtime',
    success: { schema: okSchema, description: 'Version of the runtime and of the language it runs on.' },
    handler: async () => ({
      kind: 'value',
      value: { version, language: 'typescript', language_version: process.versions.node },
    }),
  }),
  operation({
    method: 'get',
    path: '/list-apps',
    operationId: 'listApps',
    area,
    summary: 'List applications',
    success: { schema: { type: 'array', items: { type: 'string' } }, description: 'Their names, sorted.' },
    handler: async () => ({ kind: 'value', value: [...agents.keys()].toSorted() }),
  }),
];
