import type { JsonObject } from '../../core/content.ts';
import type { ErrorCode } from '../../core/error-codes.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Log } from '../../platform/log.ts';
import type { AgentNode, PreparedAgent } from '../definition/agent.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { ToolServices } from '../definition/tool.ts';
import type { CallLedger, Transact } from './call-ledger.ts';
import type { ParentCall } from './remote-call.ts';
import type { TaskAnswers } from './confirmation.ts';
import type { StoredSteps } from './stored-steps.ts';

export interface RunInput {
  agent: PreparedAgent;
  session: SessionKey;
  invocationId: string;
  /** Stored events in order; the last is the user's event of this invocation. */
  history: Event[];
  /** Set if a crashed run is resumed: its steps so far, taken instead of being made again. */
  stored?: StoredSteps | undefined;
  /** Records tool calls [they are not recorded]. */
  ledger?: CallLedger | undefined;
  /** Set if this run is an agent used as a tool: the call that it belongs to. */
  parentCall?: ParentCall | undefined;
  /** Runs transactional tools [they fail]. */
  transact?: Transact | undefined;
  /** Usage counters of the caller, which stores them with each event [from zero]. */
  used?: UsedSoFar;
  /** Ids of the events that the runtime made: only their confirmation requests count. */
  runtimeEventIds: ReadonlySet<string>;
  /** Accepted answers to the questions that the last event answers. Only these can approve a call. */
  taskAnswers: TaskAnswers;
  /** Merged state of the session at the start. */
  state: JsonObject;
  /** Aborted with an `AgentError` as its reason (cancelled, interrupted, time limit). */
  signal: AbortSignal;
  /** When the time limit ends the invocation, by `performance.now()` [unknown]. */
  endTime?: number;
  streaming: boolean;
  /** Maximum size of one step's tool answers together, in characters of JSON: the limit of an event [1,048,576]. */
  eventBytes?: number;
  services: ToolServices;
  /** Receives what tools log and where their code failed [nothing is logged]. */
  log?: Log | undefined;
  newId(): string;
  observer?: RunObserver | undefined;
  /**
   * Awaited before each model call: reserves it in the budgets and returns the request to make instead, or `undefined`
   * if there are no budgets. `end` releases the reservation. @throws {AgentError} if the call is not allowed
   */
  reserve?: ((request: ModelRequest) => Promise<{ request: ModelRequest; end(): void } | undefined>) | undefined;
  /** Awaited with each event of an agent used as a tool: it is not yielded or stored, but counts towards the limits. */
  onUnstoredEvent?: ((event: NewEvent) => Promise<void>) | undefined;
  /** Called with the usage of each model call, before its event is yielded. */
  onUse?:
    | ((use: { model: string; answeredAs: string; promptTokens: number; outputTokens: number }) => void)
    | undefined;
}

export type UsedSoFar = Pick<RunEnd, 'llmCalls' | 'promptTokens' | 'outputTokens'>;

/** An agent as an observer sees it: the instruction still has its placeholders. */
export type ObservedAgent = Pick<
  AgentNode,
  'name' | 'instruction' | 'appendedInstruction' | 'tools' | 'model' | 'outputSchema' | 'hooks'
>;

export interface ObservedStep<Result> {
  /** W3C trace context for systems that do part of the step. */
  traceparent?: string | undefined;
  /** Called when the first piece of a model's answer arrives. */
  begin?: (() => void) | undefined;
  /** Called with each part of a model's answer that was not understood. */
  passOver?: (() => void) | undefined;
  /**
   * Called at the step's end; without a result if it was aborted or the call stays open. `stack` is where a tool's own
   * code failed.
   */
  end(result: Result | undefined, stack?: string): void;
}

/**
 * Observes the steps of an invocation as they happen, for traces and tapes. Its methods return at once and never throw.
 */
export interface RunObserver {
  /**
   * Called before hooks see a request. `sent` is the copy that hooks may change; its `signal` belongs to this call
   * alone.
   */
  request?(agent: ObservedAgent, request: ModelRequest, sent: ModelRequest): void;
  /** A model call begins; its result is the event. `sent` is the request after the hooks. */
  modelCall(agent: ObservedAgent, request: ModelRequest, sent: ModelRequest): ObservedStep<NewEvent>;
  toolCall(agentName: string, call: { id: string; name: string; args: JsonObject }): ObservedStep<JsonObject>;
  event(event: NewEvent): void;
}

export interface InvocationObserver extends RunObserver {
  /**
   * Called once; `undefined` if the outcome is unknown here, because another process took over or the database is away.
   */
  end(ending: Pick<RunEnd, 'error' | 'paused'> | undefined): void;
}

export const UNOBSERVED: ObservedStep<unknown> = { end: () => undefined };

/** Combines several observers; the first trace context wins. */
export function observeAll(observers: (RunObserver | undefined)[]): RunObserver {
  const present = observers.filter((observer) => observer !== undefined);
  return {
    request: (...call) => present.forEach((observer) => observer.request?.(...call)),
    modelCall: (...call) => together(present.map((observer) => observer.modelCall(...call))),
    toolCall: (...call) => together(present.map((observer) => observer.toolCall(...call))),
    event: (event) => present.forEach((observer) => observer.event(event)),
  };
}

const together = <Result>(steps: ObservedStep<Result>[]): ObservedStep<Result> => ({
  traceparent: steps.find(({ traceparent }) => traceparent !== undefined)?.traceparent,
  begin: () => steps.forEach((step) => step.begin?.()),
  passOver: () => steps.forEach((step) => step.passOver?.()),
  end: (result, stack) => steps.forEach((step) => step.end(result, stack)),
});

/**
 * How an invocation ended. The caller stores `lastEvent`, which was not yielded, together with the status; a pause may
 * have none.
 */
export interface RunEnd {
  lastEvent: NewEvent | undefined;
  /** Text of the last event with text other than thoughts; `''` after an error. */
  output: string;
  error: { code: ErrorCode; message: string /** For the log only. */; cause?: unknown } | undefined;
  /** True if the invocation waits for a person: a confirmation or a long-running tool. */
  paused: boolean;
  value?: unknown;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
}
