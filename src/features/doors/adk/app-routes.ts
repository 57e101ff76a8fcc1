import { z } from 'zod';
import { InvalidError } from '../../../core/errors.ts';
import { area } from '../../../platform/http/operation/area.ts';
import { appPath } from '../../../platform/http/operation/parameters.ts';
import { type AgentDescription, type HostedAgent, listAgents } from '../../../conversation/apps/hosted-agent.ts';
import { type JsonObject, jsonObject } from '../../../core/content.ts';
import { looseObject } from '../../../core/members.ts';

/** Programming language of the agents. ADK's clients only display it. */
const LANGUAGE = 'typescript';

const appMembers = {
  name: z.string().describe('What `appName` and `{app_name}` take.'),
  rootAgentName: z.string().describe('The agent that gets the prompt; the `author` of most events.'),
  description: z.string().describe('What the root agent says of itself; may be empty.'),
  language: z.string().describe('What its agents are written in: always `typescript`.'),
  isComputerUse: z.boolean().describe('Always false: no agent here drives a screen.'),
};

const appSchema = z.looseObject({
  ...appMembers,
  agents: jsonObject.nullable().describe('Always null here; `app-info` has them.'),
});

const appListSchema = z
  .union([z.array(z.string()), z.looseObject({ apps: z.array(appSchema).describe('Sorted by name.') })])
  .describe('Names, sorted; with `detailed` the applications.');

const agentInfoSchema = z.looseObject({
  name: z.string().describe('The `author` of its events.'),
  description: z.string().describe('By this the agent above decides whom to hand over to.'),
  instruction: z.string().describe("Empty for the users of a user pool: it is the operator's."),
  tools: z
    .array(
      z.looseObject({
        functionDeclarations: z
          .array(jsonObject)
          .describe('One tool: `name`, `description` and `parameters`, a JSON Schema.'),
      }),
    )
    .describe('Its tools; those of skills and remote MCP servers are known in an invocation only.'),
  sub_agents: z.array(z.string()).describe('Names of the agents below it.'),
});

const appInfoSchema = looseObject('What an application is made of.', {
  ...appMembers,
  agents: z.record(z.string(), agentInfoSchema).describe('All agents of the application, by name.'),
});

const toApp = (name: string, { name: rootAgentName, description }: AgentDescription) => ({
  name,
  rootAgentName,
  description,
  language: LANGUAGE,
  isComputerUse: false,
});

const toListedApp = (name: string, root: AgentDescription): z.infer<typeof appSchema> => ({
  ...toApp(name, root),
  agents: null,
});

/** Describes an application; its agents' instructions are empty unless `withInstructions` is true. */
function toAppInfo(name: string, root: AgentDescription, withInstructions: boolean): z.infer<typeof appInfoSchema> {
  const agents = listAgents(root).map((agent) => [agent.name, toAgentInfo(agent, withInstructions)] as const);
  return { ...toApp(name, root), agents: Object.fromEntries(agents) };
}

const toAgentInfo = (agent: AgentDescription, withInstructions: boolean): z.infer<typeof agentInfoSchema> => ({
  name: agent.name,
  description: agent.description,
  instruction: withInstructions ? agent.instruction : '',
  tools: agent.tools.map((tool) => ({ functionDeclarations: [{ ...tool } satisfies JsonObject] })),
  sub_agents: agent.subAgents.map((child) => child.name),
});

interface AppContext {
  agents: ReadonlyMap<string, HostedAgent>;
}

const room = area<AppContext>('Service and applications', {
  read: 'read',
  write: 'admin',
  owner: 'service',
  wire: 'ADK',
});

const listApps = room.operation({
  method: 'get',
  path: '/list-apps',
  operationId: 'listApps',
  summary: 'List applications',
  parameters: {
    query: z.object({
      relative_path: z.string().max(1_024).optional().describe('Sent by the ADK Web UI; ignored.'),
      detailed: z.boolean().default(false).describe('True: with their descriptions.'),
    }),
  },
  success: { schema: appListSchema, description: 'Their names, sorted.', example: ['harness_agent'] },
  handler: async ({ agents }, { query }) => {
    const names = [...agents.keys()].toSorted();
    if (!query.detailed) return { kind: 'value', value: names };
    const apps = names.flatMap((name) => {
      const agent = agents.get(name);
      return agent ? [toListedApp(name, agent.describe())] : [];
    });
    return { kind: 'value', value: { apps } };
  },
});

const getAppInfo = room.operation({
  method: 'get',
  path: '/apps/{app_name}/app-info',
  operationId: 'getAppInfo',
  summary: 'Describe an application',
  description: 'Tools of skills and of remote MCP servers are known in an invocation only and are left out.',
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
  handler: async ({ agents }, { path: { appName }, principal, notFound }) => {
    const root = agents.get(appName)?.describe();
    if (!root) throw notFound();
    if (root.kind !== 'llm') throw new InvalidError('Root agent is not an LlmAgent');
    return { kind: 'value', value: toAppInfo(appName, root, principal.kind !== 'user') };
  },
});

const telemetrySchema = looseObject('A choice about telemetry.', {
  telemetry: z.boolean().nullable().describe('Whether usage may be reported.'),
});

/** Declines telemetry, or the ADK Web UI asks for consent on every load. Nothing is ever reported to ADK. */
const NO_TELEMETRY = { telemetry: false };
const telemetry = {
  path: '/config/telemetry',
  success: { schema: telemetrySchema, description: 'Never: `false`.', example: NO_TELEMETRY },
} as const;

const getTelemetry = room.operation({
  method: 'get',
  ...telemetry,
  operationId: 'getTelemetry',
  summary: 'Is usage reported',
  handler: async () => ({ kind: 'value', value: NO_TELEMETRY }),
});

const setTelemetry = room.operation({
  method: 'post',
  ...telemetry,
  operationId: 'setTelemetry',
  summary: 'Choose whether usage is reported',
  description: 'Nothing is ever reported, so nothing is kept.',
  parameters: {
    headers: z.object({
      'x-adk-telemetry-request': z
        .string()
        .optional()
        .meta({ description: 'Must be `true`: no web page can send it unasked.', enum: ['true'] }),
    }),
  },
  body: { schema: telemetrySchema, required: true, example: NO_TELEMETRY },
  errors: { 400: 'The header is missing.' },
  handler: async (_context, { headers }) => {
    if (headers['x-adk-telemetry-request'] === 'true') return { kind: 'value', value: NO_TELEMETRY };
    throw new InvalidError('Forbidden: missing required security header');
  },
});

export const appOperations = [getTelemetry, setTelemetry, listApps, getAppInfo];
