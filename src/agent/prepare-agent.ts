import type { AgentDefinition, AgentOverrides, PreparedAgent } from './agent.ts';
import type { Model } from './model.ts';
import type { Tool } from './tool.ts';
import { findTools } from './tools/registry.ts';

/** What the service lends to every agent. */
export interface AgentEnvironment {
  model: Model;
  builtInTools: ReadonlyMap<string, Tool>;
}

/** True when a member other than `mcpServers` is given: the `overwrite` of `/harness/invoke` (specification, Invoke Harness). */
export const hasGeneralOverride = (overrides: AgentOverrides): boolean =>
  Object.entries(overrides).some(([name, value]) => name !== 'mcpServers' && value !== undefined);

/** The definition with the overrides of one request: `tools` and `skills` appended, the rest replaced; the definition itself is untouched. */
export function applyOverrides(definition: AgentDefinition, overrides: AgentOverrides): AgentDefinition {
  return {
    ...definition,
    instruction: overrides.instruction ?? definition.instruction,
    modelName: overrides.modelName ?? definition.modelName,
    tools: [...new Set([...definition.tools, ...(overrides.tools ?? [])])],
    skills: [...new Set([...definition.skills, ...(overrides.skills ?? [])])],
    mcpServers: overrides.mcpServers ?? definition.mcpServers,
    sampling: { ...definition.sampling, ...overrides.sampling },
    maxLlmCalls: overrides.maxLlmCalls ?? definition.maxLlmCalls,
  };
}

/**
 * Makes an agent ready for one invocation. Call `close()` on the result in any case.
 * @throws {AgentError} for an unknown tool or skill, or an MCP server that does not answer.
 */
export async function prepareAgent(
  definition: AgentDefinition,
  overrides: AgentOverrides,
  environment: AgentEnvironment,
  signal: AbortSignal,
): Promise<PreparedAgent> {
  signal.throwIfAborted();
  const { name, description, instruction, modelName, tools, sampling, maxLlmCalls } = applyOverrides(
    definition,
    overrides,
  );
  return {
    name,
    description,
    kind: 'llm',
    instruction,
    model: environment.model,
    modelName,
    tools: findTools(environment.builtInTools, tools),
    sampling,
    subAgents: [],
    maxLlmCalls,
    close: async () => {},
  };
}
