import type { Content, JsonObject } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { ModelAnswer, ModelRequest } from './model.ts';
import type { ToolLog, ToolServices } from './tool.ts';

export interface HookContext {
  session: SessionKey;
  invocationId: string;
  agentName: string;
  userContent: Content | undefined;
  /** The state as this invocation sees it, including changes that are not stored yet. */
  state: Readonly<JsonObject>;
  /** Written by the hook; stored with the event that the hook handles. */
  stateDelta: JsonObject;
  services: ToolServices;
  log: ToolLog;
  /** Aborted with the invocation, and when the hook's time limit is over. */
  signal: AbortSignal;
  /** Makes an extra call of the agent's model, charged to this invocation; returns the answer's text. */
  callModel(instruction: string, text: string): Promise<string>;
}

/** A tool call as a hook sees it; a hook may replace `args` before the tool runs. */
export interface HookedCall {
  id: string;
  name: string;
  args: JsonObject;
}

export interface CallContext extends HookContext {
  /** Pauses the invocation until a person has allowed the call; ignored if a hook answers the call. */
  requestConfirmation(hint: string): void;
}

/**
 * A guardrail for text from outside, wherever it occurs in what a model reads; the loop finds it. `input`: content from
 * clients, in any role; `results`: output of tools other than the response that `afterTool` sees.
 */
export interface Guard {
  at: ('input' | 'results')[];
  action: 'block' | 'redact';
  /** Replaces blocked text. */
  message: string;
  /** Kind of check. Verdicts of a function or a judge are cached, and a judge checks several texts in one call. */
  by: 'patterns' | 'function' | 'judge';
  /** Returns a replacement for a text that must not pass; `undefined` if it may pass. */
  find(text: string, context: HookContext): Promise<string | undefined>;
}

export type HookedFailure =
  | { during: 'model'; error: AgentError; request: ModelRequest }
  | { during: 'tool'; error: Error; call: HookedCall };

/** What a hook returns: a replacement value, or nothing. */
export type HookResult<Value> = Value | undefined | void | Promise<Value | undefined | void>;

/** All hooks, in the order in which an agent calls them. */
export const HOOKS = [
  'beforeAgent',
  'beforeModel',
  'afterModel',
  'beforeTool',
  'afterTool',
  'onError',
  'afterAgent',
] as const satisfies (keyof Hooks)[];

/**
 * Functions that are called while an agent runs, with ADK's meanings: `undefined` continues, a value replaces what
 * would follow. Plugins' hooks are called first, in order, and the first value ends the chain. A hook that throws or
 * exceeds its time fails the invocation; a hook around a tool fails only the call.
 */
export interface Hooks {
  /** Appears in errors and in `customMetadata.hooks` of the events that it changed. */
  name: string;
  /** Maximum time of one call of a hook, milliseconds [10,000]. */
  timeoutMs?: number;
  /** True: streams show text before `afterModel` has seen it [text is held back if there is an `afterModel`]. */
  passesText?: boolean;
  /** The check of a guardrail; it runs before any `beforeModel`. */
  guard?: Guard;
  /** The content becomes the agent's answer, and the agent does not run. */
  beforeAgent?(context: HookContext): HookResult<Content>;
  /** The content becomes one more event of the agent. */
  afterAgent?(context: HookContext): HookResult<Content>;
  /** May change members of the request. An answer replaces the model call. */
  beforeModel?(request: ModelRequest, context: HookContext): HookResult<ModelAnswer>;
  /** The answer replaces the model's. */
  afterModel?(answer: ModelAnswer, context: HookContext): HookResult<ModelAnswer>;
  /** The response replaces the tool's, and the tool does not run. */
  beforeTool?(call: HookedCall, context: CallContext): HookResult<JsonObject>;
  /** The response replaces the tool's. For a transactional tool it runs within the transaction. */
  afterTool?(call: HookedCall, response: JsonObject, context: HookContext): HookResult<JsonObject>;
  /** The value replaces the model's answer or the tool's response. */
  onError?(failure: HookedFailure, context: HookContext): HookResult<ModelAnswer | JsonObject>;
}
