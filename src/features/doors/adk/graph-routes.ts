import { z } from 'zod';
import { NotFoundError } from '../../../core/errors.ts';
import { area } from '../../../platform/http/operation/area.ts';
import { appPath } from '../../../platform/http/operation/parameters.ts';
import type { AgentDescription } from '../../../conversation/apps/agent-description.ts';
import { findAgentAt, structureNodeSchema, toDot, toStructure } from './graph.ts';

const DEV_APP_PATH = '/dev/apps/{app_name}';

interface GraphContext {
  agents: ReadonlyMap<string, { describe(): AgentDescription }>;
}

const room = area<GraphContext>('Debugging (development server)', {
  read: 'develop',
  write: 'develop',
  owner: 'service',
  wire: 'ADK',
});

const absentApp = ({ appName }: { appName: string }) => `App not found: ${appName}`;

const dotSrc = z.string().describe('The graph in the DOT language of Graphviz.');
const exampleDot = 'digraph "harness_agent" {\n"harness_agent" [label="✦ harness_agent"]\n}';
const darkMode = z.boolean().default(false).describe('Colours for a dark page.');

const getAppStructure = room.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/build_graph`,
  operationId: 'getAppStructure',
  summary: 'Get the structure of an application',
  description: 'Its agents and their tools. Tools of MCP servers and of skills are known in an invocation only.',
  parameters: { path: appPath },
  success: {
    schema: z.looseObject({
      name: z.string().describe('The application.'),
      root_agent: structureNodeSchema.describe('The agent that gets the prompt.'),
    }),
    description: 'The root agent with its tools and the agents below it.',
    example: {
      name: 'harness_agent',
      root_agent: {
        name: 'harness_agent',
        type: 'agent',
        description: 'Answers questions.',
        model: 'offline',
        tools: [{ name: 'calculator', type: 'tool' }],
        sub_agents: [],
      },
    },
  },
  errors: { 404: 'No such application.' },
  absent: absentApp,
  handler: async ({ agents }, { path: { appName }, notFound }) => {
    const agent = agents.get(appName);
    if (!agent) throw notFound();
    return { kind: 'value', value: { name: appName, root_agent: toStructure(agent.describe()) } };
  },
});

const getAppGraphs = room.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/build_graph_image`,
  operationId: 'getAppGraphs',
  summary: 'Draw an application or one of its agents',
  description: 'In the DOT language of Graphviz, under its path (the root has the empty one) and as `dotSrc`.',
  parameters: {
    path: appPath,
    query: z.object({
      dark_mode: darkMode,
      node: z.string().max(1_024).default('').describe('Path of names to an agent.'),
    }),
  },
  success: {
    schema: z.looseObject({ dotSrc }).describe('`dotSrc`, and an object with `dotSrc` under the path of the agent.'),
    description: 'The graph, twice.',
    example: { dotSrc: exampleDot, '': { dotSrc: exampleDot } },
  },
  errors: { 404: 'No such application or agent.' },
  absent: absentApp,
  handler: async ({ agents }, { path, query: { node, dark_mode: dark }, notFound }) => {
    const root = agents.get(path.appName);
    if (!root) throw notFound();
    const agent = findAgentAt(root.describe(), node);
    if (!agent) throw new NotFoundError(`Node not found: ${node}`);
    const graph = { dotSrc: toDot(agent, { dark }) };
    return { kind: 'value', value: { [node]: graph, ...graph } };
  },
});

const getAppGraph = room.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/graph`,
  operationId: 'getAppGraph',
  summary: 'Draw an application',
  parameters: { path: appPath, query: z.object({ dark_mode: darkMode }) },
  success: { schema: z.looseObject({ dotSrc }), description: 'The graph.', example: { dotSrc: exampleDot } },
  errors: { 404: 'No such application.' },
  absent: absentApp,
  handler: async ({ agents }, { path, query, notFound }) => {
    const agent = agents.get(path.appName);
    if (!agent) throw notFound();
    return { kind: 'value', value: { dotSrc: toDot(agent.describe(), { dark: query.dark_mode }) } };
  },
});

const getBuilderConfig = room.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/builder`,
  operationId: 'getBuilderConfig',
  summary: "Get an application's configuration for the visual builder",
  description: 'Always empty, which switches the builder off: an agent is described by its deployment.',
  parameters: { path: appPath },
  success: { schema: z.string(), description: 'Nothing.', example: '', mediaType: 'text/plain' },
  handler: async (_context, { response }) => {
    response.writeHead(200, { 'content-type': 'text/plain', 'content-length': 0 }).end();
    return { kind: 'sent' };
  },
});

/** Operations on an application's graphs, available only if the development UI is enabled. */
export const graphOperations = [getAppStructure, getAppGraphs, getAppGraph, getBuilderConfig];
