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
  /** The session state as this invocation sees it, including changes that are not stored yet. */
  state: Readonly<JsonObject>;
  /** State changes made by the hook. They are stored with the event that the hook handles. */
  stateDelta: JsonObject;
  services: ToolServices;
  log: ToolLog;
  /** Aborted when the invocation is aborted or the hook's time limit is over. */
  signal: AbortSignal;
  /**
   * Makes an extra call of the agent's model, which counts towards this invocation's limits; returns the text of the
   * model's output.
   */
  callModel(instruction: string, text: string): Promise<string>;
}

/** A tool call as a hook sees it; a hook may replace `args` before the tool runs. */
export interface HookedCall {
  id: string;
  name: string;
  args: JsonObject;
}

export interface CallContext extends HookContext {
  /**
   * Pauses the invocation until a person has allowed the tool call. It has no effect if a hook supplies the response
   * instead of the tool.
   */
  requestConfirmation(hint: string): void;
}

/**
 * The check of a guardrail for untrusted text in anything that a model reads; the loop finds the text. `input` is
 * content that clients sent, in any role. `results` is the output of tools, except the response that the hook
 * `afterTool` sees.
 */
export interface Guard {
  at: ('input' | 'results')[];
  action: 'block' | 'redact';
  /** Text in place of blocked text. */
  message: string;
  /**
   * What makes the verdict. Verdicts of functions and of judges (model calls) are cached, and a judge checks several
   * texts in one model call.
   */
  by: 'patterns' | 'function' | 'judge';
  /** Checks one text: returns a replacement if the text must not pass, `undefined` if it may pass. */
  find(text: string, context: HookContext): Promise<string | undefined>;
}

export type HookedFailure =
  | { during: 'model'; error: AgentError; request: ModelRequest }
  | { during: 'tool'; error: Error; call: HookedCall };

/** What a hook returns: a value that replaces something, or nothing. */
export type HookResult<Value> = Value | undefined | void | Promise<Value | undefined | void>;

/** Names of all hooks, in the order in which an agent calls them. */
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
 * Functions that are called while an agent runs, as in ADK. If a hook returns `undefined`, the agent continues; if it
 * returns a value, the value replaces what the hook handles. Hooks of plugins are called first, in order, and after the
 * first value no further hook is called. A hook that throws or exceeds its time limit fails the invocation; a hook
 * around a tool call fails only that call.
 */
export interface Hooks {
  /** Name of the hooks in errors, and in `customMetadata.hooks` of events that they changed. */
  name: string;
  /** Maximum time of one hook call, in milliseconds. Default: 10,000. */
  timeoutMs?: number;
  /**
   * True: clients receive streamed text before `afterModel` has checked it. Default: text is held back if there is an
   * `afterModel` hook.
   */
  passesText?: boolean;
  /** The check of a guardrail; it runs before any `beforeModel` hook. */
  guard?: Guard;
  /** If the hook returns a content, it becomes the agent's final answer and the agent does not run. */
  beforeAgent?(context: HookContext): HookResult<Content>;
  /** If the hook returns a content, it becomes an additional event of the agent. */
  afterAgent?(context: HookContext): HookResult<Content>;
  /** The hook may change members of the request. If it returns a model answer, the model is not called. */
  beforeModel?(request: ModelRequest, context: HookContext): HookResult<ModelAnswer>;
  /** If the hook returns an answer, it replaces the model's. */
  afterModel?(answer: ModelAnswer, context: HookContext): HookResult<ModelAnswer>;
  /** If the hook returns a response, the tool does not run and the response is used in place of its result. */
  beforeTool?(call: HookedCall, context: CallContext): HookResult<JsonObject>;
  /**
   * If the hook returns a response, it replaces the tool's. For a transactional tool the hook runs within the
   * transaction.
   */
  afterTool?(call: HookedCall, response: JsonObject, context: HookContext): HookResult<JsonObject>;
  /** If the hook returns a value, it replaces the failed model answer or tool response. */
  onError?(failure: HookedFailure, context: HookContext): HookResult<ModelAnswer | JsonObject>;
}
