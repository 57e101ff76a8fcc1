import { AgentError } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import type { AgentNode } from '../definition/agent.ts';
import { pathTo } from './agent-tree.ts';
import { withError } from './call-tools.ts';
import type { Decided } from './confirmation.ts';
import { runLlmAgent } from './llm-agent.ts';
import { newEvent, type Outcome, type Progress, type Steps, type Voice } from './invocation-state.ts';
import { withTransfer } from './transfer.ts';

/**
 * Runs an agent of any kind, and those it hands over to. `decided` are confirmed calls of an agent below: it is taken up there,
 * and what had run before it is not run again.
 */
export const runNode = (progress: Progress, voice: Voice, decided: Decided[] = []): Steps =>
  RUNNERS[voice.agent.kind](progress, voice, decided);

const RUNNERS = { llm: runWithTransfers, sequential: runSequence, parallel: runParallel, loop: runLoop };

async function* runWithTransfers(progress: Progress, voice: Voice, decided: Decided[] = []): Steps {
  // It had handed over: who asked is further down.
  const below = voice.agent.subAgents.find((agent) => includesAny(agent, decided));
  if (below) return yield* runNode(progress, { ...voice, agent: below }, decided);
  const agent = withTransfer(voice.root, voice.agent);
  const outcome = yield* runLlmAgent(progress, { ...voice, agent }, decided[0]);
  const target = outcome.event?.actions?.transferToAgent;
  if (!target || !outcome.event || isOver(outcome)) return outcome;
  yield outcome.event;
  const next = pathTo(voice.root, target).at(-1);
  if (!next) {
    const error = new AgentError('unknown_agent', `There is no agent \`${target}\` to hand over to.`);
    return { event: withError(newEvent(progress, voice, {}), error), paused: false };
  }
  return yield* runNode(progress, { ...voice, agent: next });
}

const isOver = ({ event, paused }: Outcome) => paused || Boolean(event?.errorCode);

const includesAny = (agent: AgentNode, decided: Decided[]) =>
  decided.some(({ agentName }) => pathTo(agent, agentName).length > 0);

/** The sub-agents from the one that is taken up again, else all. */
function remaining({ subAgents }: AgentNode, decided: Decided[]): AgentNode[] {
  const start = subAgents.findIndex((agent) => includesAny(agent, decided));
  return subAgents.slice(Math.max(start, 0));
}

async function* runSequence(progress: Progress, voice: Voice, decided: Decided[] = []): Steps {
  let last: Outcome = { event: undefined, paused: false };
  for (const [index, agent] of remaining(voice.agent, decided).entries()) {
    if (last.event) yield last.event;
    last = yield* runNode(progress, { ...voice, agent }, index === 0 ? decided : []);
    if (isOver(last)) return last;
  }
  return last;
}

async function* runLoop(progress: Progress, voice: Voice, decided: Decided[] = []): Steps {
  const { maxIterations = Number.POSITIVE_INFINITY, subAgents } = voice.agent;
  let last: Outcome = { event: undefined, paused: false };
  for (let round = 0; round < maxIterations && subAgents.length > 0; round += 1) {
    const resumed = round === 0 ? decided : [];
    for (const [index, agent] of remaining(voice.agent, resumed).entries()) {
      if (last.event) yield last.event;
      const steps = runNode(progress, { ...voice, agent }, index === 0 ? resumed : []);
      const { outcome, escalated } = yield* watchEscalation(steps);
      last = outcome;
      if (isOver(last) || escalated) return last;
    }
  }
  return last;
}

/** Passes events on and says whether one of them, the last included, asked to leave the loop. */
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
 * Runs the sub-agents side by side, each on a branch of its own. An agent goes on only after its event was taken, so calls are
 * stored before their tools run here too. A failure stops the others; what they had open is answered, and the failure comes last.
 */
async function* runParallel(progress: Progress, voice: Voice, decided: Decided[] = []): Steps {
  const stop = new AbortController();
  const signal = AbortSignal.any([voice.signal, stop.signal]);
  const asking = voice.agent.subAgents.filter((agent) => includesAny(agent, decided));
  const chosen = asking.length > 0 ? asking : voice.agent.subAgents;
  const branches = chosen.map((agent) => {
    const branch = [voice.branch, voice.agent.name, agent.name].filter(Boolean).join('.');
    const own = decided.filter(({ agentName }) => pathTo(agent, agentName).length > 0);
    return runNode(progress, { root: voice.root, agent, branch, signal }, own);
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
      const [kept, passed] = inOrder(last, next.value);
      if (passed.event) yield passed.event;
      last = kept;
      if (last.event?.errorCode) stop.abort(new AgentError('interrupted', 'Another agent failed.'));
    }
    return last;
  } finally {
    stop.abort();
    await Promise.allSettled(branches.map((steps) => steps.return({ event: undefined, paused: false })));
  }
}

const advance = async (steps: Steps, index: number) => ({ index, next: await steps.next() });

/** Which outcome stays the last one: the first failure, else the newer; a pause of either is a pause of both. */
function inOrder(held: Outcome, newer: Outcome): [kept: Outcome, passed: Outcome] {
  const paused = held.paused || newer.paused;
  const keepsHeld = held.event && (held.event.errorCode || !newer.event);
  return keepsHeld ? [{ ...held, paused }, newer] : [{ ...newer, paused }, held];
}
