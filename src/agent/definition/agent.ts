import type { JsonObject } from '../../core/content.ts';
import type {
  agentModelShape,
  compactionShape,
  loopStopShape,
  mcpServerShape,
  memoryShape,
  modelTargetShape,
  openApiShape,
  remoteAgentShape,
  sourceShape,
} from './agent-schema.ts';
import type { ClientTool } from './client-tools.ts';
import type { Of } from './members.ts';
import type { Sampling, ToolChoice } from './model.ts';
import type { OutputSchema } from './output-schema.ts';
import type { AgentNode, Tool } from './tool.ts';

/*
 * The agent, from what is written to what runs. `agent-schema.ts` says what may be written:
 *
 *   harness.yaml            agents/<name>/agent.ts       `harness` of a request
 *        │ parseHarnessFile        │ defineAgent                │ toAgentOverrides
 *        ▼                         ▼                            ▼
 *   HarnessFile               AgentSource                 AgentOverrides
 *        │ toAgentDefinition       │ toDefinition               │
 *        │ (+ environment)         │                            │
 *        └──────▶ AgentDefinition ◀┘                            │
 *                        └────────────── prepareAgent ──────────┘    once per invocation
 *                                             ▼
 *                    PreparedAgent: the root of a tree of AgentNodes, its MCP servers connected
 *                                             │ runAgent
 *                                             ▼
 *                                          events
 */

/** Maximum number of model calls of one invocation. */
export const DEFAULT_MAX_LLM_CALLS = 500;

/** What `defineAgent` takes: an agent application, whose name is that of its directory. Every member may be absent. */
export interface AgentSource extends Of<typeof sourceShape> {
  /**
   * Agents below this one, each with a `name` that is unique in the application. The model may hand the conversation
   * over to one of them, whose `description` tells it when; one with `asTool` or `background` it calls like a tool. Default: none.
   */
  subAgents?: (AgentSource & { name: string })[];
}

/** A deployed agent and its sub-agents. Tools and skills are given by name only, and no MCP server is connected yet. */
export interface AgentDefinition extends Omit<AgentSource, 'tools' | 'subAgents' | 'outputSchema'> {
  /** Author of the agent's events. Unique in the agent tree and never `user`; the root has the application's name. */
  name: string;
  description: string;
  instruction: string;
  tools: string[];
  skills: string[];
  mcpServers: McpServer[];
  subAgents?: AgentDefinition[];
  outputSchema?: OutputSchema;
}

/** Changes that one request makes to the agent definition, for its own invocation only. */
export interface AgentOverrides {
  /** Names to add to the agent's tools; those that the agent already has are ignored. */
  tools?: string[];
  /** Names to add to the agent's skills; those that the agent already has are ignored. */
  skills?: string[];
  /** Replaces the list of MCP servers of the agent and of all sub-agents; `[]` removes all servers. */
  mcpServers?: McpServer[];
  modelName?: string;
  instruction?: string;
  maxLlmCalls?: number;
  /** Lowers the maximum number of model calls; a value above the maximum has no effect. */
  llmCallsAtMost?: number;
  /** Maximum number of prompt and output tokens of the invocation; the prompt of the last model call may exceed it. */
  tokensAtMost?: number;
  /** Lowers the context window of the models, in tokens; a value above it has no effect. */
  contextTokensAtMost?: number;
  /** Lowers the time limit of the invocation, in milliseconds; a value above the limit has no effect. */
  timeAtMostMs?: number;
  /** Overrides the agent's sampling parameters one by one; the agent's value applies to one that is absent here. */
  sampling?: Sampling;
  /** JSON Schema of the final answer, for each agent that may give it. Untrusted, because a client wrote it. */
  outputSchema?: JsonObject;
  /** Tools that the client runs, in addition to the agent's tools. */
  clientTools?: ClientTool[];
  /** Whether the model must call a tool in its first answer, and which. */
  toolChoice?: ToolChoice;
  /** Name of an unsupported member in the request; the invocation fails with an error that names the member. */
  unsupported?: string;
}

/** A model with its provider and address. */
export interface ModelTarget extends Of<typeof modelTargetShape> {}
/** The model of an agent, with the models that stand in for it. */
export interface AgentModel extends Of<typeof agentModelShape> {}

/** An agent tree that is ready for one invocation: its MCP servers are connected. */
export interface PreparedAgent extends AgentNode {
  /** Maximum number of model calls of the invocation, including those of sub-agents and of the summaries. */
  maxLlmCalls: number;
  /** Maximum number of the invocation's tokens; the last model call's prompt may exceed it. Default: only budgets. */
  maxTokens?: number | undefined;
  /** Lowers the context window of all agents' models, in tokens. Default: as it is. */
  contextTokensAtMost?: number | undefined;
  compaction?: CompactionSettings;
  loopStop?: LoopStop;
  /** Whether the model must call a tool in its first answer, and which. Default: the model decides. */
  toolChoice?: ToolChoice;
  /** Closes the MCP sessions. Idempotent; never throws. */
  close: () => Promise<void>;
}

/** A remote MCP server (`url`) or a program of the operator (`command`). `headers` are sent to this server only. */
export interface McpServer extends Of<typeof mcpServerShape> {}

export const toAddress = ({ url = '', command, args }: McpServer): string =>
  command === undefined ? url : JSON.stringify([command, args]);

/** An HTTP API. Each listed operation becomes a tool, whose effect follows from the HTTP method. */
export interface OpenApiSource extends Of<typeof openApiShape> {}

/**
 * An agent of another service, called over the A2A protocol. `url` is the address of its agent card, or the card's
 * parent address. `headers` are sent to that origin only.
 */
export interface RemoteAgent extends Of<typeof remoteAgentShape> {}

/** Supplies recorded tools in place of an agent's MCP servers, for evaluation and replay, which contact no server. */
export type ServerTools = (agentName: string, servers: McpServer[]) => Tool[];

/** How memories of an application's users are made and searched. */
export interface MemorySettings extends Of<typeof memoryShape> {}
/** When and how older events of a session are replaced in the model's requests. */
export interface CompactionSettings extends Of<typeof compactionShape> {}
/** When an agent that makes the same calls with the same answers again and again is stopped. */
export interface LoopStop extends Of<typeof loopStopShape> {}
