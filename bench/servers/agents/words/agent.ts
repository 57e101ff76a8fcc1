import type { AgentSource } from '../../../../src/agent/definition/agent.ts';

/** The application whose model is reached over HTTP (`model.js`). */
export const agent: AgentSource = {
  model: { provider: 'openai-compatible', name: 'words', baseUrl: `${process.env['BENCH_MODEL_URL']}/v1` },
};
