import { getFunctionResponses } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { AgentNode } from '../definition/agent.ts';
import { type Tool, toParameters } from '../definition/tool.ts';

/** The agents from the root down to the one with this name; `[]` where there is none. */
export function pathTo(root: AgentNode, name: string): AgentNode[] {
  if (root.name === name) return [root];
  for (const child of root.subAgents) {
    const path = pathTo(child, name);
    if (path.length > 0) return [root, ...path];
  }
  return [];
}

/** Returns an agent's `nodeInfo.path` as ADK writes it, `team@1/poet@1`; `''` for one that only runs others. */
export const nodePath = (root: AgentNode, agent: AgentNode): string =>
  agent.kind === 'llm'
    ? pathTo(root, agent.name)
        .map(({ name }) => `${name}@1`)
        .join('/')
    : '';

/** Returns the targets of transfers, as in ADK: sub-agents and, below an `llm` agent, that agent and its others. */
function transferTargets(root: AgentNode, agent: AgentNode): AgentNode[] {
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
    // One of another service hands nothing over: it goes on only with what it has asked.
    const isReached = !speaker?.isRemote || getFunctionResponses(history.at(-1)?.content).length > 0;
    if (speaker && isReached && path.every((agent) => agent.kind === 'llm')) return speaker;
  }
  return root;
}

/** Returns the agent to resume after a confirmation: the first above the named one that only runs others, or itself. */
export function findResumed(root: AgentNode, name: string): AgentNode {
  const path = pathTo(root, name);
  return path.find((agent) => agent.kind !== 'llm') ?? path.at(-1) ?? root;
}

/** Name of the transfer tool, as ADK's clients know it. */
const TRANSFER = 'transfer_to_agent';

/** Adds the tool and the instruction for transfers; returns the agent itself where it has no targets. */
export function withTransfer(root: AgentNode, agent: AgentNode): AgentNode {
  const targets = transferTargets(root, agent);
  if (targets.length === 0) return agent;
  const list = targets.map(({ name, description }) => `- ${name}: ${description || 'no description'}`).join('\n');
  const rule = `If another agent suits the request better, hand over to it with \`${TRANSFER}\` and say nothing else.`;
  return {
    ...agent,
    appendedInstruction: `${agent.appendedInstruction}\n\n${rule}\n${list}`,
    tools: [...agent.tools, transferTool(targets.map(({ name }) => name))],
  };
}

const transferTool = (names: string[]): Tool => ({
  name: TRANSFER,
  description: 'Hands the conversation over to another agent.',
  parameters: toParameters({ agent_name: { type: 'string', enum: names } }, 'agent_name'),
  needsConfirmation: false,
  effect: 'none',
  async run(args, { actions }) {
    actions.transferToAgent = String(args['agent_name']);
    return { result: null };
  },
});

/** Maximum length of a request to an agent that is a tool, in characters. */
const MAX_REQUEST = 100_000;

/**
 * An agent as a tool of another: it receives a request and gives an answer, without a session or events of its own.
 * `run` throws what `callAgent` throws; the model sees it as the error of the call.
 */
export const agentTool = (agent: AgentNode): Tool => ({
  name: agent.name,
  description: agent.description || `Asks the agent ${agent.name}.`,
  parameters: toParameters({ request: { type: 'string', minLength: 1, maxLength: MAX_REQUEST } }, 'request'),
  needsConfirmation: false,
  calls: agent,
  async run(args, context) {
    const reply = await context.callAgent(agent, String(args['request']));
    Object.assign(context.actions, reply.actions);
    return reply.value ?? { result: reply.text };
  },
});
