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

/** Maximum number of model calls of one invocation where nothing else is said. */
export const DEFAULT_MAX_LLM_CALLS = 500;

/** A `harness.yaml` as it is written, in snake_case. */
export type HarnessFile = z.output<typeof harnessSchema>;

/** An agent application in code, named by its directory; what is left out has the defaults of a definition. */
export interface AgentSource extends Partial<Omit<AgentDefinition, 'name' | 'tools' | 'subAgents' | 'outputSchema'>> {
  /** Names of built-in tools, and tools of its own. */
  tools?: (string | Tool)[];
  subAgents?: (AgentSource & { name: string })[];
  /** Form of its answer, a zod schema or JSON Schema: what does not fit is asked for again [text]. */
  outputSchema?: WrittenSchema;
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
  /** Wins over `modelName`. [that of the agent above] */
  model?: AgentModel;
  tools: string[];
  skills: string[];
  mcpServers: McpServer[];
  /** Names of tools, those of MCP servers included, whose calls a person has to confirm. */
  confirmTools?: string[];
  /** Effects of tools by name, those of MCP servers included [as the tool or its server says]. */
  toolEffects?: Record<string, Effect>;
  /** Limits of tools by name, those of MCP servers included; each wins over the tool's own. */
  toolLimits?: Record<string, ToolLimits>;
  /** Documents of HTTP APIs, some of whose operations are tools. */
  openapi?: OpenApiSource[];
  /** Names of tools about whose calls a person is asked where it stays unknown whether they acted. */
  askWhenUnknown?: string[];
  /** [that of the agent above] */
  sampling?: Sampling;
  subAgents?: AgentDefinition[];
  /** True: the agent above calls it like a tool and goes on itself, instead of handing over to it. */
  asTool?: boolean;
  /** The service that it runs in, which speaks A2A [this one]. */
  remote?: RemoteAgent;
  /** Called while the agent runs. */
  hooks?: Hooks;
  /** Hooks of all agents of the application, before their own; the root's count. */
  plugins?: Hooks[];
  /** Form of the agent's answer [text]. */
  outputSchema?: OutputSchema;
  /** State key that receives the agent's answer: its text, or the value of its form. */
  outputKey?: string;
  /** Maximum number of rounds of a `loop` [until a sub-agent escalates]. */
  maxIterations?: number;
  /** Maximum number of model calls of one invocation [500]; the root's counts. */
  maxLlmCalls?: number;
  /** [never]; the root's counts. */
  compaction?: CompactionSettings;
  /** The root's counts. */
  memory?: MemorySettings;
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
  /** Most tokens of the invocation, prompts and answers; the prompt of its last call may pass it. */
  tokensAtMost?: number;
  /** Lowers the time limit of the invocation and never raises it. */
  timeAtMostMs?: number;
  /** Replaces the members that it has. */
  sampling?: Sampling;
  /** Form of the answer, JSON Schema that is not to be trusted: of all agents that may give the last one. */
  outputSchema?: JsonObject;
  /** Offered to the model beside the agent's own, and run by the client. */
  clientTools?: ClientTool[];
  /** What the first model call of the request has to call. */
  toolChoice?: ToolChoice;
  /** A member of the request that this runtime cannot honour: the invocation fails with its name. */
  unsupported?: string;
}

/** A model of a provider. */
export interface ModelTarget {
  /** The provider as `MODEL_PROVIDER` spells it, or a model of your own [that of the environment]. */
  provider?: Provider | Model;
  name: string;
  /** [that of the environment where it is the same provider, else the provider's public one] */
  baseUrl?: string;
  /** [that of the environment where provider and address are the same, else none] */
  apiKey?: string;
}

/** The model of an agent, and those that are asked where it fails. */
export interface AgentModel extends ModelTarget {
  fallbacks?: ModelTarget[];
  /** Maximum time until an answer begins, where a fallback is left [no limit but the provider's]. */
  firstTokenMs?: number;
}

/** A model with the name that it is called by. */
export type NamedModel = { model: Model; modelName: string };

/** One agent of a prepared tree, its tools found. */
export interface AgentNode {
  name: string;
  description: string;
  kind: AgentKind;
  /** A template: `{name}`, `{name?}`, `{app:x}` and `{artifact.x}` are filled in before each model call. */
  instruction: string;
  /** Follows the instruction as it is: the list of the agent's skills. */
  appendedInstruction: string;
  /** What of it a request has brought [nothing]. */
  isBrought?: { instruction?: boolean; form?: boolean };
  model: Model;
  modelName: string;
  /** True: it runs in another service, and its model is the way to it [false]. */
  isRemote?: boolean;
  /** Asked in order where the model fails before it begins an answer [none]. */
  fallbacks?: NamedModel[];
  firstTokenMs?: number;
  tools: Tool[];
  sampling: Sampling;
  /** Without those that are tools. */
  subAgents: AgentNode[];
  outputSchema?: OutputSchema;
  /** Those of plugins, then its own [none]. */
  hooks?: Hooks[];
  outputKey?: string;
  maxIterations?: number;
}

/** An agent tree ready for one invocation, its MCP servers connected. */
export interface PreparedAgent extends AgentNode {
  /** Maximum number of model calls of the invocation, those of sub-agents and summaries included. */
  maxLlmCalls: number;
  /** Maximum number of tokens of the invocation, the prompt of its last call left out [no limit but budgets]. */
  maxTokens?: number | undefined;
  compaction?: CompactionSettings;
  /** What the first model call has to call [nothing]. */
  toolChoice?: ToolChoice;
  /** Ends the MCP sessions; safe to call twice, never throws. */
  close: () => Promise<void>;
}

/** The way an agent works: `llm` calls its model; the others run sub-agents in turn, side by side, or repeatedly. */
export type AgentKind = 'llm' | 'sequential' | 'parallel' | 'loop';

/**
 * An MCP server: a remote one (`url`), or a program of the operator's (`command`). `name` appears in errors and logs,
 * `headers` are sent to it and nowhere else.
 */
export interface McpServer {
  name: string;
  url?: string;
  /** A program that each invocation starts and speaks with over its standard streams; never of a request. */
  command?: string;
  /** Its arguments [none]. */
  args?: string[];
  /** Its environment, beside `PATH`, `HOME` and the like: nothing else of this process's. */
  env?: Record<string, string>;
  transport?: 'streamable-http' | 'sse';
  headers?: Record<string, string>;
  /** True: the agent gets tools that list and read the server's resources [false]. */
  resources?: boolean;
  /** True: the agent gets tools that list and fill in the server's prompts [false]. */
  prompts?: boolean;
  /** Maximum time of one call, milliseconds [60,000]; not of a request. */
  callTimeoutMs?: number;
  /** Maximum time until it is connected, milliseconds [15,000]; not of a request. */
  connectTimeoutMs?: number;
  /**
   * What a failure to connect does: end the invocation, or leave the tools out and tell the model [`skip` if the server
   * gave no answer or one of 5xx, else `fail`; `fail` for the servers of a request].
   */
  onFailure?: 'fail' | 'skip';
  /** Credentials of the operator, for a token of this issuer; never of a request. */
  oauth?: { clientId: string; clientSecret: string; issuer: string; scope?: string | undefined };
  /**
   * Each user grants access in a browser, to this client [one that is registered on the way; an https address is a
   * metadata document of the client]; never of a request.
   */
  userOauth?: {
    clientId?: string | undefined;
    clientSecret?: string | undefined;
    issuer?: string | undefined;
    scope?: string | undefined;
  };
}

/** Returns the address of a server, or the program that it is. */
export const toAddress = ({ url = '', command, args }: McpServer): string =>
  command === undefined ? url : JSON.stringify([command, args]);

/** An HTTP API: the operations that are named become tools, with the effects that HTTP gives their methods. */
export interface OpenApiSource {
  /** Appears in errors. */
  name: string;
  /** An OpenAPI 3 document, or the path of its file, JSON or YAML. */
  document: string | JsonObject;
  /** Operation ids. */
  operations: string[];
  /** [the first server of the document] */
  baseUrl?: string;
  /** Credentials of the operator: sent to this API and nowhere else. */
  headers?: Record<string, string>;
  /** Each user grants access in a browser, at this issuer, to this client [one that is registered on the way]. */
  userOauth?: NonNullable<McpServer['userOauth']> & { issuer: string };
}

/** An agent of another service: its card, or what it is below; `headers` are sent to its origin and nowhere else. */
export interface RemoteAgent {
  url: string;
  headers?: Record<string, string> | undefined;
  /** Address of a JWK set, by one of whose keys the card has to be signed [signatures are not looked at]. */
  keys?: string | undefined;
  /** Each user grants access in a browser, at this issuer, to this client [one that is registered on the way]. */
  userOauth?: (NonNullable<McpServer['userOauth']> & { issuer: string }) | undefined;
}

/** The tools of an agent's MCP servers, from elsewhere than the servers. */
export type ServerTools = (agentName: string, servers: McpServer[]) => Tool[];

/** Settings of an application's memory. */
export interface MemorySettings {
  /** The model that makes vectors of what is remembered and looked for, and their length [none: words alone]. */
  embeddings?: ModelTarget & { dimensions?: number };
  /**
   * The part of an invocation that is remembered once it has succeeded: all, texts with one of the patterns, those for
   * which a function returns true, or those that the agent's model chooses by this rule [what clients add].
   */
  remember?: 'always' | RegExp[] | { judge: string } | ((text: string, author: string) => unknown);
}

/** When and how much of a history is replaced by a summary. */
export interface CompactionSettings {
  /** Estimated prompt tokens from which older events are summarised. */
  tokenBudget: number;
  /** Invocations at the end that stay as they are, the current one included [2]. */
  keepInvocations?: number;
}
