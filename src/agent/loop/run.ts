import type { JsonObject } from '../../core/content.ts';
import type { ErrorCode } from '../../core/error-codes.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Log } from '../../platform/log.ts';
import type { PreparedAgent } from '../definition/agent.ts';
import type { AgentNode, AgentReply } from '../definition/tool.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { ToolServices } from '../definition/services.ts';
import type { CallLedger, OpenCall, Transact } from './call-ledger.ts';
import type { Inbox } from './inbox.ts';
import type { Script } from './script.ts';

export interface RunInput {
  agent: PreparedAgent;
  session: SessionKey;
  invocationId: string;
  /** The stored events of the session in order. The last one is the user's message of this invocation. */
  history: Event[];
  /** The steps that a crashed process stored for this invocation; they are taken, not made again. */
  script?: Script | undefined;
  /** Messages that come while the invocation runs. Default: none come. */
  inbox?: Inbox | undefined;
  /** Records tool calls so that another process can resume the invocation. Default: they are not recorded. */
  ledger?: CallLedger | undefined;
  /** Tool call that runs this agent, if the agent is used as a tool. */
  parentCall?: ParentCall | undefined;
  /** Runs agents that are used as tools in sessions of their own. Default: they run within this invocation, unstored. */
  children?: Children | undefined;
  /** True for a child: another service then sees each of its calls as a conversation of its own. Default: false. */
  isChild?: boolean;
  /** Runs transactional tools. Default: their calls fail. */
  transact?: Transact | undefined;
  /** Token and call counters, which the caller stores with each event. Default: new counters at zero. */
  used?: UsedSoFar;
  /** Ids of the events that the runtime made. A confirmation request counts only in such an event. */
  runtimeEventIds: ReadonlySet<string>;
  /** Tool calls on which the last event decides (`findConfirmations`): they are run or refused before all else. */
  confirmed: ConfirmedCalls[];
  /** State of the session, the user and the application, merged, at the invocation's start. */
  state: JsonObject;
  /** Aborted with an `AgentError` as its reason: cancelled, interrupted, or over the time limit. */
  signal: AbortSignal;
  /** When the time limit ends the invocation, on the clock of `performance.now()`. Default: unknown. */
  endTime?: number;
  streaming: boolean;
  /** Maximum size of an event with function responses, in characters of JSON. Default: 1,048,576. */
  eventBytes?: number;
  services: ToolServices;
  /** Log for messages of tools, and for stack traces of their failures. Default: nothing is logged. */
  log?: Log | undefined;
  newId(): string;
  observer?: RunObserver | undefined;
  /**
   * Called with each model request, before hooks change it. `sent` is the copy that hooks may change, with an abort
   * signal for this call alone.
   */
  onRequest?: ((agent: ObservedAgent, request: ModelRequest, sent: ModelRequest) => void) | undefined;
  /**
   * Called before each model call: reserves its cost in the budgets, and returns the request to send (it may allow
   * fewer output tokens); `undefined` if there are no budgets. `end` releases the reservation.
   * @throws {AgentError} if a budget forbids the call
   */
  reserve?: ((request: ModelRequest) => Promise<{ request: ModelRequest; end(): void } | undefined>) | undefined;
  /** Receives each event of an agent used as a tool. Such events are not stored, but count towards the limits. */
  onUnstoredEvent?: ((event: NewEvent) => Promise<void>) | undefined;
  /** Called with the token counts of each model call, before the event of the call is yielded. */
  onUse?:
    | ((use: { model: string; answeredAs: string; promptTokens: number; outputTokens: number }) => void)
    | undefined;
}

/** The call of an agent that is used as a tool, which runs as an invocation of a child session. */
export interface ChildCall {
  agent: AgentNode;
  /** The text that the model sends to the agent. */
  request: string;
  callId: string;
  /** Id of the operation, and of the child session: the same for each attempt of the call. */
  operationId: string;
  /** State of the parent, with `temp:` keys, with which the child session begins. */
  state: JsonObject;
  /** Model calls and tokens that the parent may still use, those of children included that have not ended. */
  llmCallsLeft: number;
  tokensLeft: number;
  /** Number of parts into which what is left is divided: a part of each child, and one that stays with the parent. */
  share: number;
  /** True: the call does not wait for the agent, whose result comes as a message of so many characters at most. */
  inBackground: boolean;
  charactersAtMost: number;
  signal: AbortSignal;
}

export interface Children {
  /** Model calls and tokens that children may still use which have not ended. */
  readonly lent: { readonly llmCalls: number; readonly tokens: number };
  /** True if any process finds this agent by its name, so that it may run in a session of its own. */
  has(agent: AgentNode): boolean;
  /** False where each call waits for its agent, because the session ends with the turn. */
  readonly mayOutlive: boolean;
  /**
   * Starts the child unless an earlier attempt of the call did, and waits for its end unless it works in the background.
   * @throws {ChildWaitsError} if it waits for a person, a time, a signal or a budget
   * @throws {Error} with its error, if it failed
   */
  call(call: ChildCall): Promise<AgentReply>;
}

/** The call of an agent used as a tool. Data that remote agents within it `keep` are stored with this call. */
export interface ParentCall {
  /** Stored data by the operation id of the remote agent's call. */
  kept: JsonObject;
  keep(kept: JsonObject): Promise<void>;
}

/** Tool calls on which a person has decided, and the agent that made them. */
export interface ConfirmedCalls {
  agentName: string;
  branch: string | undefined;
  calls: OpenCall[];
  decisions: Map<string, boolean>;
}

/** A person's reply that closed a task in an inbox (`tasks`); the person was allowed to reply. */
interface TaskAnswer {
  invocationId: string;
  response: JsonObject;
}

/** Replies that closed tasks of a session, by the id of the function call for which each task was created. */
export type TaskAnswers = ReadonlyMap<string, TaskAnswer>;

export type UsedSoFar = Pick<RunEnd, 'llmCalls' | 'promptTokens' | 'outputTokens'> & { lent?: Loan };

/** What an invocation has lent to agents in the background, and may not use any more: the limits of their work. */
export type Loan = Record<'llmCalls' | 'toolCalls' | 'tokens', number>;

/** An agent as observers see it: its instruction still has the placeholders. */
export type ObservedAgent = Pick<
  AgentNode,
  'name' | 'instruction' | 'appendedInstruction' | 'tools' | 'model' | 'outputSchema' | 'hooks'
>;

export interface ObservedStep<Result> {
  /** W3C trace context, sent with the requests of this model or tool call to other systems. */
  traceparent?: string | undefined;
  /** Called before each attempt of a model call; `asWhole` is false if it asks for a stream. */
  ask?: ((asWhole: boolean) => void) | undefined;
  /** Called when the first piece of the model's output arrives, if it is streamed. */
  begin?: (() => void) | undefined;
  /** Called with each part of the provider's response that is unknown and therefore skipped. */
  passOver?: (() => void) | undefined;
  /** `result` is undefined if the call was aborted or waits for a person. `stack` says where a tool's code failed. */
  end(result: Result | undefined, stack?: string): void;
}

/** Traces or records an invocation's model and tool calls while they happen. The methods never block or throw. */
export interface RunObserver {
  /** `end` gets the event of the model call. `sent` is the request after the hooks changed it. */
  modelCall?(agent: ObservedAgent, request: ModelRequest, sent: ModelRequest): ObservedStep<NewEvent> | undefined;
  toolCall?(
    agentName: string,
    call: { id: string; name: string; args: JsonObject },
  ): ObservedStep<JsonObject> | undefined;
  event?(event: NewEvent): void;
}

export interface InvocationObserver extends RunObserver {
  /**
   * Called once. `undefined`: this process does not know how the invocation ended, because another process took over or
   * the database cannot be reached.
   */
  end(ending: Pick<RunEnd, 'error' | 'paused'> | undefined): void;
}

/** If several observers supply a trace context, the first is used. */
export function observeAll(observers: readonly RunObserver[]): RunObserver | undefined {
  if (observers.length < 2) return observers[0];
  return {
    modelCall: (...call) => together(observers.flatMap((observer) => observer.modelCall?.(...call) ?? [])),
    toolCall: (...call) => together(observers.flatMap((observer) => observer.toolCall?.(...call) ?? [])),
    event(event) {
      for (const observer of observers) observer.event?.(event);
    },
  };
}

const together = <Result>(steps: ObservedStep<Result>[]): ObservedStep<Result> => ({
  traceparent: steps.find(({ traceparent }) => traceparent !== undefined)?.traceparent,
  ask(asWhole) {
    for (const step of steps) step.ask?.(asWhole);
  },
  begin() {
    for (const step of steps) step.begin?.();
  },
  passOver() {
    for (const step of steps) step.passOver?.();
  },
  end(result, stack) {
    for (const step of steps) step.end(result, stack);
  },
});

/**
 * How an invocation ended. The caller stores `lastEvent`, which was not yielded, in the same statement as the
 * invocation's status. An invocation that pauses may have no last event.
 */
export interface RunEnd {
  lastEvent: NewEvent | undefined;
  /** Text of the last event that has text other than thoughts; `''` after an error. */
  output: string;
  error: { code: ErrorCode; message: string /** For the log only. */; cause?: unknown } | undefined;
  /** True if the invocation waits for a person or another system, because of a confirmation or a long-running tool. */
  paused: boolean;
  value?: unknown;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
}
