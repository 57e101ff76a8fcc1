import { abortError, orAborted } from '../../core/abort.ts';
import type { JsonObject } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { runWith } from '../../platform/context.ts';
import type { Guard, HookContext, HookedCall, HookedFailure, HookResult, HOOKS, Hooks } from '../definition/hooks.ts';
import type { ModelAnswer, ModelRequest } from '../definition/model.ts';
import { toToolLog } from '../definition/services.ts';
import type { OpenCall } from './call-ledger.ts';
import { callForText } from './call-model.ts';
import { type AgentTurn, type InvocationState, newEvent } from './invocation-state.ts';
import { markOfHook } from './script.ts';
import { type Answer, errorText, failed, requestConfirmation, toResponse } from './tool-answer.ts';
import { parseExactJson } from '../../core/exact-json.ts';

const DEFAULT_TIMEOUT_MS = 10_000;

type Kind = (typeof HOOKS)[number];

/** What hooks change or block; it is stored with the event that they handle. */
export interface HookMarks {
  /** Names of the hooks that returned a value or changed arguments, as `name.hook`. */
  changed: string[];
  stateDelta: JsonObject;
  /** Ids of events that a guardrail blocked. Later requests do not contain their texts. */
  blocked: string[];
}

export const newMarks = (): HookMarks => ({
  changed: [],
  stateDelta: Object.create(null) as JsonObject,
  blocked: [],
});

export function withMarks(event: NewEvent, { changed, stateDelta, blocked }: HookMarks): NewEvent {
  const { actions, customMetadata } = event;
  const hasState = Object.keys(stateDelta).length > 0;
  return {
    ...event,
    ...(hasState && { actions: { ...actions, stateDelta: { ...actions?.stateDelta, ...stateDelta } } }),
    ...(changed.length > 0 && {
      customMetadata: { ...customMetadata, hooks: changed, ...(blocked.length > 0 && { blocked }) },
    }),
  };
}

/** Returns the ids of the events that a guardrail blocked in the model or tool call that made this event. */
export function listBlocked({ customMetadata }: Event): string[] {
  const blocked = customMetadata?.['blocked'];
  return Array.isArray(blocked) ? blocked.filter((id) => typeof id === 'string') : [];
}

/** Runs an agent's guardrails in order, up to the first that returns a value. @throws {AgentError} `hook_failed` */
export async function runGuards<Value>(
  invocation: InvocationState,
  turn: AgentTurn,
  at: Guard['at'][number],
  marks: HookMarks,
  run: (guard: Guard, context: HookContext) => Promise<Value | undefined>,
): Promise<Value | undefined> {
  for (const { name, timeoutMs, guard } of turn.agent.hooks ?? []) {
    if (!guard?.at.includes(at)) continue;
    const kind = `${name}.${at === 'input' ? 'beforeModel' : 'afterTool'}`;
    const value = await runHook(invocation, turn, kind, timeoutMs, marks, (context) => run(guard, context));
    if (value !== undefined) return value;
  }
  return undefined;
}

/** True if a hook may still replace streamed text, so that it must be held back. */
export const holdsText = (hooks: Hooks[]): boolean =>
  hooks.some((each) => each.afterModel !== undefined && each.passesText !== true);

/** Runs all hooks of one kind in order, up to the first that returns a value. @throws {AgentError} `hook_failed` */
async function runHooks<Value>(
  invocation: InvocationState,
  turn: AgentTurn,
  kind: Kind,
  marks: HookMarks,
  run: (hooks: Hooks, context: HookContext) => HookResult<Value>,
): Promise<Value | undefined> {
  for (const hooks of turn.agent.hooks ?? []) {
    if (!hooks[kind]) continue;
    const name = `${hooks.name}.${kind}`;
    const value = await runHook(invocation, turn, name, hooks.timeoutMs, marks, (context) => run(hooks, context));
    if (value !== undefined) return value;
  }
  return undefined;
}

/** Runs one hook or guardrail. If it returns a value, its name is added to `marks.changed`. */
async function runHook<Value>(
  invocation: InvocationState,
  turn: AgentTurn,
  name: string,
  timeoutMs = DEFAULT_TIMEOUT_MS,
  marks: HookMarks,
  run: (context: HookContext) => HookResult<Value>,
): Promise<Value | undefined> {
  const late = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([turn.signal, late]);
  try {
    const value = await orAborted(
      runWith({ tool: name }, async () => run(toContext(invocation, turn, marks, signal))),
      signal,
    );
    if (value === undefined || value === null) return undefined;
    marks.changed.push(name);
    return value;
  } catch (error) {
    if (turn.signal.aborted) throw abortError(turn.signal);
    invocation.cause = error;
    const why = late.aborted ? `took longer than ${timeoutMs} ms.` : 'failed. The log of the service has the reason.';
    throw new AgentError('hook_failed', `The hook \`${name}\` ${why}`, { cause: error });
  }
}

function toContext(
  invocation: InvocationState,
  turn: AgentTurn,
  { stateDelta }: HookMarks,
  signal: AbortSignal,
): HookContext {
  const { session, invocationId, services, log } = invocation.input;
  return {
    session,
    invocationId,
    agentName: turn.agent.name,
    userContent: invocation.input.history.findLast(({ author }) => author === 'user')?.content ?? undefined,
    state: invocation.state,
    stateDelta,
    services,
    log: toToolLog(log, { agent: turn.agent.name }),
    signal,
    callModel: (instruction, text) => callForText(invocation, turn.agent, { instruction, text, signal }),
  };
}

/**
 * The hooks may change the request, but not its model, which budgets, the context window and fallbacks go by. If one
 * returns an answer, the model is not called. @throws {AgentError} `hook_failed`
 */
export const beforeModel = (
  invocation: InvocationState,
  turn: AgentTurn,
  request: ModelRequest,
  marks: HookMarks,
): Promise<ModelAnswer | undefined> => {
  const { modelName } = request;
  return runHooks(invocation, turn, 'beforeModel', marks, async (hooks, context) => {
    const answer = await hooks.beforeModel?.(request, context);
    if (request.modelName !== modelName)
      throw new Error(
        `a hook cannot change \`modelName\` from ${modelName} to ${request.modelName}: set the model of the agent, or ` +
          'override it in the request',
      );
    return answer;
  });
};

/** Members that are missing in a hook's answer, such as the token counts, are taken from the model's answer. */
export async function afterModel(
  invocation: InvocationState,
  turn: AgentTurn,
  answer: ModelAnswer,
  marks: HookMarks,
): Promise<ModelAnswer> {
  const changed = await runHooks(invocation, turn, 'afterModel', marks, (hooks, context) =>
    hooks.afterModel?.(answer, context),
  );
  return { ...answer, ...changed };
}

/** Returns what a hook supplies in place of the failed model answer or tool response, if anything. */
export const onError = <Value>(
  invocation: InvocationState,
  turn: AgentTurn,
  failure: HookedFailure,
  marks: HookMarks,
): Promise<Value | undefined> =>
  runHooks(invocation, turn, 'onError', marks, (hooks, context) => hooks.onError?.(failure, context)) as Promise<
    Value | undefined
  >;

/**
 * Runs all hooks, even if one requests confirmation, because another may reject the call. Arguments that a hook sets
 * replace those of the call. If a hook returns a response or requests confirmation, the tool does not run now.
 */
async function beforeTool(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  marks: HookMarks,
): Promise<{ response?: JsonObject | undefined; hint?: string | undefined }> {
  const before = JSON.stringify(call.args);
  const seen: HookedCall = { id: call.id, name: call.name, args: parseExactJson(before) as JsonObject };
  let hint: string | undefined;
  const response = await runHooks<JsonObject>(invocation, turn, 'beforeTool', marks, (hooks, context) =>
    hooks.beforeTool?.(seen, { ...context, requestConfirmation: (question) => void (hint ??= question) }),
  );
  if (JSON.stringify(seen.args) !== before) {
    call.args = seen.args;
    marks.changed.push(`${call.id}.args`);
  }
  return { response, hint };
}

export const afterTool = async (
  invocation: InvocationState,
  turn: AgentTurn,
  { id, name, args }: OpenCall,
  response: JsonObject,
  marks: HookMarks,
): Promise<JsonObject> =>
  (await runHooks(invocation, turn, 'afterTool', marks, (hooks, context) =>
    hooks.afterTool?.({ id, name, args }, response, context),
  )) ?? response;

/**
 * Runs the `beforeAgent` or `afterAgent` hooks. If a crashed process ran them already, uses its stored event.
 * @returns the hooks' event, which the caller must still record
 */
export async function hookAgent(
  invocation: InvocationState,
  turn: AgentTurn,
  kind: 'beforeAgent' | 'afterAgent',
  isStarted: boolean,
): Promise<NewEvent | undefined> {
  const stored = invocation.input.script?.takeIf(turn, kind);
  if (stored || isStarted) return stored;
  const marks = newMarks();
  const content = await runHooks(invocation, turn, kind, marks, (hooks, context) => hooks[kind]?.(context));
  if (!content && Object.keys(marks.stateDelta).length === 0) return undefined;
  const event = newEvent(invocation, turn, content ? { content: markOfHook(content, kind) } : {});
  return withMarks(event, marks);
}

/** True for an event of a hook that supplies the agent's answer, so that the agent does not run. */
export const isAnswer = ({ content }: NewEvent): boolean => content != null;

/** Runs the `onError` hooks of a failed tool call. If a hook fails, the call gets that error in place of the tool's. */
export async function onToolError(
  invocation: InvocationState,
  turn: AgentTurn,
  { id, name, args }: OpenCall,
  error: unknown,
  marks: HookMarks,
): Promise<Answer | undefined> {
  if (error instanceof AgentError) return undefined;
  const failure = error instanceof Error ? error : new Error(errorText(error));
  const hooked = { during: 'tool', error: failure, call: { id, name, args } } as const;
  try {
    const response = await onError<JsonObject>(invocation, turn, hooked, marks);
    return response && { ...failed(''), response: toResponse(response) };
  } catch (cause) {
    return failed(errorText(cause));
  }
}

/** Runs the `beforeTool` hooks. If one returns a response or requests confirmation, the tool does not run now. */
export async function runBeforeToolHooks(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  marks: HookMarks,
): Promise<Answer | undefined> {
  try {
    const { response, hint } = await beforeTool(invocation, turn, call, marks);
    if (response) return { ...failed(''), response: toResponse(response) };
    return hint === undefined ? undefined : { ...requestConfirmation(call, hint), state: 'settled' };
  } catch (error) {
    return failed(turn.signal.aborted ? 'interrupted' : errorText(error));
  }
}
