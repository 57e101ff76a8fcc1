import type { Event, NewEvent } from '../../core/event.ts';
import type { JsonObject } from '../../core/content.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Model, ModelRequest, Sampling } from '../models/model.ts';
import type { Tool, ToolServices } from '../tools/tool.ts';

/** A remote MCP server; `name` appears in errors and logs, `headers` are sent to it and nowhere else. */
export interface McpServer {
  name: string;
  url: string;
  transport?: 'streamable-http' | 'sse';
  headers?: Record<string, string>;
}

/** What an agent does: `llm` asks its model; the others run their sub-agents one after another, side by side, or again and again. */
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
  fixedInstruction: string;
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

/** What one invocation starts from. */
export interface RunInput {
  agent: PreparedAgent;
  session: SessionKey;
  invocationId: string;
  /** Stored events in order, the user's event of this invocation last. */
  history: Event[];
  /** Merged state of the session at the start. */
  state: JsonObject;
  /** Aborted with an `AgentError` as its reason (cancelled, interrupted, time limit). */
  signal: AbortSignal;
  /** True: partial events are yielded too. */
  streaming: boolean;
  services: ToolServices;
  /** A fresh event or call id. */
  newId(): string;
  observer?: RunObserver | undefined;
}

/** Hears the steps of an invocation as they happen, for its trace. Returns at once and never throws. */
export interface RunObserver {
  /** A model call begins; what is returned is called at its end, without an event where it was cut off. */
  modelCall(agentName: string, request: ModelRequest): (event: NewEvent | undefined) => void;
  /** A tool call begins; what is returned is called at its end, without a response where the call stays open. */
  toolCall(
    agentName: string,
    call: { id: string; name: string; args: JsonObject },
  ): (response: JsonObject | undefined) => void;
  /** A complete event was made. */
  event(event: NewEvent): void;
}

/** How an invocation ended. `lastEvent` is not yielded: the caller stores it together with the status; a pause may have none. */
export interface RunEnd {
  lastEvent: NewEvent | undefined;
  /** Text of the last event that has any which is not a thought; `''` after an error. */
  output: string;
  error: { code: string; message: string /** For the log only. */; cause?: unknown } | undefined;
  /** True where the invocation waits for a person: a confirmation or a long-running tool. */
  paused: boolean;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
}
