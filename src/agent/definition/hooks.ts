import type { Content, JsonObject } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { ModelAnswer, ModelRequest } from './model.ts';
import type { ToolLog, ToolServices } from './tool.ts';

/** The data that a hook can read, and the state that it can change. */
export interface HookContext {
  session: SessionKey;
  invocationId: string;
  agentName: string;
  /** The user's message in this invocation. */
  userContent: Content | undefined;
  /** The state as this invocation sees it. */
  state: Readonly<JsonObject>;
  /** Written by the hook; stored with the event that it is about. */
  stateDelta: JsonObject;
  services: ToolServices;
  log: ToolLog;
  /** Aborted with the invocation, and when the hook's time is over. */
  signal: AbortSignal;
  /** Asks the agent's model something else, on this invocation's account; returns the text of the answer. */
  callModel(instruction: string, text: string): Promise<string>;
}

/** A call of a tool as a hook sees it; `args` may be replaced before it runs. */
export interface HookedCall {
  id: string;
  name: string;
  args: JsonObject;
}

/** The context of a hook before a tool. */
export interface CallContext extends HookContext {
  /** Pauses the invocation until a person has allowed the call; a hook that answers it wins. */
  requestConfirmation(hint: string): void;
}

/**
 * What a guardrail does about what comes from outside, wherever that stands in what a model reads: the loop looks for
 * it. `input`: what a client brings, in any role; `results`: what tools answer beside the response that `afterTool` has.
 */
export interface Guard {
  at: ('input' | 'results')[];
  action: 'block' | 'redact';
  /** Stands in the place of what is blocked. */
  message: string;
  /** The way of checking: what a function or a judge has said of a text is kept, and a judge reads several at once. */
  by: 'patterns' | 'function' | 'judge';
  /** Gives the text in the place of one that may not pass, `undefined` for one that may. */
  find(text: string, context: HookContext): Promise<string | undefined>;
}

/** The failure of a model or a tool. */
export type HookedFailure =
  | { during: 'model'; error: AgentError; request: ModelRequest }
  | { during: 'tool'; error: Error; call: HookedCall };

/** Returned by a hook: a value in place of what goes on otherwise, or nothing. */
export type HookResult<Value> = Value | undefined | void | Promise<Value | undefined | void>;

/** The hooks that there are, in the order in which an agent calls them. */
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
 * Functions that are called while an agent runs, with ADK's meanings: `undefined` lets it go on, and a value is taken
 * instead. Those of plugins come first, in order; one that gives a value is the last. One that throws, or takes too
 * long, ends the invocation; around a tool, the call fails.
 */
export interface Hooks {
  /** Names it in errors and in `customMetadata.hooks` of the events that it changed. */
  name: string;
  /** Maximum time of one call of a hook [10,000]. */
  timeoutMs?: number;
  /** True: streams show text before `afterModel` has seen it [they show it after that, if there is one]. */
  passesText?: boolean;
  /** That of a guardrail: it checks before `beforeModel` of any hook. */
  guard?: Guard;
  /** Its content is the agent's answer, and the agent does not run. */
  beforeAgent?(context: HookContext): HookResult<Content>;
  /** Its content is one more event of the agent. */
  afterAgent?(context: HookContext): HookResult<Content>;
  /** May replace members of the request; its answer is taken for the model's, which is not called. */
  beforeModel?(request: ModelRequest, context: HookContext): HookResult<ModelAnswer>;
  /** Its answer takes the place of the model's. */
  afterModel?(answer: ModelAnswer, context: HookContext): HookResult<ModelAnswer>;
  /** Its response is taken for the tool's, which does not run. */
  beforeTool?(call: HookedCall, context: CallContext): HookResult<JsonObject>;
  /** Its response takes the place of the tool's; in the transaction of a transactional tool. */
  afterTool?(call: HookedCall, response: JsonObject, context: HookContext): HookResult<JsonObject>;
  /** Its value is taken for the answer of the model, or the response of the tool. */
  onError?(failure: HookedFailure, context: HookContext): HookResult<ModelAnswer | JsonObject>;
}
