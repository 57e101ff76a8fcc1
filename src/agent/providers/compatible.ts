import { ARGUMENT_NAME, IMAGES, PDF, type ProviderFacts, TOOL_NAME } from './facts.ts';

/**
 * Chat completions, as many servers speak it. Nobody knows which model is behind an address, so this is what nearly
 * all of them take: the chat templates of local models (Mistral, Gemma, Qwen) are the strictest.
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
 * Mistral's models: wherever they run, their tokenizers want ids of nine letters and digits, and no words of the user
 * behind results.
 */
const MISTRAL: ProviderFacts = {
  ...COMPATIBLE,
  callIds: { fits: /^[a-zA-Z0-9]{9}$/, length: 9 },
  afterResults: 'I have the results.',
  takesThoughts: false,
};

/** Its models read text alone. */
const DEEPSEEK: ProviderFacts = {
  ...COMPATIBLE,
  files: { ...COMPATIBLE.files, types: new Set(), addressTypes: new Set() },
};

const WITHOUT_THOUGHTS: ProviderFacts = { ...COMPATIBLE, takesThoughts: false };

/** Servers whose rules are known, by the end of their host's name. */
const HOSTS: readonly [RegExp, ProviderFacts][] = [
  [/(?:^|\.)mistral\.ai$/, { ...MISTRAL, members: { stream_options: undefined, seed: 'random_seed' } }],
  [/(?:^|\.)deepseek\.com$/, DEEPSEEK],
  [/(?:^|\.)(?:groq\.com|cerebras\.ai)$/, WITHOUT_THOUGHTS],
];

/** Models whose rules are known wherever they run. */
const MISTRAL_MODEL = /mi(?:s|x|nis)tral|codestral|devstral|magistral|pixtral|voxtral/i;

/** Returns what a server of this wire takes. */
export function compatibleFacts(baseUrl: string | undefined, modelName: string): ProviderFacts {
  const host = URL.parse(baseUrl ?? '')?.hostname ?? '';
  const known = HOSTS.find(([pattern]) => pattern.test(host))?.[1];
  if (known) return known;
  return MISTRAL_MODEL.test(modelName) ? MISTRAL : COMPATIBLE;
}
