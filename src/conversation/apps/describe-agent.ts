import type { AgentDefinition } from '../../agent/definition/agent.ts';
import type { Tool } from '../../agent/definition/tool.ts';
import type { AgentDescription } from './agent-description.ts';

/**
 * Describes an agent as it was deployed; names of tools that do not exist are left out. `modelName` stands where no
 * agent names a model.
 */
export function describeAgent(
  definition: AgentDefinition,
  known: ReadonlyMap<string, Tool>,
  modelName: string,
): AgentDescription {
  const describe = (agent: AgentDefinition, modelAbove: string): AgentDescription => {
    const model = agent.modelName ?? modelAbove;
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
