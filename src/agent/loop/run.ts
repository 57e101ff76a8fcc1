import type { JsonObject } from '../../core/content.ts';
import type { ErrorCode } from '../../core/error-codes.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { AgentNode, PreparedAgent } from '../definition/agent.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { ToolServices } from '../definition/tool.ts';

/** What one invocation starts from. */
export interface RunInput {
  agent: PreparedAgent;
  session: SessionKey;
  invocationId: string;
  /** Stored events in order, the user's event of this invocation last. */
  history: Event[];
  /** Ids of the events that the runtime made: a person confirms what one of these requests, and nothing else. */
  runtimeEventIds: ReadonlySet<string>;
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
  /** Called with what each model call used, before its event is yielded. */
  onUse?: ((use: { model: string; promptTokens: number; outputTokens: number }) => void) | undefined;
}

/** What an observer sees of the agent that calls its model: its instruction before anything is filled in. */
export type ObservedAgent = Pick<AgentNode, 'name' | 'instruction' | 'appendedInstruction' | 'tools'>;

/** Is notified of the steps of an invocation as they happen, for its trace. Returns at once and never throws. */
export interface RunObserver {
  /** A model call begins; what is returned is called at its end, without an event where it was cut off. */
  modelCall(agent: ObservedAgent, request: ModelRequest): (event: NewEvent | undefined) => void;
  /** A tool call begins; what is returned is called at its end, without a response where the call stays open. */
  toolCall(
    agentName: string,
    call: { id: string; name: string; args: JsonObject },
  ): (response: JsonObject | undefined) => void;
  /** A complete event was made. */
  event(event: NewEvent): void;
}

/**
 * How an invocation ended. `lastEvent` is not yielded: the caller stores it together with the status; a pause may have
 * none.
 */
export interface RunEnd {
  lastEvent: NewEvent | undefined;
  /** Text of the last event that has any which is not a thought; `''` after an error. */
  output: string;
  error: { code: ErrorCode; message: string /** For the log only. */; cause?: unknown } | undefined;
  /** True where the invocation waits for a person: a confirmation or a long-running tool. */
  paused: boolean;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
}
