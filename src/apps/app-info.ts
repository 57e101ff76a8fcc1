import { z } from 'zod';
import { type JsonObject, jsonObject } from '../core/content.ts';
import { type AgentDescription, listAgents } from './agent-description.ts';

/** What agents are written in; ADK's clients only show it. */
const LANGUAGE = 'typescript';

const appSchema = z.looseObject({
  name: z.string(),
  rootAgentName: z.string(),
  description: z.string(),
  language: z.string(),
  isComputerUse: z.boolean(),
  agents: jsonObject.nullable().describe('Always null here; `app-info` has them.'),
});

export const appListSchema = z
  .union([z.array(z.string()), z.looseObject({ apps: z.array(appSchema) })])
  .describe('Names, sorted; with `detailed` the applications.');

const agentInfoSchema = z.looseObject({
  name: z.string(),
  description: z.string(),
  instruction: z.string().describe("Empty for the users of a user pool: it is the operator's."),
  tools: z.array(z.looseObject({ functionDeclarations: z.array(jsonObject) })),
  sub_agents: z.array(z.string()).describe('Names of the agents below it.'),
});

export const appInfoSchema = z
  .looseObject({
    name: z.string(),
    rootAgentName: z.string(),
    description: z.string(),
    language: z.string(),
    isComputerUse: z.boolean(),
    agents: z.record(z.string(), agentInfoSchema).describe('All agents of the application, by name.'),
  })
  .describe('What an application is made of.');

export const telemetrySchema = z
  .looseObject({ telemetry: z.boolean().nullable().describe('Whether usage may be reported.') })
  .describe('A choice about telemetry.');

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
