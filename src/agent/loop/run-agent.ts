import { toErrorCode } from '../../core/error-codes.ts';
import type { RunEnd, RunInput } from './run.ts';
import type { AgentReply } from '../definition/tool.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { AgentNode } from '../definition/agent.ts';
import { findResumed, findSpeaker } from './agent-tree.ts';
import { withError } from './call-tools.ts';
import { compactHistory } from './compact.ts';
import { findConfirmations } from './confirmation.ts';
import { newEvent, newInvocationState, type Outcome, type InvocationState, type Steps } from './invocation-state.ts';
import { runNode } from './run-node.ts';

/**
 * The loop of one invocation. The consumer stores each complete event before it asks for the next one, so a function
 * call is stored before its tools run; partial events (`partial: true`, only when streaming) are never stored. The last
 * event is returned, not yielded. Never throws: a failure, a limit or an abort is the `error` of the end and stands on
 * the last event.
 */
export async function* runAgent(input: RunInput): AsyncGenerator<NewEvent, RunEnd, void> {
  const invocation = newInvocationState(input, (agent, request, signal) =>
    askAgent(invocation, agent, request, signal),
  );
  let outcome: Outcome;
  try {
    outcome = yield* steps(invocation);
  } catch (error) {
    invocation.cause = error;
    const failure = { code: 'internal', message: 'The agent failed unexpectedly; the log of the service says why.' };
    const turn = { root: input.agent, agent: input.agent, branch: undefined, signal: input.signal };
    outcome = { event: withError(newEvent(invocation, turn, {}), failure), paused: false };
  }
  return toEnd(invocation, outcome);
}

async function* steps(invocation: InvocationState): Steps {
  const { agent: root, history, runtimeEventIds, signal } = invocation.input;
  const confirmed = findConfirmations(history, runtimeEventIds);
  const [first] = confirmed;
  const agent = first ? findResumed(root, first.agentName) : findSpeaker(root, history);
  const turn = { root, agent, branch: agent.kind === 'llm' ? first?.branch : undefined, signal };
  const compaction = await compactHistory(invocation, turn);
  if (compaction) yield compaction;
  return yield* runNode(invocation, turn, confirmed);
}

/** How an invocation ended, by its last event and what it used. */
export function toEnd(invocation: InvocationState, { event, paused }: Outcome): RunEnd {
  const { output, used, cause } = invocation;
  if (!event?.errorCode) return { lastEvent: event, output, error: undefined, paused, ...used };
  const error = { code: toErrorCode(event.errorCode), message: event.errorMessage ?? '' };
  const logged = cause === undefined ? error : { ...error, cause };
  return { lastEvent: event, output: '', error: logged, paused: false, ...used };
}

/**
 * An agent as a tool: it sees only the request, its model calls count, and only its answer and what it changed come
 * back.
 * @throws {Error} with its failure, or where it would have to wait for a person.
 */
export async function askAgent(
  parent: InvocationState,
  agent: AgentNode,
  request: string,
  signal: AbortSignal,
): Promise<AgentReply> {
  const prompt: Event = { author: 'user', content: { role: 'user', parts: [{ text: request }] } };
  const invocation: InvocationState = { ...parent, events: [prompt], callIds: new Set(), output: '' };
  const running = runNode(invocation, { root: agent, agent, branch: undefined, signal });
  const events: NewEvent[] = [];
  for (;;) {
    const next = await running.next();
    const event = next.done ? next.value.event : next.value;
    if (event && event.partial !== true) events.push(event);
    if (!next.done) continue;
    if (event?.errorCode) throw new Error(event.errorMessage ?? event.errorCode);
    if (next.value.paused) throw new Error(`The agent \`${agent.name}\` has to ask a person, which it cannot do here.`);
    const actions = events.map(({ actions: each }) => ({
      stateDelta: each?.stateDelta ?? {},
      artifactDelta: each?.artifactDelta ?? {},
    }));
    return { text: invocation.output, actions };
  }
}
