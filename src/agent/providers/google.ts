import { ARGUMENT_NAME, type FileFacts, PDF, type ProviderFacts, TOOL_NAME } from './facts.ts';

const TYPES = ['image/png', 'image/jpeg', 'image/webp', 'image/heic', 'image/heif', 'audio/*', 'video/*', PDF];

const FILES: FileFacts = {
  types: new Set(TYPES),
  addressTypes: new Set([...TYPES, 'text/*']),
  // URLs that Gemini can read itself: files of Google's file API, files in a storage bucket, and YouTube videos.
  addresses: /^(?:https?|gs):$/,
  size: 20_900_000,
  count: 3_000,
};

export const GOOGLE: ProviderFacts = {
  callIds: { fits: /^[a-zA-Z0-9_-]{1,64}$/, length: 24 },
  toolName: TOOL_NAME,
  argumentName: ARGUMENT_NAME,
  formTools: [],
  description: Infinity,
  tools: 128,
  choosesByName: true,
  schemas: 'google',
  files: FILES,
  resultFiles: { ...FILES, addressTypes: new Set() },
  answerFiles: { ...FILES, addressTypes: new Set() },
  afterResults: undefined,
  takesThoughts: true,
  outputTokens: 1,
  stops: 5,
};
