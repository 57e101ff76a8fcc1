import { toErrorCode } from '../../core/error-codes.ts';
import { AgentError } from '../../core/errors.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { AgentNode, AgentReply } from '../definition/tool.ts';
import { findResumed, findSpeaker, pathTo, withTransfer } from './agent-tree.ts';
import type { OpenCall } from './call-ledger.ts';
import { mergeActions, withError } from './call-tools.ts';
import { hookAgent, isAnswer } from './hooks.ts';
import {
  type AgentTurn,
  type CallAgent,
  countCallsLeft,
  countTokensLeft,
  deriveId,
  type InvocationState,
  newEvent,
  newInvocationState,
  openInbox,
  type Outcome,
  recordEvent,
  type Share,
  type Steps,
} from './invocation-state.ts';
import { runLlmAgent } from './llm-agent.ts';
import type { ConfirmedCalls, ParentCall, RunEnd, RunInput } from './run.ts';

/**
 * Runs one invocation. The consumer stores each complete event before it requests the next one; therefore a function
 * call is stored before its tool runs. Partial events (`partial: true`, only if the client asked for streaming) are
 * never stored. The last event is returned instead of yielded. A failure, a limit or an abort becomes the `error` of
 * the result, and is recorded on the last event.
 * @throws {AgentError} if an interrupted invocation cannot be resumed because the agent's definition has changed
 */
export async function* runAgent(input: RunInput): AsyncGenerator<NewEvent, RunEnd, void> {
  const invocation = newInvocationState(input, (...args) => callAgent(invocation, ...args));
  let outcome: Outcome;
  try {
    outcome = yield* runSteps(invocation);
    input.script?.checkAllTaken();
  } catch (error) {
    if ((error instanceof AgentError && input.script) || input.ledger?.isFailure(error)) throw error;
    invocation.cause = error;
    const failure = { code: 'internal', message: 'The agent failed unexpectedly; the log of the service says why.' };
    const turn = { root: input.agent, agent: input.agent, branch: undefined, signal: input.signal };
    outcome = { event: withError(newEvent(invocation, turn, {}), failure), paused: false };
  }
  return toEnd(invocation, outcome);
}

async function* runSteps(invocation: InvocationState): Steps {
  const { agent: root, history, confirmed, signal } = invocation.input;
  const [first] = confirmed;
  const agent = first ? findResumed(root, first.agentName) : findSpeaker(root, history);
  const turn = { root, agent, branch: agent.kind === 'llm' ? first?.branch : undefined, signal };
  return yield* runNode(invocation, turn, confirmed);
}

export function toEnd(invocation: InvocationState, { event, paused }: Outcome): RunEnd {
  const { output, used, cause } = invocation;
  if (!event?.errorCode) {
    const value = event?.output == null ? {} : { value: event.output };
    return { lastEvent: event, output, error: undefined, paused, ...value, ...used };
  }
  const error = { code: toErrorCode(event.errorCode), message: event.errorMessage ?? '' };
  const logged = cause === undefined ? error : { ...error, cause };
  return { lastEvent: event, output: '', error: logged, paused: false, ...used };
}

/**
 * Runs an agent as a tool: as a child if it is the tool itself, otherwise within the invocation. It sees only the request
 * of the call; its final answer and state changes are returned, unless it works in the background. Its model calls count towards the invocation's limits.
 * @throws {Error} if the agent fails, or would have to pause for a person within the invocation
 * @throws {ChildWaitsError} if it waits in a session of its own
 */
export async function callAgent(
  parent: InvocationState,
  call: Parameters<CallAgent>[0],
  parentCall: ParentCall,
  share: Share | undefined,
): Promise<AgentReply> {
  const { agent, request, signal, operationId } = call;
  const { invocationId, children } = parent.input;
  // The version before kept what it knew of other services with the call: an attempt that it began goes on as then.
  const wasBegunWithin = Object.keys(parentCall.kept).length > 0;
  if (share !== undefined && !wasBegunWithin && children?.has(agent)) {
    const inBackground = call.inBackground && children.mayOutlive;
    const parts = share.agents + (inBackground || share.hasOthers ? 1 : 0);
    const left = { llmCallsLeft: countCallsLeft(parent), tokensLeft: countTokensLeft(parent) };
    return children.call({ ...call, ...left, inBackground, state: parent.state, share: parts });
  }
  const prompt: Event = {
    id: operationId,
    invocationId,
    author: 'user',
    content: { role: 'user', parts: [{ text: request }] },
  };
  // Events and tool calls of an agent used as a tool are not stored: the ledger has one entry, for the whole call.
  const input = { ...parent.input, script: undefined, inbox: undefined, ledger: undefined, parentCall };
  const toOperationId = deriveInnerIds(operationId);
  const own = {
    input,
    toOperationId,
    events: [prompt],
    callIds: new Set<string>(),
    handles: undefined,
    sent: new Map(),
    output: '',
  };
  const invocation: InvocationState = { ...parent, ...own };
  // What agents beside it have been lent is not for it, as on a branch.
  const running = runNode(invocation, { root: agent, agent, branch: undefined, width: 1, signal });
  const events: NewEvent[] = [];
  for (;;) {
    const next = await running.next();
    const event = next.done ? next.value.event : next.value;
    if (event && event.partial !== true) {
      events.push(event);
      await parent.input.onUnstoredEvent?.(event);
    }
    if (!next.done) continue;
    if (event?.errorCode) throw new Error(event.errorMessage ?? event.errorCode);
    if (next.value.paused) throw new Error(`The agent \`${agent.name}\` has to ask a person, which it cannot do here.`);
    const { stateDelta, artifactDelta } = mergeActions(events.map(({ actions }) => actions ?? {}));
    return { text: invocation.output, value: event?.output, actions: { stateDelta, artifactDelta } };
  }
}

/** Derives the id of a call that an agent used as a tool makes, so that a repeated run gives the same ids. */
function deriveInnerIds(operationId: string): (call: OpenCall) => string {
  const seen = new Map<string, number>();
  return ({ name, args }) => {
    const signature = JSON.stringify([name, args]);
    const count = seen.get(signature) ?? 0;
    seen.set(signature, count + 1);
    return deriveId([operationId, signature, count]);
  };
}

/**
 * Runs an agent of any kind, and the agents to which it transfers. `confirmed` are calls of agents below it on which a
 * person has decided: the run resumes at those agents and skips what ran before.
 */
const runNode = (invocation: InvocationState, turn: AgentTurn, confirmed: ConfirmedCalls[] = []): Steps =>
  (turn.agent.hooks ? runHooked : RUNNERS[turn.agent.kind])(invocation, turn, confirmed);

/** Runs an agent with its hooks. A resumed agent skips `beforeAgent`, which ran before the pause. */
async function* runHooked(invocation: InvocationState, turn: AgentTurn, confirmed: ConfirmedCalls[]): Steps {
  const isBelow = ({ author }: Event) => pathTo(turn.agent, author ?? '').length > 0;
  try {
    const isStarted = confirmed.length > 0 || invocation.input.script?.hasAny(isBelow) === true;
    const before = await hookAgent(invocation, turn, 'beforeAgent', isStarted);
    if (before && isAnswer(before)) return { event: recordEvent(invocation, before), paused: false };
    if (before) yield recordEvent(invocation, before);
    const outcome = yield* RUNNERS[turn.agent.kind](invocation, turn, confirmed);
    if (isOver(outcome)) return outcome;
    const after = await hookAgent(invocation, turn, 'afterAgent', false);
    if (!after) return outcome;
    if (outcome.event) yield outcome.event;
    return { event: recordEvent(invocation, after), paused: false };
  } catch (error) {
    if (!(error instanceof AgentError) || error.code !== 'hook_failed') throw error;
    return { event: recordEvent(invocation, withError(newEvent(invocation, turn, {}), error)), paused: false };
  }
}

const RUNNERS = { llm: runWithTransfers, sequential: runSequence, parallel: runParallel, loop: runLoop };

async function* runWithTransfers(
  invocation: InvocationState,
  turn: AgentTurn,
  confirmed: ConfirmedCalls[] = [],
): Steps {
  // This agent had transferred the conversation: a sub-agent below it requested the confirmation.
  const below = turn.agent.subAgents.find((agent) => includesAny(agent, confirmed));
  if (below) return yield* runNode(invocation, { ...turn, agent: below }, confirmed);
  const agent = withTransfer(turn.root, turn.agent);
  const outcome = yield* runLlmAgent(invocation, { ...turn, agent }, confirmed[0]);
  const target = outcome.event?.actions?.transferToAgent;
  if (!target || !outcome.event || isOver(outcome)) return outcome;
  const next = pathTo(turn.root, target).at(-1);
  openFor(invocation, turn, next, outcome.event);
  yield outcome.event;
  if (!next) {
    const error = new AgentError('unknown_agent', `There is no agent \`${target}\` to hand over to.`);
    return { event: withError(newEvent(invocation, turn, {}), error), paused: false };
  }
  return yield* runNode(invocation, { ...turn, agent: next });
}

/** Messages are taken between two agents if the next one surely makes a request. */
function openFor(
  invocation: InvocationState,
  turn: AgentTurn,
  next: AgentNode | undefined,
  step: NewEvent | undefined,
): void {
  const mayAnswer = next?.isRemote === true || next?.hooks?.some((hooks) => hooks.beforeAgent !== undefined) === true;
  if (step && next?.kind === 'llm' && !mayAnswer) openInbox(invocation, turn, step);
}

const isOver = ({ event, paused }: Outcome) => paused || Boolean(event?.errorCode);

const includesAny = (agent: AgentNode, confirmed: ConfirmedCalls[]) =>
  confirmed.some(({ agentName }) => pathTo(agent, agentName).length > 0);

/** Returns the resumed sub-agent and the sub-agents after it; all sub-agents if none is resumed. */
function remaining({ subAgents }: AgentNode, confirmed: ConfirmedCalls[]): AgentNode[] {
  const start = subAgents.findIndex((agent) => includesAny(agent, confirmed));
  return subAgents.slice(Math.max(start, 0));
}

async function* runSequence(invocation: InvocationState, turn: AgentTurn, confirmed: ConfirmedCalls[] = []): Steps {
  let last: Outcome = { event: undefined, paused: false };
  for (const [index, agent] of remaining(turn.agent, confirmed).entries()) {
    openFor(invocation, turn, agent, last.event);
    if (last.event) yield last.event;
    last = yield* runNode(invocation, { ...turn, agent }, index === 0 ? confirmed : []);
    if (isOver(last)) return last;
  }
  return last;
}

async function* runLoop(invocation: InvocationState, turn: AgentTurn, confirmed: ConfirmedCalls[] = []): Steps {
  const { maxIterations = Number.POSITIVE_INFINITY, subAgents } = turn.agent;
  let last: Outcome = { event: undefined, paused: false };
  for (let round = 0; round < maxIterations && subAgents.length > 0; round += 1) {
    const resumed = round === 0 ? confirmed : [];
    for (const [index, agent] of remaining(turn.agent, resumed).entries()) {
      openFor(invocation, turn, agent, last.event);
      if (last.event) yield last.event;
      const steps = runNode(invocation, { ...turn, agent }, index === 0 ? resumed : []);
      const { outcome, escalated } = yield* watchEscalation(steps);
      last = outcome;
      if (isOver(last) || escalated) return last;
    }
  }
  return last;
}

/** Message of the error of agents that ran in parallel to an agent that failed. */
export const SIBLING_FAILED = 'Another agent failed.';

/** Passes events on, and returns whether one of them has the action `escalate`, which ends a `loop` agent. */
async function* watchEscalation(
  steps: Steps,
): AsyncGenerator<NewEvent, { outcome: Outcome; escalated: boolean }, void> {
  let escalated = false;
  for (;;) {
    const next = await steps.next();
    const event = next.done ? next.value.event : next.value;
    escalated ||= event?.actions?.escalate === true;
    if (next.done) return { outcome: next.value, escalated };
    yield next.value;
  }
}

/**
 * Runs the sub-agents in parallel, each on its own branch. An agent continues only after its event was consumed, so
 * here too a function call is stored before its tool runs. If one agent fails, the others are aborted, their unfinished
 * calls get responses, and the failure is the last event.
 */
async function* runParallel(invocation: InvocationState, turn: AgentTurn, confirmed: ConfirmedCalls[] = []): Steps {
  const stop = new AbortController();
  const signal = AbortSignal.any([turn.signal, stop.signal]);
  const resumed = turn.agent.subAgents.filter((agent) => includesAny(agent, confirmed));
  const chosen = resumed.length > 0 ? resumed : turn.agent.subAgents;
  const branches = chosen.map((agent) => {
    const branch = [turn.branch, turn.agent.name, agent.name].filter(Boolean).join('.');
    const own = confirmed.filter(({ agentName }) => pathTo(agent, agentName).length > 0);
    const width = (turn.width ?? 1) * chosen.length;
    return runNode(invocation, { root: turn.root, agent, branch, width, signal }, own);
  });
  const waiting = new Map(branches.map((steps, index) => [index, advance(steps, index)]));
  let last: Outcome = { event: undefined, paused: false };
  try {
    while (waiting.size > 0) {
      const { index, next } = await Promise.race(waiting.values());
      const steps = branches[index] as Steps;
      if (!next.done) {
        yield next.value;
        waiting.set(index, advance(steps, index));
        continue;
      }
      waiting.delete(index);
      const [final, other] = inOrder(last, next.value);
      if (other.event) yield other.event;
      last = final;
      if (last.event?.errorCode) stop.abort(new AgentError('interrupted', SIBLING_FAILED));
    }
    return last;
  } finally {
    stop.abort();
    await Promise.allSettled(branches.map((steps) => steps.return({ event: undefined, paused: false })));
  }
}

const advance = async (steps: Steps, index: number) => ({ index, next: await steps.next() });

/**
 * Decides whose last event becomes the last event of the parallel agents: that of the first failure, else of the newer
 * outcome with an event. The kept outcome is paused if either is paused.
 */
function inOrder(held: Outcome, newer: Outcome): [kept: Outcome, passed: Outcome] {
  const paused = held.paused || newer.paused;
  const keepsHeld = held.event && (held.event.errorCode || !newer.event);
  return keepsHeld ? [{ ...held, paused }, newer] : [{ ...newer, paused }, held];
}
