import type { AgentSource } from '../../../../src/agent/definition/agent.ts';
import type { Tool } from '../../../../src/agent/definition/tool.ts';

/** What a person allows. It tells the soak of each operation, so that one that is made twice is counted. */
const pay: Tool = {
  name: 'pay',
  description: 'Pays.',
  effect: 'idempotent',
  needsConfirmation: true,
  parameters: { type: 'object', properties: { for: { type: 'string' } }, additionalProperties: false },
  run: async (args, { operationId }) => {
    const body = JSON.stringify({ for: args['for'], operationId });
    await fetch(`${process.env['SOAK_WORLD_URL']}/payments`, { method: 'POST', body });
    return { paid: true };
  },
};

/** The application of `npm run soak`, whose model is in the soak's own process. */
export const agent: AgentSource = {
  model: { provider: 'openai-compatible', name: 'scripted', baseUrl: process.env['SOAK_MODEL_URL'] ?? '' },
  tools: ['write_state', 'save_artifact', 'calculator', 'sleep_for', 'wait_for_signal', pay],
};
