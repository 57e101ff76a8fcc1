import type { Content, JsonObject, Part } from '../../core/content.ts';
import type { EventActions } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import type { Log } from '../../platform/log.ts';
import type { AgentNode } from './agent.ts';
import type { ToolDeclaration } from './model.ts';

/** Services of the runtime for tools, bound to the session's own user. */
export interface ToolServices {
  /** Saves a new version and returns its number. */
  saveArtifact(name: string, part: Part, customMetadata?: JsonObject): Promise<number>;
  /** The latest or the given version; `undefined` where there is none. @throws {TooLargeError} above `maxBytes` */
  loadArtifact(name: string, version?: number, maxBytes?: number): Promise<Part | undefined>;
  /** Names of the session's and the user's artifacts, sorted; the first 1,000. */
  listArtifacts(): Promise<string[]>;
  /** Memories of this user of this app that match the words, best first; at most 20. */
  searchMemory(query: string): Promise<{ author: string; timestamp: string; content: Content }[]>;
}

/** The service's log for one tool call: its lines name the call, and the request, session and invocation. */
export type ToolLog = Record<'debug' | 'info' | 'warn' | 'error', (message: string, fields?: JsonObject) => void>;

/** Returns the service's log for code of an agent's author; `named` stands in each line. */
export function toToolLog(log: Log | undefined, named: JsonObject): ToolLog {
  const at =
    (level: keyof ToolLog): ToolLog[keyof ToolLog] =>
    (message, fields) =>
      log?.[level]({ ...fields, ...named }, message);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** A person's answer to a request of a tool: yes or no, and more where the request has a form. */
export interface Confirmation {
  confirmed: boolean;
  payload?: JsonObject | undefined;
  /** Put there by the tool for itself. */
  kept: JsonObject;
}

/** The data that one tool call can read and change. */
export interface ToolContext {
  session: SessionKey;
  invocationId: string;
  functionCallId: string;
  /** Names what this call does, the same when it is run again: for a service that knows repeats by a key. */
  operationId: string;
  /** The state as this invocation sees it, deltas and `temp:` keys of earlier steps included. */
  state: Readonly<JsonObject>;
  /** Written by the tool; part of the function-response event (`stateDelta`, `artifactDelta`, `transferToAgent` …). */
  actions: EventActions;
  /** The answer of a person to what the tool itself had put into `actions.requestedToolConfirmations`. */
  confirmation?: Confirmation | undefined;
  /** Keeps what another process needs to go on with this call, where this one dies [nothing is kept]. */
  keep(value: JsonObject): Promise<void>;
  /** The value that an earlier attempt at this call kept. */
  kept?: JsonObject | undefined;
  /** Media that the model sees with the response: each becomes one of the function response's `parts`. */
  attachments: Part[];
  services: ToolServices;
  /** For a transactional tool: works in the schema of the tools, in the transaction that also keeps the response. */
  sql: ToolSql;
  log: ToolLog;
  signal: AbortSignal;
  /** Asks another agent on this invocation's account: its model calls count, its events are not stored. */
  callAgent(agent: AgentNode, request: string): Promise<AgentReply>;
}

/** The answer of an agent that was called as a tool. */
export interface AgentReply {
  text: string;
  /** The checked value of an answer that has a form. */
  value?: unknown;
  actions: Pick<EventActions, 'stateDelta' | 'artifactDelta'>;
}

/**
 * The effect of a tool on the world. Where the process died that ran a call, another one calls a tool again that has
 * none, or whose second call changes nothing more (`idempotent`); one that acts `once` is not called again.
 */
export type Effect = (typeof EFFECTS)[number];
/** The outcome of an operation: it took effect, with this answer, or it did not. */
export type OperationOutcome = { done: true; response: unknown } | { done: false };
/** All effects. */
export const EFFECTS = ['none', 'idempotent', 'once'] as const;

/**
 * For whom a call waits that a person, a time or a signal answers, and what happens without an answer. Names are the
 * author's of the tool: what a model chooses must put nothing into the inbox of others.
 */
export interface Wait {
  /** [`confirmation` or `call`, by the tool] */
  kind?: 'question' | 'sleep' | 'signal';
  /** Shown to who answers [what the tool says]. */
  hint?: string;
  /** JSON Schema of the answer [any object]. */
  schema?: JsonObject;
  /** Users and groups that may answer [the user of the session]. */
  users?: string[];
  groups?: string[];
  /** Number of people who have to say yes [1]; one no is enough. */
  approvals?: number;
  /** True: the user of the session may not answer [false]. */
  excludesRequester?: boolean;
  /** Its deadline, in seconds or as a time [none]. */
  expiresAfter?: number;
  /** `YYYY-MM-DDThh:mm` by the clock of `timeZone` [UTC]. */
  expiresAt?: string;
  timeZone?: string;
  /** Seconds after which it reminds, in order. */
  remindAfter?: number[];
  /** Groups that it is for once its deadline is over, for as long again; then the default answer holds. */
  escalateTo?: string[];
  /** The response of the call where nobody answers [a confirmation is refused, any other call failed]. */
  defaultAnswer?: JsonObject;
  /** Name of the signal that answers it. */
  signal?: string;
}

/** Limits of the calls of one tool. */
export interface ToolLimits {
  /** Maximum time of a try; what acts once may have acted then [no limit but the tool's]. */
  timeoutMs?: number;
  /** Further tries after a failure, with back-off: for the effects `none` and `idempotent` only [0]. */
  retries?: number;
  /** Calls at once in this process; users wait in turn [no limit]. */
  concurrency?: number;
  /** Maximum size of a result in characters of JSON: the model is told of a larger one [500,000]. */
  maxResultCharacters?: number;
}

/** A tool that the model can call. */
export interface Tool extends ToolDeclaration {
  /** True where the invocation pauses until a person has confirmed the call. */
  needsConfirmation: boolean;
  /** True where a person or another system answers later: `undefined` from `run` pauses the invocation. */
  longRunning?: boolean;
  /** For whom its calls wait that need a confirmation, or are answered later [the user of their session]. */
  wait?: Wait | ((args: JsonObject) => Wait);
  /** True where the client runs it, and the next request brings the answer. */
  isOfClient?: boolean;
  /** True where it is of a server that a request has named [false]. */
  isBrought?: boolean;
  /** [`once`; that of an agent follows from its tools] */
  effect?: Effect;
  /**
   * True: what it does by `context.sql` is committed together with its response. A throw, or the death of its process,
   * leaves nothing of it, so it has no other effect to declare [false].
   */
  transactional?: boolean;
  /**
   * Says what has become of a call that may have acted, where its process died; `undefined`, or a throw: that is not
   * known [it is not known].
   */
  check?: (operationId: string, signal: AbortSignal) => Promise<OperationOutcome | undefined>;
  limits?: ToolLimits;
  /** The way on where it stays unknown whether a call acted: the model is told, or a person is asked [`tell`]. */
  onUnknown?: 'tell' | 'ask';
  /** Where calling it leads outside of the loop's own agents: a server elsewhere, or an agent that is a tool. */
  calls?: 'server' | AgentNode;
  /**
   * Compares the arguments with `parameters`: gives a sentence for the model, `undefined` if they fit; never rejects
   * [on the main thread, which only schemas may that the operator answers for].
   */
  checkArguments?(args: JsonObject, signal: AbortSignal): Promise<string | undefined>;
  /** An object is the function response as it is; anything else becomes `{result: …}`, a throw `{error: message}`. */
  run(args: JsonObject, context: ToolContext): Promise<unknown>;
}

/** Returns the schema of a tool's arguments: an object of these members and no others. */
export const toParameters = (properties: JsonObject, ...required: string[]): JsonObject => ({
  type: 'object',
  properties,
  ...(required.length > 0 && { required }),
  additionalProperties: false,
});

/** The effect of a call in the ledger: as declared, or committed together with its response. */
export type LedgerEffect = Effect | 'transactional';

/**
 * True where calls of a tool may be made with a stored model: no person is asked about them, and none answers them. The
 * stored answer of any other call is taken.
 */
export const runsUnattended = ({ needsConfirmation, longRunning, wait }: Tool): boolean =>
  !needsConfirmation && longRunning !== true && wait === undefined;

/** Returns the effect of a tool; an agent acts once where one of its tools does, or of those below it. */
export function getEffect({ calls, transactional = false, effect = 'once' }: Tool): LedgerEffect {
  if (transactional) return 'transactional';
  if (typeof calls !== 'object') return effect;
  const acts = ({ tools, subAgents }: AgentNode): boolean =>
    tools.some((tool) => ['once', 'transactional'].includes(getEffect(tool))) || subAgents.some(acts);
  return acts(calls) ? 'once' : 'idempotent';
}
