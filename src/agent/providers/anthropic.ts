import type { JsonObject } from '../../core/content.ts';
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
import { type FileFacts, findWindow, IMAGES, LOOSE_NAME, PDF, type Provider, type ProviderFacts } from './provider.ts';

const FILES: FileFacts = {
  types: new Set([...IMAGES, PDF]),
  addressTypes: new Set([...IMAGES, PDF]),
  addresses: /^https?:$/,
  size: 5_242_880,
  count: 100,
};

const FACTS: ProviderFacts = {
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
  thoughtData: ['signature', 'redactedData'],
  outputSchemas: 'enforced',
  outputTokens: 1,
  // Anthropic's own clients refuse to ask for more without a stream, because a long silence may cut the connection.
  wholeTokens: 21_333,
  stops: Infinity,
};

/** An open content block: its index in the stream for the AI SDK package, and the text of the tool call so far. */
interface Block {
  kind: 'text' | 'thinking' | 'redacted_thinking' | 'call' | 'unknown';
  index: number;
  id: string | undefined;
  name: string | undefined;
  text: string;
}

const MAX_ARGUMENTS = 33_554_432;
/** Token counts that the AI SDK package requires, used if the response lacks them. */
const NO_INPUT = { input_tokens: 0, output_tokens: 0 };

/** Skips unknown events, blocks and deltas, as Anthropic's versioning policy demands of clients. */
class AnthropicCleaner implements Cleaner {
  readonly #listener: Listener;
  #blocks = new Map<number, Block>();
  #next = 0;
  #isBegun = false;
  #hasAnswered = false;
  #hasCalls = false;
  #isFinished = false;
  #isOver = false;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  read(event: JsonObject): object[] | undefined {
    switch (event['type']) {
      case 'ping':
        return [];
      case 'message_start':
        return this.#begin(toObject(event['message']) ?? {});
      case 'content_block_start':
        return this.#start(toPlace(event), toObject(event['content_block']) ?? {});
      case 'content_block_delta':
        return this.#add(toPlace(event), toObject(event['delta']) ?? {});
      case 'content_block_stop':
        return this.#stop(toPlace(event));
      case 'message_delta':
        return this.#finish(toObject(event['delta']) ?? {}, event['usage']);
      case 'message_stop':
        return this.end(true);
      default:
        return undefined;
    }
  }

  end(isMarked: boolean): object[] {
    if (this.#isOver || !(isMarked || this.#isFinished)) return [];
    this.#isOver = true;
    const reason = this.#hasCalls ? 'tool_use' : 'end_turn';
    const isWhole = this.#hasAnswered || this.#hasCalls;
    return [
      ...(this.#isFinished || !isWhole ? [] : this.#finish({ stop_reason: reason }, {})),
      { type: 'message_stop' },
    ];
  }

  readWhole(answer: JsonObject): object[] | undefined {
    if (!Array.isArray(answer['content'])) return undefined;
    const blocks = toObjects(answer['content']).flatMap((block, index) => [
      ...(this.#start(index, block) ?? this.#passOver(block)),
      ...this.#stop(index),
    ]);
    const finish = this.#finish(answer, answer['usage']);
    return [...this.#begin(answer), ...blocks, ...finish, ...this.end(true)];
  }

  #passOver(block: JsonObject): [] {
    this.#listener.passOver(String(block['type']));
    return [];
  }

  /** A second `message_start` starts the message again: unfinished tool calls are dropped. */
  #begin(message: JsonObject): object[] {
    this.#blocks = new Map();
    if (this.#isBegun) return [];
    this.#isBegun = true;
    const [id, model] = [toWord(message['id']), toWord(message['model'])];
    const usage = { ...NO_INPUT, ...toNumbers(message['usage']) };
    return [
      { type: 'message_start', message: { ...(id && { id }), ...(model && { model }), role: 'assistant', usage } },
    ];
  }

  #start(place: number, block: JsonObject): object[] | undefined {
    const kind = KINDS[String(block['type'])] ?? 'unknown';
    const [id, name] = [toWord(block['id']), toWord(block['name'])];
    const open: Block = { kind, index: this.#next++, id, name, text: '' };
    this.#blocks.set(place, open);
    const { index } = open;
    const start = (content: object) => ({ type: 'content_block_start', index, content_block: content });
    if (kind === 'unknown') return undefined;
    if (kind === 'call') {
      this.#listener.begin();
      const input = toArgumentsText(block['input']);
      if (input !== '{}') open.text = input;
      return [];
    }
    if (kind === 'redacted_thinking') return [start({ type: kind, data: toWord(block['data']) ?? '' })];
    const first = kind === 'text' ? start({ type: kind, text: '' }) : start({ type: kind, thinking: '' });
    const text = toWord(block[kind]);
    const signature = toWord(block['signature']);
    return [
      first,
      ...(text === undefined ? [] : (this.#add(place, { type: `${kind}_delta`, [kind]: text }) ?? [])),
      ...(signature === undefined ? [] : (this.#add(place, { type: 'signature_delta', signature }) ?? [])),
    ];
  }

  #add(place: number, delta: JsonObject): object[] | undefined {
    const { type } = delta;
    const open = this.#blocks.get(place);
    // The deltas of an unknown block are skipped with the block.
    if (open?.kind === 'unknown') return [];
    if (type === 'input_json_delta' && open?.kind === 'call') {
      open.text += toArgumentsText(delta['partial_json']);
      if (open.text.length > MAX_ARGUMENTS)
        throw new ModelFailure('model_bad_response', { detail: `more than ${MAX_ARGUMENTS} characters` });
      return [];
    }
    const [kind, member] = DELTAS[String(type)] ?? [];
    const words = member && delta[member];
    if (!kind || typeof words !== 'string') return undefined;
    if (!open) return [...(this.#start(place, { type: kind }) ?? []), ...(this.#add(place, delta) ?? [])];
    if (open.kind !== kind) return undefined;
    if (kind === 'text' && words !== '') this.#hasAnswered = true;
    return [{ type: 'content_block_delta', index: open.index, delta: { type, [member as string]: words } }];
  }

  #stop(place: number): object[] {
    const open = this.#blocks.get(place);
    this.#blocks.delete(place);
    if (!open || open.kind === 'unknown') return [];
    const { index, id, name, text } = open;
    const stop = { type: 'content_block_stop', index };
    if (open.kind !== 'call') return [stop];
    if (name === undefined) {
      this.#listener.passOver('a call without a name');
      return [];
    }
    this.#hasCalls = true;
    return [
      {
        type: 'content_block_start',
        index,
        content_block: { type: 'tool_use', id: id ?? `toolu_${crypto.randomUUID()}`, name, input: {} },
      },
      {
        type: 'content_block_delta',
        index,
        delta: { type: 'input_json_delta', partial_json: text.trim() === '' ? '{}' : text },
      },
      stop,
    ];
  }

  #finish(delta: JsonObject, usage: unknown): object[] {
    const reason = toWord(delta['stop_reason']) ?? null;
    if (reason !== null) this.#isFinished = true;
    const stops = [...this.#blocks.keys()].flatMap((place) => (reason === null ? [] : this.#stop(place)));
    const counts = { output_tokens: 0, ...toNumbers(usage) };
    return [
      ...stops,
      {
        type: 'message_delta',
        delta: { stop_reason: reason, stop_sequence: toWord(delta['stop_sequence']) ?? null },
        usage: counts,
      },
    ];
  }
}

const toPlace = (event: JsonObject): number => toNumber(event['index']) ?? 0;

const KINDS: Record<string, Block['kind']> = {
  text: 'text',
  thinking: 'thinking',
  redacted_thinking: 'redacted_thinking',
  tool_use: 'call',
};
/** By type of delta: the kind of content block, and the member of the delta with the text. */
const DELTAS: Record<string, ['text' | 'thinking', string]> = {
  text_delta: ['text', 'text'],
  thinking_delta: ['thinking', 'thinking'],
  signature_delta: ['thinking', 'signature'],
};

export const anthropic: Provider<'anthropic'> = {
  name: 'anthropic',
  baseUrl: 'https://api.anthropic.com/v1',
  examples: ['MODEL_NAME=claude-sonnet-4-5 MODEL_API_KEY=sk-ant-…'],
  toKeyHeaders: (key) => ({ 'x-api-key': key, 'anthropic-version': '2023-06-01' }),
  load: async (connection) => (await import('@ai-sdk/anthropic')).createAnthropic(connection),
  hasEmbeddings: false,
  facts: () => FACTS,
  // Of 200,000 tokens, beside the 64,000 that a request allows for its answer if the agent sets no maximum.
  contextTokens: findWindow([[/^claude-(?:3|[a-z]+-[4-9])/, 150_000]]),
  toOptions: ({ asWhole }) => (asWhole ? { anthropic: { toolStreaming: false } } : undefined),
  // A mark ends a cached prefix: the instruction with the tools, and the history.
  cacheMark: { anthropic: { cacheControl: { type: 'ephemeral' } } },
  Cleaner: AnthropicCleaner,
};
