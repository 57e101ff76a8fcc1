import type { JsonObject } from '../../core/content.ts';

/** A tool as people see it; `parameters` is a JSON Schema. */
interface ToolDescription {
  name: string;
  description: string;
  parameters: JsonObject;
}

/**
 * An agent and those below it as people see them. Tools of skills and of remote MCP servers are known in an
 * invocation only.
 */
export interface AgentDescription {
  name: string;
  description: string;
  kind: 'llm' | 'sequential' | 'parallel' | 'loop';
  model: string;
  instruction: string;
  tools: ToolDescription[];
  subAgents: AgentDescription[];
}

/** The agent and all below it, from the top; each once. */
export const listAgents = (agent: AgentDescription): AgentDescription[] => [
  agent,
  ...agent.subAgents.flatMap(listAgents),
];
