import type { Event } from '../../core/event.ts';
import type { Content, JsonObject } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { ModelAnswer, ModelRequest } from './model.ts';
import type { ToolLog, ToolServices } from './services.ts';

/** What a hook gets besides what it handles. */
export interface HookContext {
  /** The session: `appName`, `userId` and `sessionId`. */
  session: SessionKey;
  /** Id of the invocation that runs. */
  invocationId: string;
  /** Name of the agent that runs. */
  agentName: string;
  /** The message of the user that began the invocation. */
  userContent: Content | undefined;
  /** The session state as this invocation sees it, including changes that are not stored yet. */
  state: Readonly<JsonObject>;
  /** State changes, which the hook fills in. They are stored with the event that the hook handles. */
  stateDelta: JsonObject;
  /** Artifacts and memories of the session's user. */
  services: ToolServices;
  /** Log of the service: `log.info(message, fields)`, also `debug`, `warn` and `error`. */
  log: ToolLog;
  /** Aborted when the invocation is aborted or the hook's time limit is over. */
  signal: AbortSignal;
  /** Calls the agent's model for the hook, within the invocation's limits; returns the text of its output. */
  callModel(instruction: string, text: string): Promise<string>;
}

/** A tool call as hooks see it. A hook may replace `args` before the tool runs. */
export interface HookedCall {
  /** Id of the call. */
  id: string;
  /** Name of the tool. */
  name: string;
  /** Arguments of the call. */
  args: JsonObject;
}

/** What the hook `beforeTool` gets besides the call. */
export interface CallContext extends HookContext {
  /** Pauses the invocation until a person has allowed the call; no effect if a hook supplies the tool's response. */
  requestConfirmation(hint: string): void;
}

/**
 * A guardrail's check of untrusted text; the loop finds such text in all that a model reads. `input` is content that
 * clients sent, in any role; `results` is the output of tools, except the response that the hook `afterTool` gets.
 */
export interface Guard {
  at: ('input' | 'results')[];
  action: 'block' | 'redact';
  /** Text that replaces a blocked text. */
  message: string;
  /** Verdicts of functions and judges (model calls) are cached; a judge checks several texts in one model call. */
  by: 'patterns' | 'function' | 'judge';
  /** Checks a text. Returns a replacement if the text must not pass, `undefined` if it may pass. */
  find(text: string, context: HookContext): Promise<string | undefined>;
}

/** A failed call of a model or a tool, for the hook `onError`. */
export type HookedFailure =
  | { during: 'model'; error: AgentError; request: ModelRequest }
  | { during: 'tool'; error: Error; call: HookedCall };

/** What a hook returns: a value that replaces what it handles, or nothing. */
export type HookResult<Value> = Value | undefined | void | Promise<Value | undefined | void>;

/** Hooks in the order in which an agent calls them. */
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
  /** Time limit of one hook call, in milliseconds. Default: 10,000. */
  timeoutMs?: number;
  /** True: clients get streamed text before `afterModel` has seen it. Default: such a hook holds the text back. */
  passesText?: boolean;
  /** The guardrail's check of the model request; it runs before all `beforeModel` hooks. */
  guard?: Guard;
  /** A returned content becomes the agent's final answer, and the agent does not run. */
  beforeAgent?(context: HookContext): HookResult<Content>;
  /** A returned content becomes an additional event of the agent. */
  afterAgent?(context: HookContext): HookResult<Content>;
  /** The hook may change members of the request. If it returns a model answer, the model is not called. */
  beforeModel?(request: ModelRequest, context: HookContext): HookResult<ModelAnswer>;
  /** A returned answer replaces the model's. Streamed text is held back until this hook has seen it. */
  afterModel?(answer: ModelAnswer, context: HookContext): HookResult<ModelAnswer>;
  /** If the hook returns a function response, the tool does not run. */
  beforeTool?(call: HookedCall, context: CallContext): HookResult<JsonObject>;
  /** A returned response replaces the tool's. For a transactional tool the hook runs within the tool's transaction. */
  afterTool?(call: HookedCall, response: JsonObject, context: HookContext): HookResult<JsonObject>;
  /** A returned value replaces the failed model answer or tool response. */
  onError?(failure: HookedFailure, context: HookContext): HookResult<ModelAnswer | JsonObject>;
}

/**
 * A strategy of an author: returns the text that stands for older events in the model's prompts. `undefined`: the next
 * strategy is tried.
 */
export type CompactEvents = (events: Event[]) => string | undefined | Promise<string | undefined>;
/** Returns true for an event that no compaction replaces. */
export type PinEvent = (event: Event) => boolean;
