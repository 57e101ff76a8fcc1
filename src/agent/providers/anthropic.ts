import { type FileFacts, IMAGES, LOOSE_NAME, PDF, type ProviderFacts } from './facts.ts';

const FILES: FileFacts = {
  types: new Set([...IMAGES, PDF]),
  addressTypes: new Set([...IMAGES, PDF]),
  addresses: /^https?:$/,
  size: 5_242_880,
  count: 100,
};

export const ANTHROPIC: ProviderFacts = {
  callIds: { fits: /^[a-zA-Z0-9_-]{1,64}$/, length: 24 },
  toolName: /^[a-zA-Z0-9_-]{1,64}$/,
  argumentName: LOOSE_NAME,
  formTools: ['json'],
  description: Infinity,
  tools: 128,
  choosesByName: true,
  schemas: 'json-schema',
  files: FILES,
  resultFiles: FILES,
  answerFiles: undefined,
  afterResults: undefined,
  takesThoughts: true,
  outputTokens: 1,
  stops: Infinity,
};
