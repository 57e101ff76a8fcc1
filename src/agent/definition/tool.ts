import { z } from 'zod';
import type { JsonObject, Part } from '../../core/content.ts';
import type { EventActions } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import type { Hooks } from './hooks.ts';
import { type Of, optional, positive } from './members.ts';
import type { Model, Sampling, ToolDeclaration } from './model.ts';
import type { OutputSchema } from './output-schema.ts';
import type { ToolLog, ToolServices } from './services.ts';

/* Agents as they run, and their tools: an agent has tools, and a tool may be an agent. */

/** A person's reply to a confirmation that a tool requested; `payload` is present if the request had a form. */
export interface Confirmation {
  /** True if the person allowed the call. */
  confirmed: boolean;
  /** What the person filled into the form; absent without a form. */
  payload?: JsonObject | undefined;
  /** Data that the tool stored with its request for confirmation, for its next run. */
  kept: JsonObject;
}

/** What a tool gets besides its arguments. */
export interface ToolContext {
  /** The session of the call: `appName`, `userId` and `sessionId`; below an agent with `asTool` that of the user. */
  session: SessionKey;
  /** Id of the invocation that makes the call. */
  invocationId: string;
  /** Id of the call, as the model or the runtime gave it. */
  functionCallId: string;
  /** Idempotency key of the tool call: every retry has the same key. */
  operationId: string;
  /** The session state as this invocation sees it, including `temp:` keys and changes by its earlier events. */
  state: Readonly<JsonObject>;
  /** What the call does besides its answer: the tool fills in members, and they are stored with its function response. */
  actions: EventActions;
  /** A person's reply to a confirmation that this tool requested in `actions.requestedToolConfirmations`. */
  confirmation?: Confirmation | undefined;
  /** Stores data with which another process can resume this tool call if this process dies. */
  keep(value: JsonObject): Promise<void>;
  /** The data that an earlier attempt of this tool call stored with `keep`. */
  kept?: JsonObject | undefined;
  /** Media for the model. Each attachment becomes one of the `parts` of the function response. */
  attachments: Part[];
  /** Artifacts and memories of the session's user: `services.saveArtifact(…)`. */
  services: ToolServices;
  /** Queries the tools' database schema, in the transaction of the function response. Transactional tools only. */
  sql: ToolSql;
  /** Log of the service: `log.info(message, fields)`, also `debug`, `warn` and `error`. */
  log: ToolLog;
  /** Aborted when the invocation ends or the time of the call is over; pass it on to `fetch`. */
  signal: AbortSignal;
  /**
   * Runs another agent in this invocation: its model calls count towards the limits; its events are not stored, and it
   * cannot ask people. An agent that does both is a sub-agent with `asTool`. An abort of `signal` ends it; default: that
   * of the call.
   */
  callAgent(agent: AgentNode, request: string, signal?: AbortSignal): Promise<AgentReply>;
}

/** What an agent answered that a tool called with `context.callAgent`. */
export interface AgentReply {
  /** The text of its final answer. */
  text: string;
  /** The parsed answer of an agent with an output schema. */
  value?: unknown;
  /** Changes of state and artifacts by that agent; the tool decides whether to pass them on in its own `actions`. */
  actions: Pick<EventActions, 'stateDelta' | 'artifactDelta'>;
}

/**
 * A tool's effect outside this service. After a crash, a call with the effect `none` or `idempotent` is retried, a call
 * with the effect `once` is not.
 */
export type Effect = (typeof EFFECTS)[number];
/** Outcome of a call that a crash interrupted: it took effect (`done`) and has a response, or it did not. */
export type OperationOutcome = { done: true; response: unknown } | { done: false };
export const EFFECTS = ['none', 'idempotent', 'once'] as const;

/**
 * How a tool call waits for a person, a time or a signal: who may reply, and what happens if nobody does. Set by the
 * tool's author only, because a model must not be able to put tasks into other users' inboxes.
 */
export interface Wait {
  /** Kind of the waiting task. Default: `confirmation` for a tool that needs confirmation, else `call`. */
  kind?: 'question' | 'sleep' | 'signal';
  /** Text shown to the people who may reply to the call. Default: the text of the tool's request. */
  hint?: string;
  /** JSON Schema of a person's reply to the call. Default: any object. */
  schema?: JsonObject;
  /** Users that may reply to the tool's request. Default: the user of the session. */
  users?: string[];
  /** Groups that may reply, in addition to `users`. Default: none. */
  groups?: string[];
  /** Number of people who must approve the call; a single refusal rejects it. Default: 1. */
  approvals?: number;
  /** True: the user of the session may not reply to the call (four-eyes principle). Default: false. */
  excludesRequester?: boolean;
  /** Deadline for the reply, in seconds from the call; `expiresAt` is a deadline as a date. Default: no deadline. */
  expiresAfter?: number;
  /** Deadline for the reply as local time `YYYY-MM-DDThh:mm` in `timeZone`. Default time zone: UTC. */
  expiresAt?: string;
  /** Time zone of `expiresAt`, for example `Europe/Berlin`. Default: UTC. */
  timeZone?: string;
  /** Times of the reminders to those who may reply, in seconds from the call, ascending. */
  remindAfter?: number[];
  /** Groups that may reply to the call after the deadline, for as long again; then `defaultAnswer` is used. */
  escalateTo?: string[];
  /** Function response if nobody replied in time. Default: a confirmation counts as refused, another call fails. */
  defaultAnswer?: JsonObject;
  /** Name of the signal (sent over the API) that completes the call. */
  signal?: string;
}

const toolLimitsShape = {
  /**
   * Time limit of one attempt of a call, in milliseconds. After a timeout it is unknown whether a call with the effect
   * `once` took effect. Default: only the tool's own limit.
   */
  timeoutMs: optional(positive),
  /** Number of retries after a failure, with back-off; only for the effects `none` and `idempotent`. Default: 0. */
  retries: optional(z.int().min(0).max(10)),
  /** Maximum number of concurrent calls of the tool in this process; users take turns. Default: no maximum. */
  concurrency: optional(positive),
  /**
   * Maximum length of a result as JSON in a prompt; a longer one is kept for the tool `read_result`, and the model gets
   * its head. Default: 100,000, or an eighth of the model's context if that is less.
   */
  maxResultCharacters: optional(positive),
};
export const toolLimitsSchema = z.strictObject(toolLimitsShape);

/** Limits of the calls of one tool. */
export interface ToolLimits extends Of<typeof toolLimitsShape> {}

/** A tool as it runs; `defineTool` makes one. */
export interface Tool extends ToolDeclaration {
  /** True: the invocation pauses until a person has confirmed the call. Default: false. */
  needsConfirmation: boolean;
  /**
   * True: a person or another system may respond later; the invocation pauses if `run` returns `undefined`.
   * Default: false.
   */
  longRunning?: boolean;
  /** Who may confirm or answer the tool's waiting calls, and until when. Default: the user of the session. */
  wait?: Wait | ((args: JsonObject) => Wait);
  /** True: the client runs the tool, and the client's next request carries the response. */
  isOfClient?: boolean;
  /** True: the tool belongs to an MCP server that a request named, so it is untrusted. Default: false. */
  isBrought?: boolean;
  /**
   * What a second run of the same call does outside: nothing (`none`), the same (`idempotent`), or it acts again
   * (`once`). Default: `once`. The effect of an agent used as a tool follows from the tools of that agent.
   */
  effect?: Effect;
  /**
   * True: what the tool writes through `context.sql` is committed together with the function response, and rolled back
   * if the tool throws or its process dies. A transactional tool must not declare `effect`. Default: false.
   */
  transactional?: boolean;
  /** True: the same call may have the same answer any number of times, as of a tool that polls. Default: false. */
  mayRepeat?: boolean;
  /** Finds out after a crash whether a call took effect; `undefined` or an error means unknown. Default: unknown. */
  check?: (operationId: string, signal: AbortSignal) => Promise<OperationOutcome | undefined>;
  /** Time limit, retries, concurrency and size of the calls. Default: those of `ToolLimits`. */
  limits?: ToolLimits;
  /** If `check` cannot tell whether a call took effect: `tell` the model, or `ask` a person. Default: `tell`. */
  onUnknown?: 'tell' | 'ask';
  /** Who runs the calls, if not code of the tool: another server, or an agent that is used as a tool. */
  calls?: 'server' | AgentNode;
  /** Of an agent that is used as a tool: true if it works in the background; `optional`: if the call says so. */
  background?: boolean | 'optional';
  /**
   * Checks the arguments against `parameters`; returns a message for the model if they are invalid. Never rejects.
   * Default: a check on the main thread, which is safe only for schemas of the operator.
   */
  checkArguments?(args: JsonObject, signal: AbortSignal): Promise<string | undefined>;
  /** A returned object is the function response; another value becomes `{result: …}`, an error `{error: message}`. */
  run(args: JsonObject, context: ToolContext): Promise<unknown>;
}

/** `llm` calls a model; the other kinds run their sub-agents: in sequence, in parallel, or repeatedly. */
export type AgentKind = 'llm' | 'sequential' | 'parallel' | 'loop';
export const AGENT_KINDS = ['llm', 'sequential', 'parallel', 'loop'] as const satisfies readonly AgentKind[];

/** A model with the name by which it is called. */
export type NamedModel = { model: Model; modelName: string; contextTokens?: number };

/** An agent as it runs, for `context.callAgent`. */
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
  /** Context window of the model, in tokens. Default: unknown. */
  contextTokens?: number;
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

/** A JSON Schema for an object with these properties and no others. */
export const toParameters = (properties: JsonObject, ...required: string[]): JsonObject => ({
  type: 'object',
  properties,
  ...(required.length > 0 && { required }),
  additionalProperties: false,
});

export type LedgerEffect = Effect | 'transactional';

/**
 * True if an evaluation or a replay may run the tool, because no person has to confirm or answer its calls. The calls
 * of other tools get the stored response.
 */
export const runsUnattended = ({ needsConfirmation, longRunning, wait }: Tool): boolean =>
  !needsConfirmation && longRunning !== true && wait === undefined;

/**
 * The effect of an agent used as a tool is `once` if any tool in its tree has that effect or is transactional, else
 * `idempotent`.
 */
export function getEffect({ calls, transactional = false, effect = 'once' }: Tool): LedgerEffect {
  if (transactional) return 'transactional';
  if (typeof calls !== 'object') return effect;
  const acts = ({ tools, subAgents }: AgentNode): boolean =>
    tools.some((tool) => ['once', 'transactional'].includes(getEffect(tool))) || subAgents.some(acts);
  return acts(calls) ? 'once' : 'idempotent';
}
