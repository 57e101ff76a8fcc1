import type { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type JsonObject, toMembers } from '../../core/content.ts';
import {
  type Cleaner,
  type Listener,
  toArgumentsText,
  toNumber,
  toNumbers,
  toObject,
  toObjects,
  toWord,
} from './cleaner.ts';
import { ModelFailure } from './model-error.ts';
import { isStrict } from './openai.ts';
import { ARGUMENT_NAME, IMAGES, PDF, type Provider, type ProviderFacts, TOOL_NAME } from './provider.ts';

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
  thoughtData: [],
  outputSchemas: 'tried',
  outputTokens: 1,
  wholeTokens: Infinity,
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

/** Chooses the facts by the server's host name, else by the model's name. */
function toFacts(baseUrl: string | undefined, modelName: string): ProviderFacts {
  const host = URL.parse(baseUrl ?? '')?.hostname ?? '';
  const hostFacts = HOSTS.find(([pattern]) => pattern.test(host))?.[1];
  if (hostFacts) return hostFacts;
  return MISTRAL_MODEL.test(modelName) ? MISTRAL : COMPATIBLE;
}

/**
 * Reads OpenRouter's reasoning (`reasoning_details`), which the AI SDK package does not know. Pieces with the same
 * index are joined, and the finish part of the stream carries the result.
 */
const DETAILS: NonNullable<Parameters<typeof createOpenAICompatible>[0]['metadataExtractor']> = {
  extractMetadata: () => Promise.resolve(undefined),
  createStreamExtractor: () => {
    const details: JsonObject[] = [];
    return {
      processChunk(chunk) {
        const { choices } = toMembers(chunk);
        const { delta } = toMembers(Array.isArray(choices) ? choices[0] : undefined);
        const { reasoning_details: pieces } = toMembers(delta);
        for (const each of Array.isArray(pieces) ? pieces : []) addDetail(details, toMembers(each));
      },
      buildMetadata: () => (details.length > 0 ? { compatible: { reasoningDetails: details as never } } : undefined),
    };
  },
};

/** Renames or removes members of the request body as the provider requires. */
const withMembers = (body: JsonObject, members: ProviderFacts['members']): JsonObject =>
  members === undefined
    ? body
    : Object.fromEntries(
        Object.entries(body).flatMap(([name, value]) => {
          const sentName = Object.hasOwn(members, name) ? members[name] : name;
          return sentName === undefined ? [] : [[sentName, value]];
        }),
      );

/** Members of OpenRouter's `reasoning_details` whose text arrives in several pieces. */
const PIECES = ['text', 'summary', 'data'];

function addDetail(details: JsonObject[], detail: JsonObject): void {
  const last = details.at(-1);
  const isSame =
    last && last['type'] === detail['type'] && last['index'] === detail['index'] && detail['index'] !== undefined;
  const isNext = isSame && (last['id'] ?? detail['id']) === (detail['id'] ?? last['id']);
  if (!isNext) {
    details.push({ ...detail });
    return;
  }
  for (const [name, value] of Object.entries(detail)) {
    const before = last[name];
    if (PIECES.includes(name) && typeof before === 'string' && typeof value === 'string') last[name] = before + value;
    else if (value !== null && value !== undefined) last[name] = value;
  }
}

interface OpenCall {
  index: number | undefined;
  id: string | undefined;
  name: string | undefined;
  text: string;
  extra: unknown;
}

/** Finish reasons of other APIs, mapped to those of OpenAI. */
const REASONS: Record<string, string> = {
  model_length: 'length',
  max_tokens: 'length',
  max_output_tokens: 'length',
  end_turn: 'stop',
  stop_sequence: 'stop',
  eos: 'stop',
  tool_use: 'tool_calls',
  safety: 'content_filter',
};

class ChatCleaner implements Cleaner {
  readonly #listener: Listener;
  readonly #calls: OpenCall[] = [];
  #reason: string | undefined;
  #hasAnswered = false;
  #isOver = false;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  read(chunk: JsonObject): object[] | undefined {
    const choices = toObjects(chunk['choices']);
    const choice = choices.find(({ index }) => (toNumber(index) ?? 0) === 0) ?? choices[0];
    const usage = toUsage(chunk, choice);
    if (!choice && !usage) return Array.isArray(chunk['choices']) ? [] : undefined;
    const delta = choice ? (toObject(choice['delta']) ?? toObject(choice['message']) ?? {}) : {};
    this.#readCalls(delta);
    this.#readReason(choice);
    const content = this.#toDelta(delta);
    const [id, model] = [toWord(chunk['id']), toWord(chunk['model'])];
    const identity = { ...(id !== undefined && { id }), ...(model !== undefined && { model }) };
    return [{ ...identity, choices: choice ? [{ delta: content }] : [], ...(usage && { usage }) }];
  }

  end(isMarked: boolean): object[] {
    if (this.#isOver) return [];
    const calls = this.#calls.filter(({ name }) => name !== undefined);
    const isWhole = isMarked && (this.#hasAnswered || calls.length > 0);
    const reason = this.#reason ?? (isWhole ? 'stop' : undefined);
    // No end is added to a stream without a finish reason, which was cut off, perhaps within a tool call.
    if (reason === undefined) return [];
    this.#isOver = true;
    if (reason === 'insufficient_system_resource' && !this.#hasAnswered && calls.length === 0)
      throw new ModelFailure('model_unavailable', { detail: reason, retryAfterMs: 0 });
    if (calls.length < this.#calls.length) this.#listener.passOver('a call without a name');
    const toolCalls = calls.map(({ id, name, text, extra }, index) => ({
      index,
      ...(id !== undefined && { id }),
      type: 'function',
      function: { name, arguments: text.trim() === '' ? '{}' : text },
      ...(toExtra(extra) && { extra_content: toExtra(extra) }),
    }));
    const delta = toolCalls.length > 0 ? { tool_calls: toolCalls } : {};
    const finish = calls.length > 0 && reason === 'stop' ? 'tool_calls' : reason;
    return [{ choices: [{ delta, finish_reason: finish }] }];
  }

  readWhole(answer: JsonObject): object[] | undefined {
    const events = this.read(answer);
    return events && [...events, ...this.end(true)];
  }

  #readReason(choice: JsonObject | undefined): void {
    const reason = toWord(choice?.['finish_reason'])?.toLowerCase();
    if (reason === undefined) return;
    if (reason === 'error') throw new ModelFailure('model_unavailable', { detail: 'error', retryAfterMs: 0 });
    this.#reason = REASONS[reason] ?? reason;
  }

  #toDelta(delta: JsonObject): object {
    const { refusal } = delta;
    const [thoughts, texts] = this.#readContent(delta['content']);
    const details = toObjects(delta['reasoning_details']);
    const spellings = [delta['reasoning_content'], delta['reasoning'], delta['thinking']].map(toWord);
    const fromDetails = details.map(({ text, summary }) => toWord(text) ?? toWord(summary) ?? '').join('');
    const thought = (spellings.find((text) => text !== undefined) ?? fromDetails) + thoughts;
    if (texts !== '' || toWord(refusal) !== undefined) this.#hasAnswered = true;
    return {
      ...(texts !== '' && { content: texts }),
      ...(thought !== '' && { reasoning_content: thought }),
      ...(toWord(refusal) !== undefined && { refusal }),
      ...(details.length > 0 && { reasoning_details: details }),
    };
  }

  /** Reads the content of a message: a string, or a list of texts and thoughts. */
  #readContent(content: unknown): [thoughts: string, texts: string] {
    if (typeof content === 'string') return ['', content];
    if (content === undefined || content === null) return ['', ''];
    let [thoughts, texts] = ['', ''];
    for (const part of Array.isArray(content) ? content : [content]) {
      const { type, text, thinking }: JsonObject = toObject(part) ?? { text: part };
      const isThought = type === 'thinking' || type === 'reasoning';
      const words = isThought ? toWords(thinking ?? text) : toWords(text);
      if (words === undefined) this.#listener.passOver(typeof type === 'string' ? type : 'content');
      else if (isThought) thoughts += words;
      else texts += words;
    }
    return [thoughts, texts];
  }

  #readCalls(delta: JsonObject): void {
    const old = toObject(delta['function_call']);
    const pieces = [...toObjects(delta['tool_calls']), ...(old ? [{ index: 0, function: old }] : [])];
    for (const piece of pieces) this.#addPiece(piece);
  }

  #addPiece(piece: JsonObject): void {
    const { name: rawName, arguments: text } = toObject(piece['function']) ?? piece;
    const [index, id, name] = [toNumber(piece['index']), toWord(piece['id']), toWord(rawName)];
    if (this.#calls.length === 0) this.#listener.begin();
    let call = this.#findCall(index, id, name);
    if (!call) {
      call = { index, id: undefined, name: undefined, text: '', extra: undefined };
      this.#calls.push(call);
    }
    call.id ??= id;
    call.name ??= name;
    call.text += toArgumentsText(text);
    call.extra ??= piece['extra_content'] ?? undefined;
    if (call.text.length > MAX_ARGUMENTS)
      throw new ModelFailure('model_bad_response', { detail: `more than ${MAX_ARGUMENTS} characters` });
  }

  /** Finds a piece's tool call. Servers may send no index, or the same for all; later pieces may have no id. */
  #findCall(index: number | undefined, id: string | undefined, name: string | undefined): OpenCall | undefined {
    if (index !== undefined) {
      const call = this.#calls.findLast((each) => each.index === index);
      const isOther = id !== undefined && name !== undefined && call?.id !== undefined && call.id !== id;
      return isOther ? undefined : call;
    }
    if (id !== undefined) return this.#calls.findLast((each) => each.id === id) ?? this.#waiting(name);
    return name === undefined ? this.#calls.at(-1) : undefined;
  }

  /** Returns the last tool call if it has no id yet, and if the piece names no tool (`name`). */
  #waiting(name: string | undefined): OpenCall | undefined {
    const last = this.#calls.at(-1);
    return last && last.id === undefined && name === undefined ? last : undefined;
  }
}

/** Maximum length of the arguments of one tool call, in characters. */
const MAX_ARGUMENTS = 33_554_432;

function toWords(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return undefined;
  return value.map((each) => toWord(each) ?? toWord(toObject(each)?.['text']) ?? '').join('');
}

function toExtra(extra: unknown): object | undefined {
  const signature = toWord(toObject(toObject(extra)?.['google'])?.['thought_signature']);
  return signature === undefined ? undefined : { google: { thought_signature: signature } };
}

/** Finds the token counts, which servers put into different members. */
function toUsage(chunk: JsonObject, choice: JsonObject | undefined): JsonObject | undefined {
  const counts = toNumbers(chunk['usage']) ?? toNumbers(toObject(chunk['x_groq'])?.['usage']);
  const usage = counts ?? toNumbers(choice?.['usage']);
  return usage && Object.keys(usage).length > 0 ? usage : undefined;
}

export const openaiCompatible: Provider<'openai-compatible'> = {
  name: 'openai-compatible',
  baseUrl: undefined,
  examples: [
    'MODEL_BASE_URL=https://openrouter.ai/api/v1 MODEL_NAME=qwen/qwen3-32b MODEL_API_KEY=sk-or-…',
    'MODEL_BASE_URL=http://localhost:11434/v1 MODEL_NAME=qwen3',
  ],
  toKeyHeaders: (key) => ({ authorization: `Bearer ${key}` }),
  listsModels: true,
  async load({ apiKey, baseURL, fetch }) {
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
    return createOpenAICompatible({
      name: 'compatible',
      baseURL,
      includeUsage: true,
      supportsStructuredOutputs: true,
      metadataExtractor: DETAILS,
      transformRequestBody: (body) => withMembers(body, toFacts(baseURL, '').members),
      ...(apiKey && { apiKey }),
      fetch,
    });
  },
  hasEmbeddings: true,
  facts: toFacts,
  toOptions: ({ outputSchema }) =>
    outputSchema ? { compatible: { strictJsonSchema: isStrict(outputSchema) } } : undefined,
  Cleaner: ChatCleaner,
  mayOmitThoughtTag: true,
  messageThoughts: {
    read({ compatible }) {
      const reasoningDetails = compatible?.['reasoningDetails'];
      return reasoningDetails === undefined ? undefined : { compatible: { reasoningDetails } };
    },
    ofData({ compatible }) {
      const details = compatible?.['reasoningDetails'];
      return Array.isArray(details) ? details : [];
    },
    toOptions: (details) => ({ openaiCompatible: { reasoning_details: details as never } }),
  },
};
