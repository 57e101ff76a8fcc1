import type { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import type { ModelSource } from '../providers/index.ts';
import type { ClientTool } from './client-tools.ts';
import type { Hooks } from './hooks.ts';
import type { harnessSchema } from './harness-schema.ts';
import type { Model, Sampling, ToolChoice } from './model.ts';
import type { OutputSchema, WrittenSchema } from './output-schema.ts';
import type { Effect, Tool, ToolLimits } from './tool.ts';

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

/** Maximum number of model calls of one invocation. */
export const DEFAULT_MAX_LLM_CALLS = 500;

/** The contents of a `harness.yaml`, in snake_case. */
export type HarnessFile = z.output<typeof harnessSchema>;

/**
 * An agent application defined in code; its directory gives its name. An omitted member has the same default as in
 * `AgentDefinition`.
 */
export interface AgentSource extends Partial<Omit<AgentDefinition, 'name' | 'tools' | 'subAgents' | 'outputSchema'>> {
  tools?: (string | Tool)[];
  subAgents?: (AgentSource & { name: string })[];
  /** Schema of the final answer. If the model's answer violates it, the model is called again. Default: free text. */
  outputSchema?: WrittenSchema;
}

/** A deployed agent and its sub-agents. Tools and skills are given by name only, and no MCP server is connected yet. */
export interface AgentDefinition {
  /** Author of the agent's events. Unique in the agent tree and never `user`; the root has the application's name. */
  name: string;
  /** Tells the models of other agents when to transfer the conversation to this agent. */
  description: string;
  /** Default: `llm`. */
  kind?: AgentKind;
  instruction: string;
  /** Name of the model. Default: the model of the parent agent; for the root agent, that of the environment. */
  modelName?: string;
  /** The model with provider and address; overrides `modelName`. Default: the model of the parent agent. */
  model?: AgentModel;
  tools: string[];
  skills: string[];
  mcpServers: McpServer[];
  /** Names of tools, including those of MCP servers, whose calls a person must confirm. */
  confirmTools?: string[];
  /** Effects of calls by tool name, including tools of MCP servers. Default: what the tool or its server declares. */
  toolEffects?: Record<string, Effect>;
  /** Limits of calls by tool name, including tools of MCP servers. Each overrides the limit that the tool sets. */
  toolLimits?: Record<string, ToolLimits>;
  openapi?: OpenApiSource[];
  /** Names of tools. If it is unknown after a crash whether a call of such a tool took effect, a person decides. */
  askWhenUnknown?: string[];
  /** Sampling parameters of the model calls. Default: those of the parent agent. */
  sampling?: Sampling;
  subAgents?: AgentDefinition[];
  /** True: the parent agent calls this agent like a tool and goes on, instead of handing over the conversation. */
  asTool?: boolean;
  /** Another service that runs the agent and is called over the A2A protocol. Default: this service runs the agent. */
  remote?: RemoteAgent;
  hooks?: Hooks;
  /** Hooks for all agents of the application, called before the hooks of an agent. Read from the root agent only. */
  plugins?: Hooks[];
  outputSchema?: OutputSchema;
  /** State key that receives the final answer: the text, or the parsed value if there is an output schema. */
  outputKey?: string;
  /** Maximum number of rounds of a `loop` agent. Default: no maximum; the loop ends when a sub-agent escalates. */
  maxIterations?: number;
  /** Maximum number of model calls of one invocation. Default: 500. Read from the root agent only. */
  maxLlmCalls?: number;
  /** When older events are summarised. Default: never. Read from the root agent only. */
  compaction?: CompactionSettings;
  /** How memories are made and searched. Read from the root agent only. */
  memory?: MemorySettings;
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

export interface ModelTarget {
  /** A provider's name as in `MODEL_PROVIDER`, or a custom model. Default: the provider of the environment. */
  provider?: ModelSource | Model;
  name: string;
  /** Base URL. Default: that of the environment if the provider is the same, else the provider's public address. */
  baseUrl?: string;
  /** API key. Default: that of the environment if provider and address are the same as there, else none. */
  apiKey?: string;
}

export interface AgentModel extends ModelTarget {
  fallbacks?: ModelTarget[];
  /** Time limit for the model's first output if a fallback model is left, in ms. Default: the provider's limit only. */
  firstTokenMs?: number;
}

export type NamedModel = { model: Model; modelName: string };

export interface AgentNode {
  name: string;
  description: string;
  kind: AgentKind;
  /** Template: before each model call, state values replace `{name}` and `{app:x}`, an artifact `{artifact.x}`. */
  instruction: string;
  /** Text sent after the instruction and not treated as a template: the list of the agent's skills. */
  appendedInstruction: string;
  /** Whether the instruction or the output schema (`form`) came with a request and is therefore untrusted. */
  isBrought?: { instruction?: boolean; form?: boolean };
  model: Model;
  modelName: string;
  /** True: the agent runs in another service, and `model` forwards to that service. Default: false. */
  isRemote?: boolean;
  /** Models that are called in order, each if the one before it failed without output. Default: none. */
  fallbacks?: NamedModel[];
  firstTokenMs?: number;
  tools: Tool[];
  sampling: Sampling;
  /** Sub-agents to which the agent may transfer; sub-agents that are tools (`asTool`) are in `tools` instead. */
  subAgents: AgentNode[];
  outputSchema?: OutputSchema;
  /** Hooks of the application (`plugins`), followed by those of the agent. Default: none. */
  hooks?: Hooks[];
  outputKey?: string;
  maxIterations?: number;
}

/** An agent tree that is ready for one invocation: its MCP servers are connected. */
export interface PreparedAgent extends AgentNode {
  /** Maximum number of model calls of the invocation, including those of sub-agents and of the summaries. */
  maxLlmCalls: number;
  /** Maximum number of the invocation's tokens; the last model call's prompt may exceed it. Default: only budgets. */
  maxTokens?: number | undefined;
  compaction?: CompactionSettings;
  /** Whether the model must call a tool in its first answer, and which. Default: the model decides. */
  toolChoice?: ToolChoice;
  /** Closes the MCP sessions. Idempotent; never throws. */
  close: () => Promise<void>;
}

/** `llm` calls a model; the other kinds run their sub-agents: in sequence, in parallel, or repeatedly. */
export type AgentKind = 'llm' | 'sequential' | 'parallel' | 'loop';

/** A remote MCP server (`url`) or a program of the operator (`command`). `headers` are sent to this server only. */
export interface McpServer {
  name: string;
  url?: string;
  /** Program that each invocation starts; it speaks MCP over its standard streams. A request cannot set it. */
  command?: string;
  args?: string[];
  /** Environment variables of the program. From this process it inherits only a few, such as `PATH` and `HOME`. */
  env?: Record<string, string>;
  transport?: 'streamable-http' | 'sse';
  headers?: Record<string, string>;
  /** True: the agent gets tools that list and read the server's resources. Default: false. */
  resources?: boolean;
  /** True: the agent gets tools that list the server's prompts and fill in their arguments. Default: false. */
  prompts?: boolean;
  /** Maximum time of one tool call, in milliseconds. Default: 60,000. A request cannot set it. */
  callTimeoutMs?: number;
  /** Maximum time to connect, in milliseconds. Default: 15,000. A request cannot set it. */
  connectTimeoutMs?: number;
  /**
   * If the connection fails, `fail` ends the invocation, and `skip` tells the model that the server's tools are
   * missing. Default: `skip` if the server did not respond or responded with a 5xx status, else `fail`; for a server of
   * a request always `fail`.
   */
  onFailure?: 'fail' | 'skip';
  /** The operator's OAuth client credentials, for an access token of this issuer. A request cannot set them. */
  oauth?: { clientId: string; clientSecret: string; issuer: string; scope?: string | undefined };
  /**
   * OAuth client to which each user grants access in a browser. An https address as `clientId` is the address of a
   * client metadata document. Default: a client registered dynamically. A request cannot set it.
   */
  userOauth?: {
    clientId?: string | undefined;
    clientSecret?: string | undefined;
    issuer?: string | undefined;
    scope?: string | undefined;
  };
}

export const toAddress = ({ url = '', command, args }: McpServer): string =>
  command === undefined ? url : JSON.stringify([command, args]);

/** An HTTP API. Each listed operation becomes a tool, whose effect follows from the HTTP method. */
export interface OpenApiSource {
  name: string;
  /** An OpenAPI 3 document, or the path of a JSON or YAML file with it. */
  document: string | JsonObject;
  operations: string[];
  /** Base URL of the API. Default: the URL of the first server in the document. */
  baseUrl?: string;
  /** Headers with the operator's credentials, sent to this API only. */
  headers?: Record<string, string>;
  /**
   * OAuth client of this issuer to which each user grants access in a browser. Default: a client registered
   * dynamically.
   */
  userOauth?: NonNullable<McpServer['userOauth']> & { issuer: string };
}

/**
 * An agent of another service, called over the A2A protocol. `url` is the address of its agent card, or the card's
 * parent address. `headers` are sent to that origin only.
 */
export interface RemoteAgent {
  url: string;
  headers?: Record<string, string> | undefined;
  /** URL of a JWK set with the keys that may sign the agent card. Default: the card's signatures are not checked. */
  keys?: string | undefined;
  /**
   * OAuth client of this issuer to which each user grants access in a browser. Default: a client registered
   * dynamically.
   */
  userOauth?: (NonNullable<McpServer['userOauth']> & { issuer: string }) | undefined;
}

/** Supplies recorded tools in place of an agent's MCP servers, for evaluation and replay, which contact no server. */
export type ServerTools = (agentName: string, servers: McpServer[]) => Tool[];

export interface MemorySettings {
  /** Model that makes embedding vectors of memories. Default: none; memories are searched by words only. */
  embeddings?: ModelTarget & { dimensions?: number };
  /**
   * Which texts of a successful invocation become memories: all, those that match a pattern, those that the agent's
   * model selects by the rule `judge`, or those for which a function returns true. Default: none but those that clients
   * add.
   */
  remember?: 'always' | RegExp[] | { judge: string } | ((text: string, author: string) => unknown);
}

export interface CompactionSettings {
  /** Estimated number of prompt tokens above which older events are summarised. */
  tokenBudget: number;
  /** Number of newest invocations that are never summarised, including the current one. Default: 2. */
  keepInvocations?: number;
}
