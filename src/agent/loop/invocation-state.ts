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
  /** The history and the events of this invocation, in order. */
  events: Event[];
  /** The state as the invocation sees it, `temp:` keys included; without a prototype, so that any key is data. */
  state: JsonObject;
  /**
   * Ids of every function call seen, so that a provider that counts from zero in each answer cannot reuse one.
   * Collected with the first call: most invocations have none, and a history has thousands of events.
   */
  callIds: Set<string> | undefined;
  output: string;
  /** What the next model call has to call: the request's choice, until its first call has taken it. */
  toolChoice: ToolChoice | undefined;
  /** Shared by all agents of the tree, those that are tools included. */
  used: UsedSoFar;
  /** The error behind an unexpected failure, for the log. */
  cause: unknown;
  /** Runs an agent as a tool and returns its answer and changes. Its events are not stored. */
  callAgent: CallAgent;
  /** Returns the id of what a call does, the same whenever it is called again. */
  toOperationId(call: OpenCall): string;
}

/**
 * Runs an agent as a tool; its own calls are named after the operation that it is.
 * @throws {Error} with its failure, or where it would have to wait for a person.
 */
export type CallAgent = (
  agent: AgentNode,
  request: string,
  signal: AbortSignal,
  operationId: string,
  parentCall: ParentCall,
) => Promise<AgentReply>;

/** One agent's turn within an invocation: its node, and what keeps parallel agents apart. */
export interface AgentTurn {
  /** The tree that the agent can hand over in. */
  root: AgentNode;
  agent: AgentNode;
  branch: string | undefined;
  /** That of the invocation, or of one of its parallel branches. */
  signal: AbortSignal;
}

/** How an agent's turn ended: its last event, not yielded yet, and whether it waits for a person. */
export interface Outcome {
  event: NewEvent | undefined;
  paused: boolean;
}

/** Yields all events but the last and returns how the turn ended; an `errorCode` on that ends the whole invocation. */
export type Steps = AsyncGenerator<NewEvent, Outcome, void>;

/** The start of an invocation: nothing done, all of the history known. */
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

/** An event of this invocation, made in the given turn, with a fresh id; given members win over the defaults. */
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

/** Adds a complete event to the state and returns it: later steps see its content and its state delta. */
export function recordEvent(invocation: InvocationState, event: NewEvent): NewEvent {
  invocation.events.push(event);
  invocation.input.observer?.event(event);
  for (const [key, value] of Object.entries(event.actions?.stateDelta ?? {})) invocation.state[key] = value;
  const text = getAnswerText(event.content);
  if (text !== '') invocation.output = text;
  return event;
}

/** Adds what a call of a model used; `modelVersion`: the name that the provider answered by. */
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

/** Counts the tokens that the invocation may still take, in whatever process it began. */
export function countTokensLeft({ input, used, events }: InvocationState): number {
  if (input.agent.maxTokens === undefined) return Infinity;
  const stored = events
    .filter(({ invocationId }) => invocationId === input.invocationId)
    .map((event) => toCallUse('', event))
    .reduce((sum, { promptTokens, outputTokens }) => sum + promptTokens + outputTokens, 0);
  return input.agent.maxTokens - Math.max(stored, used.promptTokens + used.outputTokens);
}

/** Returns the parameters of a model call, whose answer takes no more tokens than are left. */
export function toSampling(invocation: InvocationState, sampling: Sampling): Sampling {
  const left = countTokensLeft(invocation);
  if (left === Infinity) return sampling;
  return { ...sampling, maxOutputTokens: Math.min(left, sampling.maxOutputTokens ?? Infinity) };
}

/** The call's id where it is new, else a fresh one. */
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
