import type { AgentDefinition } from '../../agent/definition/agent.ts';
import type { Tool } from '../../agent/definition/tool.ts';

/** An agent and those below it as people see them, without tools that are known in an invocation only. */
export interface AgentDescription {
  name: string;
  description: string;
  kind: 'llm' | 'sequential' | 'parallel' | 'loop';
  model: string;
  instruction: string;
  /** `parameters` is a JSON Schema. */
  tools: Pick<Tool, 'name' | 'description' | 'parameters'>[];
  subAgents: AgentDescription[];
}

/** The agent and all below it, from the top; each once. */
export const listAgents = (agent: AgentDescription): AgentDescription[] => [
  agent,
  ...agent.subAgents.flatMap(listAgents),
];

/** Describes an agent as deployed, without unknown tools; `modelName` stands where no agent names a model. */
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
