import type { HostedAgent } from '../apps/hosted-agent.ts';
import type { DatabasePool } from '../db/database.ts';
import { InvalidError, NotFoundError, UnavailableError } from '../core/errors.ts';
import { operation, type Operation } from '../http/operation/operation.ts';
import { appInfoSchema, appListSchema, telemetrySchema, toAppInfo, toListedApp } from '../apps/app-info.ts';
import { checkDatabase } from './service-store.ts';

const area = 'Service and applications';
const okSchema = { type: 'object' };

/** What the service operations need. */
interface ServiceContext {
  database: DatabasePool;
  /** Applications that this process serves, by name. */
  agents: ReadonlyMap<string, HostedAgent>;
  version: string;
  /** False from the moment on that the process is told to stop. */
  isAccepting: () => boolean;
}

/** Service and applications: is it alive, is it ready, what does it serve. */
export const serviceRoutes = (context: ServiceContext): Operation[] => [
  ...probeRoutes(context),
  ...appRoutes(context),
  ...telemetryRoutes(),
];

const probeRoutes = ({ database, version, isAccepting }: ServiceContext): Operation[] => [
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
    path: '/ping',
    operationId: 'ping',
    area,
    access: 'open',
    summary: 'Is the process alive',
    description: 'Another spelling of `/health`, which the AgentKit command line asks first.',
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
      await checkDatabase(database.reads);
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
];

const appRoutes = ({ agents }: ServiceContext): Operation[] => [
  operation({
    method: 'get',
    path: '/list-apps',
    operationId: 'listApps',
    area,
    summary: 'List applications',
    query: [
      { name: 'relative_path', schema: { type: 'string' }, description: 'Sent by the ADK Web UI; ignored.' },
      { name: 'detailed', schema: { type: 'boolean' }, description: 'True: with their descriptions [false].' },
    ],
    success: { schema: appListSchema, description: 'Their names, sorted.' },
    handler: async ({ query }) => {
      const names = [...agents.keys()].toSorted();
      if (query['detailed'] !== true) return { kind: 'value', value: names };
      const apps = names.flatMap((name) => {
        const agent = agents.get(name);
        return agent ? [toListedApp(name, agent.describe())] : [];
      });
      return { kind: 'value', value: { apps } };
    },
  }),
  operation({
    method: 'get',
    path: '/apps/{app_name}/app-info',
    operationId: 'getAppInfo',
    area,
    summary: 'Describe an application',
    description: 'Tools of skills and of remote MCP servers are known in an invocation only and are left out.',
    success: { schema: appInfoSchema, description: 'The application and its agents.' },
    errors: { 400: 'Its root agent asks no model.', 404: 'No such application.' },
    handler: async ({ path, principal }) => {
      const { app_name: name = '' } = path;
      const root = agents.get(name)?.describe();
      if (!root) throw new NotFoundError(`App not found: ${name}`);
      if (root.kind !== 'llm') throw new InvalidError('Root agent is not an LlmAgent');
      return { kind: 'value', value: toAppInfo(name, root, principal.kind !== 'user') };
    },
  }),
];

/** The ADK Web UI asks on every load unless it is told; this service never reports anything, whatever the choice. */
const NO_TELEMETRY = { telemetry: false };

const telemetryRoutes = (): Operation[] => [
  operation({
    method: 'get',
    path: '/config/telemetry',
    operationId: 'getTelemetry',
    area,
    summary: 'Is usage reported',
    success: { schema: telemetrySchema, description: 'Never: `false`.' },
    handler: async () => ({ kind: 'value', value: NO_TELEMETRY }),
  }),
  operation({
    method: 'post',
    path: '/config/telemetry',
    operationId: 'setTelemetry',
    area,
    summary: 'Choose whether usage is reported',
    description: 'Needs the header `X-ADK-Telemetry-Request: true`. Nothing is ever reported, so nothing is kept.',
    body: { schema: telemetrySchema, required: true },
    success: { schema: telemetrySchema, description: 'Never: `false`.' },
    errors: { 400: 'The header is missing.' },
    handler: async ({ request }) => {
      if (request.get('x-adk-telemetry-request') === 'true') return { kind: 'value', value: NO_TELEMETRY };
      throw new InvalidError('Forbidden: missing required security header');
    },
  }),
];
