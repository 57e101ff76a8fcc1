import type { Model, Sampling } from './model.ts';
import type { Tool } from './tool.ts';

/** A remote MCP server; `name` appears in errors and logs, `headers` are sent to it and nowhere else. */
export interface McpServer {
  name: string;
  url: string;
  transport?: 'streamable-http' | 'sse';
  headers?: Record<string, string>;
}

/**
 * What an agent does: `llm` asks its model; the others run their sub-agents one after another, side by side, or again
 * and again.
 */
type AgentKind = 'llm' | 'sequential' | 'parallel' | 'loop';

/** An agent below another, as it was deployed. */
export interface SubAgentDefinition {
  /** Author of its events; unique within the tree, and not `user`. */
  name: string;
  /** What the agent is for, told to the agents that may hand over to it. */
  description: string;
  /** [`llm`] */
  kind?: AgentKind;
  instruction: string;
  /** [that of the agent above] */
  modelName?: string;
  tools: string[];
  skills: string[];
  mcpServers: McpServer[];
  /** Names of tools, those of MCP servers included, whose calls a person has to confirm. */
  confirmTools?: string[];
  /** [that of the agent above] */
  sampling?: Sampling;
  subAgents?: SubAgentDefinition[];
  /** True: the agent above calls it like a tool and goes on itself, instead of handing over to it. */
  asTool?: boolean;
  /** State key that receives the text of the agent's answer. */
  outputKey?: string;
  /** Most rounds of a `loop` [until a sub-agent escalates]. */
  maxIterations?: number;
}

/** When and how much of a history is replaced by a summary. */
interface CompactionSettings {
  /** Estimated prompt tokens from which older events are summarised. */
  tokenBudget: number;
  /** Invocations at the end that stay as they are, the current one included [2]. */
  keepInvocations?: number;
}

/** An agent as it was deployed: names only, nothing connected yet. */
export interface AgentDefinition extends Omit<SubAgentDefinition, 'asTool'> {
  modelName: string;
  sampling: Sampling;
  compaction?: CompactionSettings;
  /** Most model calls of one invocation [500]. */
  maxLlmCalls: number;
}

/** What one request changes of the definition; this invocation only. */
export interface AgentOverrides {
  /** Appended, duplicates dropped. */
  tools?: string[];
  /** Appended, duplicates dropped. */
  skills?: string[];
  /** Replaces the whole list; `[]` clears it. */
  mcpServers?: McpServer[];
  modelName?: string;
  instruction?: string;
  maxLlmCalls?: number;
  sampling?: Sampling;
}

/** One agent of a prepared tree, its tools found. */
export interface AgentNode {
  name: string;
  description: string;
  kind: AgentKind;
  /** A template: `{name}`, `{name?}`, `{app:x}` and `{artifact.x}` are filled in before each model call. */
  instruction: string;
  /** Follows the instruction as it is: the list of the agent's skills. */
  appendedInstruction: string;
  model: Model;
  modelName: string;
  tools: Tool[];
  sampling: Sampling;
  /** Without those that are tools. */
  subAgents: AgentNode[];
  outputKey?: string;
  maxIterations?: number;
}

/** An agent tree ready for one invocation, its MCP servers connected. */
export interface PreparedAgent extends AgentNode {
  /** Most model calls of the invocation, those of sub-agents and summaries included. */
  maxLlmCalls: number;
  compaction?: CompactionSettings;
  /** Ends the MCP sessions; safe to call twice, never throws. */
  close: () => Promise<void>;
}
