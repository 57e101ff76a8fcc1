import type { z } from 'zod';
import type { ClientTool } from './client-tools.ts';
import type { harnessSchema } from './harness-schema.ts';
import type { Model, Sampling } from './model.ts';
import type { Effect, Tool } from './tool.ts';

/*
 * The agent, from what is written to what runs. All of its types are here:
 *
 *   harness.yaml            agents/<name>/agent.ts       `harness` of a request
 *        │ parseHarnessFile        │ defineAgent                │ toAgentOverrides
 *        ▼                         ▼                            ▼
 *   HarnessFile               AgentSource                 AgentOverrides
 *        │ toAgentDefinition       │ loadAgentModules           │
 *        │ (+ environment)         │                            │
 *        └──────▶ AgentDefinition ◀┘                            │
 *                        └────────────── prepareAgent ──────────┘    once per invocation
 *                                             ▼
 *                    PreparedAgent: the root of a tree of AgentNodes, its MCP servers connected
 *                                             │ runAgent
 *                                             ▼
 *                                          events
 */

/** Maximum number of model calls of one invocation where nothing else is said. */
export const DEFAULT_MAX_LLM_CALLS = 500;

/** A `harness.yaml` as it is written, in snake_case. */
export type HarnessFile = z.output<typeof harnessSchema>;

/** An agent application in code, named by its directory; what is left out has the defaults of a definition. */
export interface AgentSource extends Partial<Omit<AgentDefinition, 'name' | 'tools' | 'subAgents'>> {
  /** Names of built-in tools, and tools of its own. */
  tools?: (string | Tool)[];
  subAgents?: (AgentSource & { name: string })[];
}

/** An agent as it was deployed, and those below it: names only, nothing connected yet. */
export interface AgentDefinition {
  /** Author of its events; unique within the tree, and not `user`. The root's is the application's. */
  name: string;
  /** The agent's purpose, shown to the agents that may transfer to it. */
  description: string;
  /** [`llm`] */
  kind?: AgentKind;
  instruction: string;
  /** [that of the agent above, at the root that of the environment] */
  modelName?: string;
  tools: string[];
  skills: string[];
  mcpServers: McpServer[];
  /** Names of tools, those of MCP servers included, whose calls a person has to confirm. */
  confirmTools?: string[];
  /** Effects of tools by name, those of MCP servers included [as the tool or its server says]. */
  toolEffects?: Record<string, Effect>;
  /** Names of tools about whose calls a person is asked where it stays unknown whether they acted. */
  askWhenUnknown?: string[];
  /** [that of the agent above] */
  sampling?: Sampling;
  subAgents?: AgentDefinition[];
  /** True: the agent above calls it like a tool and goes on itself, instead of handing over to it. */
  asTool?: boolean;
  /** State key that receives the text of the agent's answer. */
  outputKey?: string;
  /** Maximum number of rounds of a `loop` [until a sub-agent escalates]. */
  maxIterations?: number;
  /** Maximum number of model calls of one invocation [500]; the root's counts. */
  maxLlmCalls?: number;
  /** [never]; the root's counts. */
  compaction?: CompactionSettings;
}

/** Changes of the definition that one request asks for; they hold for its invocation only. */
export interface AgentOverrides {
  /** Appended, duplicates dropped. */
  tools?: string[];
  /** Appended, duplicates dropped. */
  skills?: string[];
  /** Replaces the whole list, that of sub-agents too; `[]` clears it. */
  mcpServers?: McpServer[];
  modelName?: string;
  instruction?: string;
  maxLlmCalls?: number;
  /** Lowers the limit of model calls and never raises it. */
  llmCallsAtMost?: number;
  /** Replaces the members that it has. */
  sampling?: Sampling;
  /** Offered to the model beside the agent's own, and run by the client. */
  clientTools?: ClientTool[];
  /** A member of the request that this runtime cannot honour: the invocation fails with its name. */
  unsupported?: string;
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
  /** Maximum number of model calls of the invocation, those of sub-agents and summaries included. */
  maxLlmCalls: number;
  compaction?: CompactionSettings;
  /** Ends the MCP sessions; safe to call twice, never throws. */
  close: () => Promise<void>;
}

/** The way an agent works: `llm` calls its model; the others run sub-agents in turn, side by side, or repeatedly. */
export type AgentKind = 'llm' | 'sequential' | 'parallel' | 'loop';

/** A remote MCP server; `name` appears in errors and logs, `headers` are sent to it and nowhere else. */
export interface McpServer {
  name: string;
  url: string;
  transport?: 'streamable-http' | 'sse';
  headers?: Record<string, string>;
  /** True: the agent gets tools that list and read the server's resources [false]. */
  resources?: boolean;
  /** True: the agent gets tools that list and fill in the server's prompts [false]. */
  prompts?: boolean;
  /** Credentials of the operator, for a token of this issuer; never of a request. */
  oauth?: { clientId: string; clientSecret: string; issuer: string; scope?: string | undefined };
}

/** The tools of an agent's MCP servers, from elsewhere than the servers. */
export type ServerTools = (agentName: string, servers: McpServer[]) => Tool[];

/** When and how much of a history is replaced by a summary. */
export interface CompactionSettings {
  /** Estimated prompt tokens from which older events are summarised. */
  tokenBudget: number;
  /** Invocations at the end that stay as they are, the current one included [2]. */
  keepInvocations?: number;
}
