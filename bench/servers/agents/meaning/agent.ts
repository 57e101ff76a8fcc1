import type { AgentSource } from '../../../../src/agent/definition/agent.ts';
import type { Model } from '../../../../src/agent/definition/model.ts';

/** The numbers of a vector, as the fill has them. */
const DIMENSIONS = 256;

/** Makes vectors at once: what is measured is what the service and its database do with them. */
const model: Model = {
  provider: 'instant',
  generate: () => {
    throw new Error('It answers nothing.');
  },
  embed: async (texts) => ({
    vectors: texts.map(({ length }) => Array.from({ length: DIMENSIONS }, (_, n) => Math.sin(n + length))),
  }),
};

/** The application whose memory is searched by meaning too. */
export const agent: AgentSource = { memory: { embeddings: { provider: model, name: 'instant' } } };
