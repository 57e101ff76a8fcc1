import { ARGUMENT_NAME, IMAGES, PDF, type ProviderFacts, TOOL_NAME } from './facts.ts';

/**
 * What nearly all servers for OpenAI's chat completions API accept, because any model may be behind the address; the
 * chat templates of local models (Mistral, Gemma, Qwen) are the strictest.
 */
const COMPATIBLE: ProviderFacts = {
  callIds: { fits: /^[a-zA-Z0-9_-]{1,40}$/, length: 24 },
  toolName: TOOL_NAME,
  argumentName: ARGUMENT_NAME,
  formTools: [],
  description: 1_024,
  tools: 128,
  choosesByName: false,
  schemas: 'json-schema',
  files: {
    types: new Set([...IMAGES, PDF, 'audio/wav', 'audio/mpeg']),
    addressTypes: new Set(IMAGES),
    addresses: /^https?:$/,
    size: 20_900_000,
    count: 100,
  },
  resultFiles: undefined,
  answerFiles: undefined,
  afterResults: undefined,
  takesThoughts: true,
  outputTokens: 1,
  stops: 4,
};

/**
 * What Mistral's models accept. On any server, their tokenizers require function call ids of nine letters and digits,
 * and reject a user message directly after tool results.
 */
const MISTRAL: ProviderFacts = {
  ...COMPATIBLE,
  callIds: { fits: /^[a-zA-Z0-9]{9}$/, length: 9 },
  afterResults: 'I have the results.',
  takesThoughts: false,
};

/** What DeepSeek's models accept: text only, no files. */
const DEEPSEEK: ProviderFacts = {
  ...COMPATIBLE,
  files: { ...COMPATIBLE.files, types: new Set(), addressTypes: new Set() },
};

const WITHOUT_THOUGHTS: ProviderFacts = { ...COMPATIBLE, takesThoughts: false };

/** What the models of these providers accept, by the end of the server's host name. */
const HOSTS: readonly [RegExp, ProviderFacts][] = [
  [/(?:^|\.)mistral\.ai$/, { ...MISTRAL, members: { stream_options: undefined, seed: 'random_seed' } }],
  [/(?:^|\.)deepseek\.com$/, DEEPSEEK],
  [/(?:^|\.)(?:groq\.com|cerebras\.ai)$/, WITHOUT_THOUGHTS],
];

/** Matches the names of Mistral's models, whose limits (ids, order of messages) apply on any server. */
const MISTRAL_MODEL = /mi(?:s|x|nis)tral|codestral|devstral|magistral|pixtral|voxtral/i;

/** Chooses the limits by the server's host name, else by the model's name. */
export function compatibleFacts(baseUrl: string | undefined, modelName: string): ProviderFacts {
  const host = URL.parse(baseUrl ?? '')?.hostname ?? '';
  const hostFacts = HOSTS.find(([pattern]) => pattern.test(host))?.[1];
  if (hostFacts) return hostFacts;
  return MISTRAL_MODEL.test(modelName) ? MISTRAL : COMPATIBLE;
}
