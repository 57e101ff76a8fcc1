import type { Content, JsonObject, Part } from '../../core/content.ts';
import type { EventActions } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import type { Log } from '../../platform/log.ts';
import type { AgentNode } from './agent.ts';
import type { ToolDeclaration } from './model.ts';

/** Services of the runtime for tools, bound to the session's user. */
export interface ToolServices {
  saveArtifact(name: string, part: Part, customMetadata?: JsonObject): Promise<number>;
  /**
   * Loads the latest or the given version; `undefined` if it does not exist. @throws {TooLargeError} above `maxBytes`
   */
  loadArtifact(name: string, version?: number, maxBytes?: number): Promise<Part | undefined>;
  /** Lists the first 1,000 artifacts of the session and the user by name, sorted. */
  listArtifacts(): Promise<string[]>;
  /** Returns at most 20 memories of this user in this application that match the words, best first. */
  searchMemory(query: string): Promise<{ author: string; timestamp: string; content: Content }[]>;
}

/** The service's log for one tool call: each line names the call, request, session and invocation. */
export type ToolLog = Record<'debug' | 'info' | 'warn' | 'error', (message: string, fields?: JsonObject) => void>;

/** Returns the service's log for code of an agent's author; each line contains `context`. */
export function toToolLog(log: Log | undefined, context: JsonObject): ToolLog {
  const at =
    (level: keyof ToolLog): ToolLog[keyof ToolLog] =>
    (message, fields) =>
      log?.[level]({ ...fields, ...context }, message);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** A person's answer to a confirmation that a tool requested; `payload` if the request had a form. */
export interface Confirmation {
  confirmed: boolean;
  payload?: JsonObject | undefined;
  /** Stored by the tool for itself with the request. */
  kept: JsonObject;
}

export interface ToolContext {
  session: SessionKey;
  invocationId: string;
  functionCallId: string;
  /** Idempotency key of the call: the same when the call is retried. */
  operationId: string;
  /** The state as this invocation sees it, including `temp:` keys and changes of earlier steps. */
  state: Readonly<JsonObject>;
  /**
   * Written by the tool; stored in the function-response event (`stateDelta`, `artifactDelta`, `transferToAgent` …).
   */
  actions: EventActions;
  /** A person's answer to a confirmation that this tool requested in `actions.requestedToolConfirmations`. */
  confirmation?: Confirmation | undefined;
  /** Stores what another process needs to resume this call if this process dies [nothing is stored]. */
  keep(value: JsonObject): Promise<void>;
  /** The value that an earlier attempt of this call stored with `keep`. */
  kept?: JsonObject | undefined;
  /** Media that the model sees with the response: each becomes one of the function response's `parts`. */
  attachments: Part[];
  services: ToolServices;
  /** For a transactional tool: queries the tool schema, in the transaction that also stores the response. */
  sql: ToolSql;
  log: ToolLog;
  signal: AbortSignal;
  /** Calls another agent on this invocation's account: its model calls are charged, its events are not stored. */
  callAgent(agent: AgentNode, request: string): Promise<AgentReply>;
}

export interface AgentReply {
  text: string;
  value?: unknown;
  actions: Pick<EventActions, 'stateDelta' | 'artifactDelta'>;
}

/**
 * The effect of a tool on the world. After a crash, a call without effect or with an `idempotent` effect is retried; a
 * call that acts `once` is not.
 */
export type Effect = (typeof EFFECTS)[number];
/** The outcome of an operation: it took effect and answered, or it did not take effect. */
export type OperationOutcome = { done: true; response: unknown } | { done: false };
export const EFFECTS = ['none', 'idempotent', 'once'] as const;

/**
 * Who answers a call that waits for a person, a time or a signal, and what happens without an answer. Only the tool's
 * author sets these, because a model must not be able to put tasks into other users' inboxes.
 */
export interface Wait {
  /** [`confirmation` or `call`, by the tool] */
  kind?: 'question' | 'sleep' | 'signal';
  /** Shown to those who may answer [the tool's text]. */
  hint?: string;
  /** JSON Schema of the answer [any object]. */
  schema?: JsonObject;
  /** Users and groups that may answer [the user of the session]. */
  users?: string[];
  groups?: string[];
  /** Number of people who must approve [1]; one refusal suffices. */
  approvals?: number;
  /** True: the user of the session may not answer [false]. */
  excludesRequester?: boolean;
  /** Deadline in seconds [none]; `expiresAt` sets it as a time. */
  expiresAfter?: number;
  /** `YYYY-MM-DDThh:mm` in `timeZone` [UTC]. */
  expiresAt?: string;
  timeZone?: string;
  /** Seconds until each reminder, in order. */
  remindAfter?: number[];
  /** Groups that may answer after the deadline, for the same time again; then the default answer is used. */
  escalateTo?: string[];
  /** The response of a call that nobody answers [a confirmation is refused, any other call fails]. */
  defaultAnswer?: JsonObject;
  /** Name of the signal that answers the call. */
  signal?: string;
}

export interface ToolLimits {
  /** Maximum time of an attempt; a call that acts `once` may have taken effect by then [only the tool's own limit]. */
  timeoutMs?: number;
  /** Retries after a failure, with back-off, for the effects `none` and `idempotent` only [0]. */
  retries?: number;
  /** Concurrent calls in this process; users take turns [no limit]. */
  concurrency?: number;
  /** Maximum size of a result in characters of JSON; the model is told of a larger one [500,000]. */
  maxResultCharacters?: number;
}

export interface Tool extends ToolDeclaration {
  /** True: the invocation pauses until a person has confirmed the call. */
  needsConfirmation: boolean;
  /** True: a person or another system answers later, and `undefined` from `run` pauses the invocation. */
  longRunning?: boolean;
  /** Who answers calls that need a confirmation or a later answer [the user of the session]. */
  wait?: Wait | ((args: JsonObject) => Wait);
  /** True: the client runs it, and the next request brings the answer. */
  isOfClient?: boolean;
  /** True: the tool belongs to an MCP server that a request named [false]. */
  isBrought?: boolean;
  /** [`once`; for an agent it follows from its tools] */
  effect?: Effect;
  /**
   * True: the effects through `context.sql` are committed together with the response, and rolled back if the tool
   * throws or its process dies. Such a tool declares no other effect [false].
   */
  transactional?: boolean;
  /** Finds out after a crash whether a call took effect; `undefined` or a throw means unknown [unknown]. */
  check?: (operationId: string, signal: AbortSignal) => Promise<OperationOutcome | undefined>;
  limits?: ToolLimits;
  /** What happens if it stays unknown whether a call took effect: the model is told, or a person is asked [`tell`]. */
  onUnknown?: 'tell' | 'ask';
  /** Set if a call leaves the loop's own agents: for a server elsewhere, or an agent that is a tool. */
  calls?: 'server' | AgentNode;
  /**
   * Checks the arguments against `parameters`; returns a sentence for the model, or `undefined` if they fit; never
   * rejects [on the main thread, which is safe only for schemas of the operator].
   */
  checkArguments?(args: JsonObject, signal: AbortSignal): Promise<string | undefined>;
  /**
   * An object becomes the function response unchanged; any other value becomes `{result: …}`, a throw `{error:
   * message}`.
   */
  run(args: JsonObject, context: ToolContext): Promise<unknown>;
}

/** Returns the schema of a tool's arguments: an object with exactly these members. */
export const toParameters = (properties: JsonObject, ...required: string[]): JsonObject => ({
  type: 'object',
  properties,
  ...(required.length > 0 && { required }),
  additionalProperties: false,
});

export type LedgerEffect = Effect | 'transactional';

/**
 * True if an eval or a replay may call the tool: nobody has to confirm or answer its calls. For other tools the stored
 * answer is used.
 */
export const runsUnattended = ({ needsConfirmation, longRunning, wait }: Tool): boolean =>
  !needsConfirmation && longRunning !== true && wait === undefined;

/** Returns a tool's effect. An agent as a tool acts `once` if any tool of its tree does. */
export function getEffect({ calls, transactional = false, effect = 'once' }: Tool): LedgerEffect {
  if (transactional) return 'transactional';
  if (typeof calls !== 'object') return effect;
  const acts = ({ tools, subAgents }: AgentNode): boolean =>
    tools.some((tool) => ['once', 'transactional'].includes(getEffect(tool))) || subAgents.some(acts);
  return acts(calls) ? 'once' : 'idempotent';
}
