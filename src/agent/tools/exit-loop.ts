import type { Tool } from '../definition/tool.ts';

/** Ends the loop that the agent runs in (ADK `exit_loop`). */
export const exitLoop: Tool = {
  name: 'exit_loop',
  description: 'Ends the loop. Call it only when you are told to end it.',
  parameters: { type: 'object', properties: {}, additionalProperties: false },
  needsConfirmation: false,
  async run(_args, { actions }) {
    actions.escalate = true;
    actions.skipSummarization = true;
    return { result: null };
  },
};
