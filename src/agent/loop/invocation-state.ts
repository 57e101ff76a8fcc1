import { createHash } from 'node:crypto';
import type { ChildCall, ParentCall, RunInput, UsedSoFar } from './run.ts';
import type { OpenCall } from './call-ledger.ts';
import { nodePath } from './agent-tree.ts';
import { AgentError } from '../../core/errors.ts';
import { type Content, getAnswerText, getFunctionCalls, type JsonObject } from '../../core/content.ts';
import { emptyActions, type Event, type NewEvent } from '../../core/event.ts';
import { givesHandle } from './handle.ts';
import type { InstructionPiece } from './instruction.ts';
import type { AgentNode, AgentReply } from '../definition/tool.ts';
import { type ModelAnswer, type ModelRequest, type Sampling, toCallUse, type ToolChoice } from '../definition/model.ts';

/** A request to a model, with which the next one of the same agent is compared. */
export interface SentRequest {
  modelName: string;
  pieces: readonly InstructionPiece[];
  instruction: string;
  tools: ModelRequest['tools'];
  contents: readonly Content[];
  /** Number of events of the session that the request was made from. */
  events: number;
}

/** The progress of one invocation, shared by all agents of its tree. */
export interface InvocationState {
  readonly input: RunInput;
  events: Event[];
  /** The session state with `temp:` keys. The object has no prototype, so that any key is ordinary data. */
  state: JsonObject;
  /**
   * Ids of all function calls of the session so far. A call gets a fresh id if its id is among them, because some
   * providers count from zero in each response. Filled at the first call, because most invocations have no call and a
   * history has thousands of events.
   */
  callIds: Set<string> | undefined;
  /** Events that give a model the handle of a result. Undefined: they are to be found, in all events. */
  handles?: Event[] | undefined;
  /** The last request of each agent, by its name and branch. */
  sent: Map<string, SentRequest>;
  output: string;
  /** Whether the model must call a tool in its next answer, and which. Cleared after the first model call. */
  toolChoice: ToolChoice | undefined;
  /** Token and call counters of all agents of the tree, including agents used as tools. */
  used: UsedSoFar;
  /** True: a summary failed in this process, so none is tried again where the prompt fits without it. */
  summaryFailed: boolean;
  /** The unexpected error that ended the invocation, for the log. */
  cause: unknown;
  callAgent: CallAgent;
  /** Returns the idempotency key of a tool call: the same for every attempt. */
  toOperationId(call: OpenCall): string;
}

/**
 * Runs an agent as a tool. The ids of the tool calls that it makes derive from `operationId`.
 * @param share - for an agent that is the tool itself: what begins at this moment
 * @throws {Error} if the agent fails, or would have to pause for a person within this invocation
 * @throws {ChildWaitsError} if it waits in a session of its own
 */
export type CallAgent = (
  call: Omit<ChildCall, 'state' | 'llmCallsLeft' | 'tokensLeft' | 'share'>,
  parentCall: ParentCall,
  share: Share | undefined,
) => Promise<AgentReply>;

/** What begins with the call of an agent. */
export interface Share {
  /** Number of calls of agents that are tools: those of the step, on each branch that runs in parallel. */
  agents: number;
  /** True: other tools are called beside them, which may call agents within the invocation. */
  hasOthers: boolean;
}

export interface AgentTurn {
  /** Root of the agent tree within which the agent may transfer the conversation. */
  root: AgentNode;
  agent: AgentNode;
  branch: string | undefined;
  /** Number of branches that run in parallel, this one included. Default: 1. */
  width?: number;
  /** Aborted with the invocation or, below a `parallel` agent, when another of its branches fails. */
  signal: AbortSignal;
}

/** How an agent's turn ended: its last event, which was not yielded, and whether the turn waits for a person. */
export interface Outcome {
  event: NewEvent | undefined;
  paused: boolean;
}

/**
 * An agent's turn as a generator: yields all events except the last, and returns how the turn ended. If the last event
 * has an `errorCode`, the whole invocation ends.
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
    sent: new Map(),
    output: '',
    toolChoice: input.agent.toolChoice,
    used: input.used ?? { llmCalls: 0, promptTokens: 0, outputTokens: 0 },
    summaryFailed: false,
    cause: undefined,
  };
}

/** Derives a UUID (version 8): the same values always give the same UUID. */
export function deriveId(values: unknown[]): string {
  const hash = createHash('sha256').update(JSON.stringify(values)).digest('hex');
  return [
    hash.slice(0, 8),
    hash.slice(8, 12),
    `8${hash.slice(13, 16)}`,
    `8${hash.slice(17, 20)}`,
    hash.slice(20, 32),
  ].join('-');
}

/** Creates an event. `members` override the default members. */
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

/** Applies a complete event to the invocation state, so that later model calls see its content and state. */
export function recordEvent(invocation: InvocationState, event: NewEvent): NewEvent {
  invocation.events.push(event);
  if (givesHandle(event) || event.actions?.compaction) invocation.handles = undefined;
  invocation.input.observer?.event?.(event);
  for (const [key, value] of Object.entries(event.actions?.stateDelta ?? {})) invocation.state[key] = value;
  const text = getAnswerText(event.content);
  if (text !== '') invocation.output = text;
  return event;
}

/** The agent makes a request behind this step, if it may: messages of the user that wait are stored there. */
export function openInbox(invocation: InvocationState, { branch }: Pick<AgentTurn, 'branch'>, step: NewEvent): void {
  const { input } = invocation;
  const mayRequest = () => countCallsLeft(invocation) > 0 && countTokensLeft(invocation) > 0;
  // Agents that run in parallel have requests on the way, which would not have the message.
  if (branch === undefined && input.inbox && !input.signal.aborted && mayRequest()) input.inbox.open(step);
}

/** Takes the messages that were stored behind the last step. They are no answer, so they do not become the output. */
export function takeMessages({ input, events, state }: InvocationState, { branch }: AgentTurn): void {
  if (branch !== undefined || !input.inbox) return;
  for (const message of input.inbox.take()) {
    events.push(message);
    for (const [key, value] of Object.entries(message.actions?.stateDelta ?? {})) state[key] = value;
  }
}

/** Counts a model call. @throws {AgentError} `llm_calls_limit` if the invocation may make no more of them */
export function countCall(invocation: InvocationState): void {
  const { input, used } = invocation;
  const { maxLlmCalls } = input.agent;
  if (countCallsLeft(invocation) <= 0)
    throw new AgentError('llm_calls_limit', `Max number of llm calls limit of \`${maxLlmCalls}\` exceeded`);
  used.llmCalls += 1;
}

/** How many model calls the invocation may still make, without those that it has lent. */
export const countCallsLeft = ({ input: { agent }, used }: InvocationState): number =>
  agent.maxLlmCalls - used.llmCalls - (used.lent?.llmCalls ?? 0);

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

/** How many tokens the invocation may still use; those used by a crashed process of it count too. */
export function countTokensLeft({ input, used, events }: InvocationState): number {
  if (input.agent.maxTokens === undefined) return Infinity;
  const stored = events
    .filter(({ invocationId }) => invocationId === input.invocationId)
    .map((event) => toCallUse('', event))
    .reduce((sum, { promptTokens, outputTokens }) => sum + promptTokens + outputTokens, 0);
  return input.agent.maxTokens - Math.max(stored, used.promptTokens + used.outputTokens) - (used.lent?.tokens ?? 0);
}

/** Lowers `maxOutputTokens` to the number of tokens that the invocation may still use. */
export function toSampling(invocation: InvocationState, sampling: Sampling): Sampling {
  const tokensLeft = countTokensLeft(invocation);
  if (tokensLeft === Infinity) return sampling;
  return { ...sampling, maxOutputTokens: Math.min(tokensLeft, sampling.maxOutputTokens ?? Infinity) };
}

/** Returns the function call's id if no other call has it, else a new id. */
export function uniqueCallId(invocation: InvocationState, id: string | null | undefined): string {
  const { script, history } = invocation.input;
  const seen = (invocation.callIds ??= script ? new Set(script.callIds) : callIdsIn(history));
  const unique = id && !seen.has(id) ? id : invocation.input.newId();
  seen.add(unique);
  return unique;
}

function callIdsIn(history: Event[]): Set<string> {
  const ids = new Set<string>();
  for (const { content } of history) for (const { id } of getFunctionCalls(content)) ids.add(id ?? '');
  return ids;
}
