import { getFunctionResponses } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { type AgentNode, type Tool, toParameters } from '../definition/tool.ts';

/** The agents from the root to the named agent, both included; `[]` if there is no such agent. */
export function pathTo(root: AgentNode, name: string): AgentNode[] {
  if (root.name === name) return [root];
  for (const child of root.subAgents) {
    const path = pathTo(child, name);
    if (path.length > 0) return [root, ...path];
  }
  return [];
}

/** Value of ADK's `nodeInfo.path`, such as `team@1/poet@1`; `''` for an agent whose kind is not `llm`. */
export const nodePath = (root: AgentNode, agent: AgentNode): string =>
  agent.kind === 'llm'
    ? pathTo(root, agent.name)
        .map(({ name }) => `${name}@1`)
        .join('/')
    : '';

/** The sub-agents and, if the parent is an `llm` agent, also the parent and its other sub-agents (as in ADK). */
function transferTargets(root: AgentNode, agent: AgentNode): AgentNode[] {
  const parent = pathTo(root, agent.name).at(-2);
  const relatives = parent?.kind === 'llm' ? [parent, ...parent.subAgents.filter((peer) => peer !== agent)] : [];
  return [...agent.subAgents, ...relatives];
}

/**
 * Finds the agent that handles a new message of the user: the agent that spoke last, if transfers can reach it (all its
 * ancestors are `llm` agents), else the root (ADK `_find_agent_to_run`).
 */
export function findSpeaker(root: AgentNode, history: Event[]): AgentNode {
  for (let place = history.length - 1; place >= 0; place -= 1) {
    const author = history[place]?.author;
    if (!author || author === 'user') continue;
    const path = pathTo(root, author);
    const speaker = path.at(-1);
    // A remote agent cannot transfer the conversation back, so it gets only function responses to its own questions.
    const isReached = !speaker?.isRemote || getFunctionResponses(history.at(-1)?.content).length > 0;
    if (speaker && isReached && path.every((agent) => agent.kind === 'llm')) return speaker;
  }
  return root;
}

/** Agent to resume after a confirmation: the topmost ancestor whose kind is not `llm`, else the named agent. */
export function findResumed(root: AgentNode, name: string): AgentNode {
  const path = pathTo(root, name);
  return path.find((agent) => agent.kind !== 'llm') ?? path.at(-1) ?? root;
}

/** Name of the transfer tool in ADK's protocol. */
const TRANSFER = 'transfer_to_agent';

/** Adds the tool that transfers the conversation, and its instruction, if there is an agent to transfer to. */
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

/** Maximum length of the text that a model sends to an agent used as a tool, in characters. */
const MAX_REQUEST = 100_000;

/** The agent of a name among an agent, its sub-agents and the agents that these use as tools. */
export function findNode(root: AgentNode, name: string): AgentNode | undefined {
  if (root.name === name) return root;
  const used = root.tools.flatMap(({ calls }) => (typeof calls === 'object' ? [calls] : []));
  for (const below of [...root.subAgents, ...used]) {
    const found = findNode(below, name);
    if (found) return found;
  }
  return undefined;
}

const IN_BACKGROUND =
  'It works in the background: the call is answered at once, and its result comes later as a message.';

/** An agent used as a tool gets one request and returns one result, or the id of its session if it goes on. */
export const agentTool = (agent: AgentNode, background: boolean | 'optional' = false): Tool => ({
  name: agent.name,
  description: [
    agent.description || `Asks the agent ${agent.name}.`,
    ...(background === true ? [IN_BACKGROUND] : []),
  ].join(' '),
  parameters: toParameters(
    {
      request: { type: 'string', minLength: 1, maxLength: MAX_REQUEST },
      ...(background === 'optional' && {
        background: { type: 'boolean', description: `True: ${IN_BACKGROUND} Default: the call waits for the result.` },
      }),
    },
    'request',
  ),
  needsConfirmation: false,
  calls: agent,
  ...(background !== false && { background }),
  async run(args, context) {
    const reply = await context.callAgent(agent, String(args['request']));
    Object.assign(context.actions, reply.actions);
    return reply.value ?? { result: reply.text };
  },
});
