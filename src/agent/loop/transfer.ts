import type { AgentNode } from '../definition/agent.ts';
import { transferTargets } from './agent-tree.ts';
import type { Tool } from '../definition/tool.ts';

/** Name of the tool that hands a conversation over, as ADK's clients know it. */
const TRANSFER = 'transfer_to_agent';

/** The agent with what it needs to hand over; itself where there is nobody to hand over to. */
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
  parameters: {
    type: 'object',
    properties: { agent_name: { type: 'string', enum: names } },
    required: ['agent_name'],
    additionalProperties: false,
  },
  needsConfirmation: false,
  async run(args, { actions }) {
    actions.transferToAgent = String(args['agent_name']);
    return { result: null };
  },
});
