import type { AgentNode } from '../definition/agent.ts';
import { mergeActions } from './call-tools.ts';
import type { Tool } from '../definition/tool.ts';

/** Longest request to an agent that is a tool, in characters. */
const MAX_REQUEST = 100_000;

/** An agent as a tool of another: it gets a request of its own and gives an answer, without a session or events of its own. */
export const agentTool = (agent: AgentNode): Tool => ({
  name: agent.name,
  description: agent.description || `Asks the agent ${agent.name}.`,
  parameters: {
    type: 'object',
    properties: { request: { type: 'string', minLength: 1, maxLength: MAX_REQUEST } },
    required: ['request'],
    additionalProperties: false,
  },
  idempotent: false,
  needsConfirmation: false,
  async run(args, context) {
    const reply = await context.askAgent(agent, String(args['request']));
    const { stateDelta, artifactDelta } = mergeActions(reply.actions);
    context.actions.stateDelta = stateDelta;
    context.actions.artifactDelta = artifactDelta;
    return { result: reply.text };
  },
});
