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
import type { GivenAnswers } from './confirmation.ts';
import type { StoredSteps } from './stored-steps.ts';

/** The input of one invocation. */
export interface RunInput {
  agent: PreparedAgent;
  session: SessionKey;
  invocationId: string;
  /** Stored events in order, the user's event of this invocation last. */
  history: Event[];
  /** Where a run goes on whose process died: its steps so far, which are taken instead of made again. */
  stored?: StoredSteps | undefined;
  /** Keeps what becomes of calls of tools [nothing is kept]. */
  ledger?: CallLedger | undefined;
  /** The call of an agent that is a tool, for which this runs [the invocation itself]. */
  parentCall?: ParentCall | undefined;
  /** Runs transactional tools [they fail]. */
  transact?: Transact | undefined;
  /** Counts what is used, for the caller, which stores it with each event [from zero]. */
  used?: UsedSoFar;
  /** Ids of the events that the runtime made: a person confirms what one of these requests, and nothing else. */
  runtimeEventIds: ReadonlySet<string>;
  /** What was answered to the questions that the last event answers: no other yes runs a call. */
  given: GivenAnswers;
  /** Merged state of the session at the start. */
  state: JsonObject;
  /** Aborted with an `AgentError` as its reason (cancelled, interrupted, time limit). */
  signal: AbortSignal;
  /** The moment at which its time limit ends it, by `performance.now()` [none is known]. */
  endTime?: number;
  /** True: partial events are yielded too. */
  streaming: boolean;
  /** Maximum size of the answers of one step's tools together, in characters of JSON: that of an event [1,048,576]. */
  eventBytes?: number;
  services: ToolServices;
  /** Receives what tools log, and where their authors' code fails [nothing is logged]. */
  log?: Log | undefined;
  /** A fresh event or call id. */
  newId(): string;
  observer?: RunObserver | undefined;
  /**
   * Awaited before each model call with its request: the request to make in its place, and what is told of its end.
   * `undefined` where nothing bounds it. [nothing does] @throws {AgentError} where it may not be made
   */
  reserve?: ((request: ModelRequest) => Promise<{ request: ModelRequest; end(): void } | undefined>) | undefined;
  /** Awaited with each event of an agent that is a tool: it is yielded nowhere, and counts all the same. */
  onUnstoredEvent?: ((event: NewEvent) => Promise<void>) | undefined;
  /** Called with what each model call used, before its event is yielded. */
  onUse?:
    | ((use: { model: string; answeredAs: string; promptTokens: number; outputTokens: number }) => void)
    | undefined;
}

/** Model calls and tokens of an invocation so far. */
export type UsedSoFar = Pick<RunEnd, 'llmCalls' | 'promptTokens' | 'outputTokens'>;

/** The agent of a model call as an observer sees it: the instruction before its placeholders are filled in. */
export type ObservedAgent = Pick<
  AgentNode,
  'name' | 'instruction' | 'appendedInstruction' | 'tools' | 'model' | 'outputSchema' | 'hooks'
>;

/** A step that is under way. */
export interface ObservedStep<Result> {
  /** The trace context (W3C) that others are handed who do some of the step. */
  traceparent?: string | undefined;
  /** Called when the first piece of a model's answer has come. */
  begin?: (() => void) | undefined;
  /** Called with each part of a model's answer that was not understood. */
  passOver?: (() => void) | undefined;
  /**
   * Called at its end; without a result where the step was cut off, or the call stays open. `stack` is where a tool's
   * own code failed.
   */
  end(result: Result | undefined, stack?: string): void;
}

/** Is notified of the steps of an invocation as they happen, for its trace. Returns at once and never throws. */
export interface RunObserver {
  /**
   * An agent has made a request, which its hooks have not seen yet. `sent` is what they may change: its `signal` is that
   * of this call alone, whatever becomes of the rest.
   */
  request?(agent: ObservedAgent, request: ModelRequest, sent: ModelRequest): void;
  /** A model call begins; its result is the event that it makes. `sent` is the request as hooks left it. */
  modelCall(agent: ObservedAgent, request: ModelRequest, sent: ModelRequest): ObservedStep<NewEvent>;
  /** A tool call begins; its result is the response. */
  toolCall(agentName: string, call: { id: string; name: string; args: JsonObject }): ObservedStep<JsonObject>;
  /** A complete event was made. */
  event(event: NewEvent): void;
}

/** Observes a whole invocation. */
export interface InvocationObserver extends RunObserver {
  /** Called once, with its end; `undefined` where that is not known here: taken over, or the database is away. */
  end(ending: Pick<RunEnd, 'error' | 'paused'> | undefined): void;
}

/** The observation of a step where there is no observer. */
export const UNOBSERVED: ObservedStep<unknown> = { end: () => undefined };

/** Several observers as one; the first trace context is handed on. */
export function observeAll(observers: (RunObserver | undefined)[]): RunObserver {
  const present = observers.filter((observer) => observer !== undefined);
  return {
    request: (...asked) => present.forEach((observer) => observer.request?.(...asked)),
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

/** The end of an invocation. The caller stores `lastEvent`, not yielded, with the status; a pause may have none. */
export interface RunEnd {
  lastEvent: NewEvent | undefined;
  /** Text of the last event that has any which is not a thought; `''` after an error. */
  output: string;
  error: { code: ErrorCode; message: string /** For the log only. */; cause?: unknown } | undefined;
  /** True where the invocation waits for a person: a confirmation or a long-running tool. */
  paused: boolean;
  /** The checked value of an answer that has a form. */
  value?: unknown;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
}
