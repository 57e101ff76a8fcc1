import { z } from 'zod';
import { type JsonObject, jsonObject } from '../../core/content.ts';
import { type AgentDescription, listAgents } from './agent-description.ts';

/** The language of the agents; ADK's clients only show it. */
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

/** Answer of `/list-apps`. */
export const appListSchema = z
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

/** Answer of `/apps/{app_name}/app-info`. */
export const appInfoSchema = z
  .looseObject({
    ...appMembers,
    agents: z.record(z.string(), agentInfoSchema).describe('All agents of the application, by name.'),
  })
  .describe('What an application is made of.');

const toApp = (name: string, { name: rootAgentName, description }: AgentDescription) => ({
  name,
  rootAgentName,
  description,
  language: LANGUAGE,
  isComputerUse: false,
});

/** An application in the detailed list. */
export const toListedApp = (name: string, root: AgentDescription): z.infer<typeof appSchema> => ({
  ...toApp(name, root),
  agents: null,
});

/** An application with all its agents; `withInstructions` false leaves their instructions empty. */
export function toAppInfo(
  name: string,
  root: AgentDescription,
  withInstructions: boolean,
): z.infer<typeof appInfoSchema> {
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
