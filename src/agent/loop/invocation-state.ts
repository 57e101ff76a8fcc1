import type { RunInput, UsedSoFar } from './run.ts';
import type { OpenCall } from './call-tools.ts';
import type { ParentCall } from './remote-call.ts';
import { deriveId } from './call-ledger.ts';
import { nodePath } from './agent-tree.ts';
import { getAnswerText, getFunctionCalls, type JsonObject } from '../../core/content.ts';
import type { Event, EventActions, NewEvent } from '../../core/event.ts';
import type { AgentReply } from '../definition/tool.ts';
import type { AgentNode } from '../definition/agent.ts';
import { type ModelAnswer, type Sampling, toCallUse, type ToolChoice } from '../definition/model.ts';

/** The progress of one invocation, shared by all agents of its tree. */
export interface InvocationState {
  readonly input: RunInput;
  events: Event[];
  /** The state as the invocation sees it, including `temp:` keys. It has no prototype, so that any key is data. */
  state: JsonObject;
  /**
   * Ids of all function calls so far, because a provider that counts from zero in each answer would reuse one. Filled
   * at the first call: most invocations have none, and a history has thousands of events.
   */
  callIds: Set<string> | undefined;
  output: string;
  /** Applies to the next model call; cleared after the first call of the request. */
  toolChoice: ToolChoice | undefined;
  /** Shared by all agents of the tree, including agents used as tools. */
  used: UsedSoFar;
  /** Cause of an unexpected failure, for the log. */
  cause: unknown;
  callAgent: CallAgent;
  /** Returns the idempotency key of a call, the same for every attempt. */
  toOperationId(call: OpenCall): string;
}

/**
 * Runs an agent as a tool; the ids of its inner calls derive from `operationId`.
 * @throws {Error} if it fails, or if it would have to pause for a person
 */
export type CallAgent = (
  agent: AgentNode,
  request: string,
  signal: AbortSignal,
  operationId: string,
  parentCall: ParentCall,
) => Promise<AgentReply>;

export interface AgentTurn {
  /** The tree within which the agent can transfer. */
  root: AgentNode;
  agent: AgentNode;
  branch: string | undefined;
  /** Signal of the invocation, or of one parallel branch. */
  signal: AbortSignal;
}

/** How an agent's turn ended: its last event, not yielded yet, and whether it waits for a person. */
export interface Outcome {
  event: NewEvent | undefined;
  paused: boolean;
}

/**
 * Yields all events except the last and returns how the turn ended; an `errorCode` on the last event ends the whole
 * invocation.
 */
export type Steps = AsyncGenerator<NewEvent, Outcome, void>;

export function newInvocationState(input: RunInput, callAgent: CallAgent): InvocationState {
  const { session, invocationId } = input;
  const names = [session.appName, session.userId, session.sessionId, invocationId];
  return {
    input,
    callAgent,
    toOperationId: ({ id }) => deriveId([...names, id]),
    events: [...input.history],
    state: Object.assign(Object.create(null) as JsonObject, input.state),
    callIds: undefined,
    output: '',
    toolChoice: input.agent.toolChoice,
    used: input.used ?? { llmCalls: 0, promptTokens: 0, outputTokens: 0 },
    cause: undefined,
  };
}

/** Fresh actions with the four maps that ADK always emits (inventory §3, event defaults). */
export const emptyActions = (): EventActions => ({
  stateDelta: {},
  artifactDelta: {},
  requestedAuthConfigs: {},
  requestedToolConfirmations: {},
});

/** Creates an event of this invocation with a fresh id; `members` override the defaults. */
export function newEvent(
  invocation: InvocationState,
  turn: AgentTurn,
  members: Omit<Event, 'id' | 'invocationId' | 'author'>,
): NewEvent {
  return {
    id: invocation.input.newId(),
    invocationId: invocation.input.invocationId,
    author: turn.agent.name,
    ...(turn.branch === undefined ? {} : { branch: turn.branch }),
    nodeInfo: { path: nodePath(turn.root, turn.agent) },
    actions: emptyActions(),
    ...members,
  };
}

/** Adds a complete event to the state, so that later steps see its content and state delta; returns it. */
export function recordEvent(invocation: InvocationState, event: NewEvent): NewEvent {
  invocation.events.push(event);
  invocation.input.observer?.event(event);
  for (const [key, value] of Object.entries(event.actions?.stateDelta ?? {})) invocation.state[key] = value;
  const text = getAnswerText(event.content);
  if (text !== '') invocation.output = text;
  return event;
}

export function countTokens(
  { used, input }: InvocationState,
  model: string,
  answer: Pick<ModelAnswer, 'usageMetadata' | 'modelVersion'>,
): void {
  const use = toCallUse(model, answer);
  used.promptTokens += use.promptTokens;
  used.outputTokens += use.outputTokens;
  input.onUse?.(use);
}

/** Returns the tokens that the invocation may still use, also if another process started it. */
export function countTokensLeft({ input, used, events }: InvocationState): number {
  if (input.agent.maxTokens === undefined) return Infinity;
  const stored = events
    .filter(({ invocationId }) => invocationId === input.invocationId)
    .map((event) => toCallUse('', event))
    .reduce((sum, { promptTokens, outputTokens }) => sum + promptTokens + outputTokens, 0);
  return input.agent.maxTokens - Math.max(stored, used.promptTokens + used.outputTokens);
}

/** Limits `maxOutputTokens` to the tokens that remain. */
export function toSampling(invocation: InvocationState, sampling: Sampling): Sampling {
  const tokensLeft = countTokensLeft(invocation);
  if (tokensLeft === Infinity) return sampling;
  return { ...sampling, maxOutputTokens: Math.min(tokensLeft, sampling.maxOutputTokens ?? Infinity) };
}

/** Returns the call's id if it is unused, else a fresh one. */
export function uniqueCallId(invocation: InvocationState, id: string | null | undefined): string {
  const seen = (invocation.callIds ??= new Set(
    invocation.input.stored?.callIds ?? callIdsIn(invocation.input.history),
  ));
  const unique = id && !seen.has(id) ? id : invocation.input.newId();
  seen.add(unique);
  return unique;
}

const callIdsIn = (history: Event[]) =>
  new Set(history.flatMap((event) => getFunctionCalls(event.content).map((call) => call.id ?? '')));
