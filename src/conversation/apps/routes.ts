import { z } from 'zod';
import { InvalidError } from '../../core/errors.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { appPath } from '../../platform/http/operation/parameters.ts';
import { appInfoSchema, appListSchema, toAppInfo, toListedApp } from './app-info.ts';
import type { HostedAgent } from './hosted-agent.ts';

const area = 'Service and applications';

/** Dependencies of the operations on applications. */
interface AppContext {
  /** Applications that this process serves, by name. */
  agents: ReadonlyMap<string, HostedAgent>;
}

const listApps = operation({
  method: 'get',
  path: '/list-apps',
  operationId: 'listApps',
  scope: 'read',
  area,
  summary: 'List applications',
  owner: 'service',
  parameters: {
    query: z.object({
      relative_path: z.string().max(1_024).optional().describe('Sent by the ADK Web UI; ignored.'),
      detailed: z.boolean().default(false).describe('True: with their descriptions.'),
    }),
  },
  success: { schema: appListSchema, description: 'Their names, sorted.', example: ['harness_agent'] },
  handler: async ({ agents }: AppContext, { query }) => {
    const names = [...agents.keys()].toSorted();
    if (!query.detailed) return { kind: 'value', value: names };
    const apps = names.flatMap((name) => {
      const agent = agents.get(name);
      return agent ? [toListedApp(name, agent.describe())] : [];
    });
    return { kind: 'value', value: { apps } };
  },
});

const getAppInfo = operation({
  method: 'get',
  path: '/apps/{app_name}/app-info',
  operationId: 'getAppInfo',
  scope: 'read',
  area,
  summary: 'Describe an application',
  description: 'Tools of skills and of remote MCP servers are known in an invocation only and are left out.',
  owner: 'service',
  parameters: { path: appPath },
  success: {
    schema: appInfoSchema,
    description: 'The application and its agents.',
    example: {
      name: 'harness_agent',
      rootAgentName: 'harness_agent',
      description: 'Answers questions.',
      language: 'typescript',
      isComputerUse: false,
      agents: {
        harness_agent: {
          name: 'harness_agent',
          description: 'Answers questions.',
          instruction: 'Be brief.',
          tools: [{ functionDeclarations: [{ name: 'calculator', description: 'Computes.', parameters: {} }] }],
          sub_agents: [],
        },
      },
    },
  },
  errors: { 400: 'Its root agent asks no model.', 404: 'No such application.' },
  absent: ({ appName }) => `App not found: ${appName}`,
  handler: async ({ agents }: AppContext, { path: { appName }, principal, notFound }) => {
    const root = agents.get(appName)?.describe();
    if (!root) throw notFound();
    if (root.kind !== 'llm') throw new InvalidError('Root agent is not an LlmAgent');
    return { kind: 'value', value: toAppInfo(appName, root, principal.kind !== 'user') };
  },
});

/** Applications: list them, describe one. */
export const appOperations = [listApps, getAppInfo];
