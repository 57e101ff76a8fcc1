import type { AgentNode } from '../definition/agent.ts';
import { mergeActions } from './call-tools.ts';
import type { Tool } from '../definition/tool.ts';

/** Maximum length of a request to an agent that is a tool, in characters. */
const MAX_REQUEST = 100_000;

/**
 * An agent as a tool of another: it receives a request and gives an answer, without a session or events of its own.
 * `run` throws what `askAgent` throws; the model sees it as the error of the call.
 */
export const agentTool = (agent: AgentNode): Tool => ({
  name: agent.name,
  description: agent.description || `Asks the agent ${agent.name}.`,
  parameters: {
    type: 'object',
    properties: { request: { type: 'string', minLength: 1, maxLength: MAX_REQUEST } },
    required: ['request'],
    additionalProperties: false,
  },
  needsConfirmation: false,
  calls: agent,
  async run(args, context) {
    const reply = await context.askAgent(agent, String(args['request']));
    const { stateDelta, artifactDelta } = mergeActions(reply.actions);
    context.actions.stateDelta = stateDelta;
    context.actions.artifactDelta = artifactDelta;
    return { result: reply.text };
  },
});
