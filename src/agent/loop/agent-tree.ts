import type { Event } from '../../core/event.ts';
import type { AgentNode } from '../definition/agent.ts';

/** The agents from the root down to the one with this name; `[]` where there is none. */
export function pathTo(root: AgentNode, name: string): AgentNode[] {
  if (root.name === name) return [root];
  for (const child of root.subAgents) {
    const path = pathTo(child, name);
    if (path.length > 0) return [root, ...path];
  }
  return [];
}

/**
 * Where an agent stands in its tree, as ADK writes `nodeInfo.path`: `team@1/poet@1`; `''` for one that only runs
 * others.
 */
export const nodePath = (root: AgentNode, agent: AgentNode): string =>
  agent.kind === 'llm'
    ? pathTo(root, agent.name)
        .map(({ name }) => `${name}@1`)
        .join('/')
    : '';

/**
 * Agents that an agent may hand over to: those below it, and, below an `llm` agent, that one and its other sub-agents
 * (as in ADK).
 */
export function transferTargets(root: AgentNode, agent: AgentNode): AgentNode[] {
  const parent = pathTo(root, agent.name).at(-2);
  const around = parent?.kind === 'llm' ? [parent, ...parent.subAgents.filter((peer) => peer !== agent)] : [];
  return [...agent.subAgents, ...around];
}

/**
 * Finds the agent that answers a new prompt: the one that spoke last, if it can be reached by transfers (every agent
 * above it is an `llm` agent), else the root (ADK `_find_agent_to_run`).
 */
export function findSpeaker(root: AgentNode, history: Event[]): AgentNode {
  for (let place = history.length - 1; place >= 0; place -= 1) {
    const author = history[place]?.author;
    if (!author || author === 'user') continue;
    const path = pathTo(root, author);
    const speaker = path.at(-1);
    if (speaker && path.every((agent) => agent.kind === 'llm')) return speaker;
  }
  return root;
}

/**
 * Where an agent that requested a confirmation is resumed: at the first agent above it that runs others in an order,
 * else at itself.
 */
export function findResumed(root: AgentNode, name: string): AgentNode {
  const path = pathTo(root, name);
  return path.find((agent) => agent.kind !== 'llm') ?? path.at(-1) ?? root;
}
