import type { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import type { ClientTool } from './client-tools.ts';
import type { Hooks } from './hooks.ts';
import type { harnessSchema } from './harness-schema.ts';
import type { Model, Provider, Sampling, ToolChoice } from './model.ts';
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

/** Default maximum number of model calls of one invocation. */
export const DEFAULT_MAX_LLM_CALLS = 500;

/** The contents of a `harness.yaml`, in snake_case. */
export type HarnessFile = z.output<typeof harnessSchema>;

/**
 * An agent application defined in code and named by its directory. Omitted members have the defaults of a definition.
 */
export interface AgentSource extends Partial<Omit<AgentDefinition, 'name' | 'tools' | 'subAgents' | 'outputSchema'>> {
  tools?: (string | Tool)[];
  subAgents?: (AgentSource & { name: string })[];
  /** Form of the answer, a zod schema or JSON Schema: an answer that violates it is requested again [text]. */
  outputSchema?: WrittenSchema;
}

/** A deployed agent and its sub-agents: names only, nothing connected yet. */
export interface AgentDefinition {
  /** Author of its events; unique within the tree, and not `user`. The root has the application's name. */
  name: string;
  /** The agent's purpose, shown to the agents that may transfer to it. */
  description: string;
  /** [`llm`] */
  kind?: AgentKind;
  instruction: string;
  /** [that of the parent agent, at the root that of the environment] */
  modelName?: string;
  /** Wins over `modelName` [that of the parent agent]. */
  model?: AgentModel;
  tools: string[];
  skills: string[];
  mcpServers: McpServer[];
  /** Names of tools, including those of MCP servers, whose calls a person must confirm. */
  confirmTools?: string[];
  /** Effects of tools by name, including those of MCP servers [as declared by the tool or its server]. */
  toolEffects?: Record<string, Effect>;
  /** Limits of tools by name, including those of MCP servers; each overrides the tool's own limit. */
  toolLimits?: Record<string, ToolLimits>;
  /** HTTP APIs with operations that become tools. */
  openapi?: OpenApiSource[];
  /** Tools for which a person decides if a crash leaves it unknown whether a call took effect. */
  askWhenUnknown?: string[];
  /** [that of the parent agent] */
  sampling?: Sampling;
  subAgents?: AgentDefinition[];
  /** True: the parent agent calls it like a tool and continues itself, instead of transferring to it. */
  asTool?: boolean;
  /** The service that runs the agent and speaks A2A [this service]. */
  remote?: RemoteAgent;
  hooks?: Hooks;
  /** Hooks for all agents of the application, called before an agent's own. Only the root's are used. */
  plugins?: Hooks[];
  outputSchema?: OutputSchema;
  /** State key that receives the agent's answer: its text, or the value of its form. */
  outputKey?: string;
  /** Maximum number of rounds of a `loop` [until a sub-agent escalates]. */
  maxIterations?: number;
  /** Maximum number of model calls of one invocation [500]. Only the root's is used. */
  maxLlmCalls?: number;
  /** [never] Only the root's is used. */
  compaction?: CompactionSettings;
  /** Only the root's is used. */
  memory?: MemorySettings;
}

/** Changes of the definition that one request makes, for its invocation only. */
export interface AgentOverrides {
  /** Appended without duplicates. */
  tools?: string[];
  /** Appended without duplicates. */
  skills?: string[];
  /** Replaces the whole list, also that of sub-agents; `[]` clears it. */
  mcpServers?: McpServer[];
  modelName?: string;
  instruction?: string;
  maxLlmCalls?: number;
  /** Lowers the limit of model calls; never raises it. */
  llmCallsAtMost?: number;
  /** Maximum number of tokens of the invocation, prompts and answers. The prompt of the last call may exceed it. */
  tokensAtMost?: number;
  /** Lowers the time limit of the invocation; never raises it. */
  timeAtMostMs?: number;
  /** Replaces individual members. */
  sampling?: Sampling;
  /** Untrusted JSON Schema of the answer; applies to every agent that may give the final answer. */
  outputSchema?: JsonObject;
  /** Offered to the model beside the agent's own tools, and run by the client. */
  clientTools?: ClientTool[];
  /** Applies to the first model call of the request. */
  toolChoice?: ToolChoice;
  /** A member of the request that this runtime does not support: the invocation fails with its name. */
  unsupported?: string;
}

export interface ModelTarget {
  /** The provider as `MODEL_PROVIDER` spells it, or a custom model [that of the environment]. */
  provider?: Provider | Model;
  name: string;
  /** [that of the environment if the provider is the same, else the provider's public address] */
  baseUrl?: string;
  /** [that of the environment if provider and address are the same, else none] */
  apiKey?: string;
}

export interface AgentModel extends ModelTarget {
  fallbacks?: ModelTarget[];
  /** Maximum time until an answer begins, in milliseconds, if a fallback remains [only the provider's limit]. */
  firstTokenMs?: number;
}

export type NamedModel = { model: Model; modelName: string };

export interface AgentNode {
  name: string;
  description: string;
  kind: AgentKind;
  /** A template: `{name}`, `{name?}`, `{app:x}` and `{artifact.x}` are replaced before each model call. */
  instruction: string;
  /** Follows the instruction literally, not as a template: the list of the agent's skills. */
  appendedInstruction: string;
  /** The parts that came with a request and are therefore untrusted [none]. */
  isBrought?: { instruction?: boolean; form?: boolean };
  model: Model;
  modelName: string;
  /** True: the agent runs in another service, and `model` forwards to it [false]. */
  isRemote?: boolean;
  /** Called in order if the model fails before it begins an answer [none]. */
  fallbacks?: NamedModel[];
  firstTokenMs?: number;
  tools: Tool[];
  sampling: Sampling;
  /** Without the sub-agents that are tools. */
  subAgents: AgentNode[];
  outputSchema?: OutputSchema;
  /** Hooks of plugins, then the agent's own [none]. */
  hooks?: Hooks[];
  outputKey?: string;
  maxIterations?: number;
}

/** An agent tree ready for one invocation, its MCP servers connected. */
export interface PreparedAgent extends AgentNode {
  /** Maximum number of model calls of the invocation, including those of sub-agents and summaries. */
  maxLlmCalls: number;
  /** Maximum number of tokens of the invocation, without the prompt of its last call [budgets only]. */
  maxTokens?: number | undefined;
  compaction?: CompactionSettings;
  /** Applies to the first model call [none]. */
  toolChoice?: ToolChoice;
  /** Ends the MCP sessions. Idempotent; never throws. */
  close: () => Promise<void>;
}

/** How an agent works: `llm` calls its model; the others run sub-agents in turn, in parallel, or repeatedly. */
export type AgentKind = 'llm' | 'sequential' | 'parallel' | 'loop';

/**
 * An MCP server: a remote one (`url`), or a program of the operator (`command`). `name` appears in errors and logs;
 * `headers` are sent to no other server.
 */
export interface McpServer {
  name: string;
  url?: string;
  /** A program that each invocation starts and talks to over standard streams; never from a request. */
  command?: string;
  args?: string[];
  /** Environment of the program; of this process's environment it inherits only `PATH`, `HOME` and the like. */
  env?: Record<string, string>;
  transport?: 'streamable-http' | 'sse';
  headers?: Record<string, string>;
  /** True: the agent gets tools that list and read the server's resources [false]. */
  resources?: boolean;
  /** True: the agent gets tools that list and fill in the server's prompts [false]. */
  prompts?: boolean;
  /** Maximum time of one call, milliseconds [60,000]; never from a request. */
  callTimeoutMs?: number;
  /** Maximum time to connect, milliseconds [15,000]; never from a request. */
  connectTimeoutMs?: number;
  /**
   * What happens if connecting fails: the invocation ends, or the model is told that the tools are missing [`skip` if
   * there was no answer or a 5xx, else `fail`; always `fail` for servers of a request].
   */
  onFailure?: 'fail' | 'skip';
  /** Client credentials of the operator for a token of this issuer; never from a request. */
  oauth?: { clientId: string; clientSecret: string; issuer: string; scope?: string | undefined };
  /**
   * Each user grants access in a browser to this OAuth client [one registered dynamically; an https address is a client
   * metadata document]; never from a request.
   */
  userOauth?: {
    clientId?: string | undefined;
    clientSecret?: string | undefined;
    issuer?: string | undefined;
    scope?: string | undefined;
  };
}

/** Returns the URL of a server, or its command line as JSON. */
export const toAddress = ({ url = '', command, args }: McpServer): string =>
  command === undefined ? url : JSON.stringify([command, args]);

/** An HTTP API: the listed operations become tools, with effects by HTTP method. */
export interface OpenApiSource {
  name: string;
  /** An OpenAPI 3 document, or the path of its file, JSON or YAML. */
  document: string | JsonObject;
  operations: string[];
  /** [the first server of the document] */
  baseUrl?: string;
  /** Credentials of the operator; sent to this API only. */
  headers?: Record<string, string>;
  /** Each user grants access in a browser, at this issuer, to this OAuth client [one registered dynamically]. */
  userOauth?: NonNullable<McpServer['userOauth']> & { issuer: string };
}

/**
 * An agent of another service. `url` is its card or the card's parent address; `headers` are sent to that origin only.
 */
export interface RemoteAgent {
  url: string;
  headers?: Record<string, string> | undefined;
  /** URL of a JWK set; one of its keys must have signed the card [signatures are not checked]. */
  keys?: string | undefined;
  /** Each user grants access in a browser, at this issuer, to this OAuth client [one registered dynamically]. */
  userOauth?: (NonNullable<McpServer['userOauth']> & { issuer: string }) | undefined;
}

/** Supplies the tools of an agent's MCP servers without connecting to the servers. */
export type ServerTools = (agentName: string, servers: McpServer[]) => Tool[];

export interface MemorySettings {
  /** Model and dimensions of the memory vectors [none: search by words only]. */
  embeddings?: ModelTarget & { dimensions?: number };
  /**
   * What of a successful invocation is remembered: everything, texts that match a pattern, texts for which a function
   * returns true, or texts that the agent's model chooses by this rule [only what clients add].
   */
  remember?: 'always' | RegExp[] | { judge: string } | ((text: string, author: string) => unknown);
}

export interface CompactionSettings {
  /** Estimated prompt tokens above which older events are summarised. */
  tokenBudget: number;
  /** Newest invocations that are never summarised, including the current one [2]. */
  keepInvocations?: number;
}
