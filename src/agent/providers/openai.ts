import { type FileFacts, IMAGES, LOOSE_NAME, PDF, type ProviderFacts } from './facts.ts';

const FILES: FileFacts = {
  types: new Set([...IMAGES, PDF]),
  addressTypes: new Set([...IMAGES, PDF]),
  addresses: /^https?:$/,
  size: 20_900_000,
  count: 500,
};

export const OPENAI: ProviderFacts = {
  // The maximum length of a call id is 64 characters in the Responses API and 40 in chat completions.
  callIds: { fits: /^[a-zA-Z0-9_-]{1,40}$/, length: 24 },
  toolName: /^[a-zA-Z0-9_-]{1,64}$/,
  argumentName: LOOSE_NAME,
  formTools: [],
  description: 1_024,
  tools: 128,
  choosesByName: true,
  schemas: 'json-schema',
  files: FILES,
  resultFiles: FILES,
  answerFiles: undefined,
  afterResults: undefined,
  takesThoughts: true,
  outputTokens: 16,
  stops: 0,
};
