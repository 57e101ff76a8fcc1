import type { AgentDefinition } from '../../agent/definition/agent.ts';
import type { Tool } from '../../agent/definition/tool.ts';

/** An agent with its sub-agents, for display; tools that are only known during an invocation are missing. */
export interface AgentDescription {
  name: string;
  description: string;
  kind: 'llm' | 'sequential' | 'parallel' | 'loop';
  model: string;
  instruction: string;
  tools: Pick<Tool, 'name' | 'description' | 'parameters'>[];
  subAgents: AgentDescription[];
}

/** Lists the agent and all its descendants, parents before children. */
export const listAgents = (agent: AgentDescription): AgentDescription[] => [
  agent,
  ...agent.subAgents.flatMap(listAgents),
];

/** @param modelName - the model of an agent if neither the agent nor any of its parents names one */
export function describeAgent(
  definition: AgentDefinition,
  known: ReadonlyMap<string, Tool>,
  modelName: string,
): AgentDescription {
  const describe = (agent: AgentDefinition, modelAbove: string): AgentDescription => {
    const model = agent.remote ? agent.name : (agent.model?.name ?? agent.modelName ?? modelAbove);
    return {
      name: agent.name,
      description: agent.description,
      kind: agent.kind ?? 'llm',
      model,
      instruction: agent.instruction,
      tools: agent.tools.flatMap((name) => known.get(name) ?? []).map(describeTool),
      subAgents: (agent.subAgents ?? []).map((child) => describe(child, model)),
    };
  };
  return describe(definition, modelName);
}

const describeTool = ({ name, description, parameters }: Tool) => ({ name, description, parameters });
