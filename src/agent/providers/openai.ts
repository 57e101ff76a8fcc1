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
import { type FileFacts, findWindow, IMAGES, LOOSE_NAME, PDF, type Provider, type ProviderFacts } from './provider.ts';

const FILES: FileFacts = {
  types: new Set([...IMAGES, PDF]),
  addressTypes: new Set([...IMAGES, PDF]),
  addresses: /^https?:$/,
  size: 20_900_000,
  count: 500,
};

const FACTS: ProviderFacts = {
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
  thoughtData: ['reasoningEncryptedContent'],
  outputSchemas: 'enforced',
  outputTokens: 16,
  wholeTokens: Infinity,
  stops: 0,
};

/** JSON Schema keywords that OpenAI supports in strict mode. */
const STRICT = new Set(
  'type properties required additionalProperties items enum const anyOf $ref $defs description title'.split(' '),
);

/** True if OpenAI can enforce the schema. Any other is sent without strict mode, which would reject it. */
export function isStrict(schema: JsonObject): boolean {
  try {
    return schema['type'] === 'object' && isStrictPart(schema);
  } catch {
    // A keyword of the schema has a value of the wrong type.
    return false;
  }
}

function isStrictPart(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const schema = value as JsonObject;
  const { type, properties = {}, required = [], additionalProperties, items = {}, anyOf = [], $defs = {} } = schema;
  const parts = [...Object.values(properties as JsonObject), ...Object.values($defs as JsonObject)];
  const all = [...parts, ...(anyOf as unknown[]), ...(Object.hasOwn(schema, 'items') ? [items] : [])];
  const allRequired = Object.keys(properties as JsonObject).every((name) => (required as unknown[]).includes(name));
  const isClosed = type !== 'object' || (additionalProperties === false && allRequired);
  return isClosed && Object.keys(schema).every((name) => STRICT.has(name)) && all.every(isStrictPart);
}

/** Types of stream events that only repeat data of other events, and are therefore skipped. */
const REPEATING =
  /^response\.(?:in_progress|queued|content_part\.\w+|(?:output|reasoning|reasoning_summary)_text\.done|function_call_arguments\.\w+)$/;
const ANNOTATIONS = new Set(['url_citation', 'file_citation', 'container_file_citation', 'file_path']);
/** Types of output items that are read. Others occur only if the provider itself runs tools. */
const ITEMS = new Set(['message', 'reasoning', 'function_call']);

class ResponsesCleaner implements Cleaner {
  readonly #listener: Listener;
  /** Indexes of output items: announced, with text, and complete ones. */
  readonly #added = new Set<number>();
  readonly #spoken = new Set<number>();
  readonly #done = new Set<number>();
  #hasAnswered = false;
  #isOver = false;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  read(event: JsonObject): object[] | undefined {
    const type = String(event['type']);
    const place = toNumber(event['output_index']) ?? 0;
    switch (type) {
      case 'response.created':
        return toBegin(toObject(event['response']) ?? {});
      case 'response.output_item.added':
        return this.#add(place, toObject(event['item']));
      case 'response.output_item.done':
        return this.#finishItem(place, toObject(event['item']));
      case 'response.output_text.delta':
        return this.#speak(place, event);
      case 'response.reasoning_text.delta':
        return this.#think(place, event);
      case SUMMARY_DELTA:
      case SUMMARY_BEGIN:
      case 'response.reasoning_summary_part.done':
        return this.#summarise(place, event);
      case REFUSAL_DELTA:
      case 'response.refusal.done':
        return this.#refuse(place, event);
      case 'response.output_text.annotation.added':
        return toCitation(toObject(event['annotation']) ?? {}) && [event];
      case 'response.completed':
      case 'response.incomplete':
        return this.#finish(type, toObject(event['response']) ?? {});
      default:
        return REPEATING.test(type) ? [] : undefined;
    }
  }

  end(isMarked: boolean): object[] {
    if (this.#isOver || !isMarked || !this.#hasAnswered) return [];
    return this.#finish('response.completed', {});
  }

  readWhole(answer: JsonObject): object[] | undefined {
    if (!Array.isArray(answer['output'])) return undefined;
    const type = answer['status'] === 'incomplete' ? 'response.incomplete' : 'response.completed';
    return [...toBegin(answer), ...this.#finish(type, answer)];
  }

  #add(place: number, item: JsonObject | undefined): object[] | undefined {
    const known = item && toItem(place, item);
    if (!known) return undefined;
    this.#added.add(place);
    if (known['type'] === 'function_call') this.#hasAnswered = true;
    return [{ type: 'response.output_item.added', output_index: place, item: known }];
  }

  /** Reads a complete output item, even if no event announced it. */
  #finishItem(place: number, item: JsonObject | undefined): object[] | undefined {
    const known = item && toItem(place, item);
    if (!known) return undefined;
    this.#done.add(place);
    const before = this.#added.has(place) ? [] : (this.#add(place, item) ?? []);
    const texts = this.#spoken.has(place) ? [] : this.#toPieces(place, known, item);
    return [...before, ...texts, { type: 'response.output_item.done', output_index: place, item: known }];
  }

  /** The events of an item whose texts no event brought. */
  #toPieces(place: number, known: JsonObject, item: JsonObject): object[] {
    const texts = toTexts(item).flatMap(({ text, isRefusal }, index) =>
      isRefusal ? this.#toRefusal(place, known, text) : this.#toWords(place, known, text, index),
    );
    const annotations = toObjects(item['content'] ?? []).flatMap((part) => toObjects(part['annotations'] ?? []));
    return [...texts, ...annotations.flatMap((annotation) => toCitation(annotation) ?? this.#passOver(annotation))];
  }

  #toWords(place: number, item: JsonObject, delta: string, summary = 0): object[] {
    const at = { item_id: item['id'], output_index: place };
    if (item['type'] === 'reasoning') {
      const begin = { type: SUMMARY_BEGIN, summary_index: summary, ...at };
      return [...(summary > 0 ? [begin] : []), { type: SUMMARY_DELTA, summary_index: summary, ...at, delta }];
    }
    this.#hasAnswered = true;
    return [{ type: 'response.output_text.delta', ...at, delta }];
  }

  #toRefusal(place: number, item: JsonObject, delta: string): object[] {
    this.#hasAnswered = true;
    return [{ type: REFUSAL_DELTA, item_id: item['id'], output_index: place, delta }];
  }

  #speak(place: number, event: JsonObject): object[] | undefined {
    const { delta } = event;
    if (typeof delta !== 'string') return undefined;
    this.#spoken.add(place);
    const id = toWord(event['item_id']) ?? `item_${place}`;
    return [...this.#begin(place, { type: 'message', id }), ...this.#toWords(place, { type: 'message', id }, delta)];
  }

  /** Reads reasoning of open models, in an event that the AI SDK package does not know. */
  #think(place: number, event: JsonObject): object[] | undefined {
    const { delta } = event;
    if (typeof delta !== 'string') return undefined;
    this.#spoken.add(place);
    const item = { type: 'reasoning', id: toWord(event['item_id']) ?? `item_${place}` };
    return [...this.#begin(place, item), ...this.#toWords(place, item, delta)];
  }

  #summarise(place: number, event: JsonObject): object[] | undefined {
    const { item_id: id, summary_index: index, delta } = event;
    const isDelta = event['type'] === SUMMARY_DELTA;
    if (typeof id !== 'string' || toNumber(index) === undefined || (isDelta && typeof delta !== 'string'))
      return undefined;
    this.#spoken.add(place);
    return [...this.#begin(place, { type: 'reasoning', id }), event];
  }

  #refuse(place: number, event: JsonObject): object[] | undefined {
    const words = event['delta'] ?? event['refusal'];
    if (typeof event['item_id'] !== 'string' || typeof words !== 'string') return undefined;
    this.#spoken.add(place);
    this.#hasAnswered = true;
    return [...this.#begin(place, { type: 'message', id: event['item_id'] }), event];
  }

  #begin = (place: number, item: JsonObject) => (this.#added.has(place) ? [] : (this.#add(place, item) ?? []));

  #finish(type: string, response: JsonObject): object[] {
    this.#isOver = true;
    const items = toObjects(response['output'] ?? []).flatMap((item, place) =>
      this.#done.has(place) || this.#spoken.has(place) ? [] : (this.#finishItem(place, item) ?? this.#passOver(item)),
    );
    const usage = toNumbers(response['usage']);
    const reason = toWord(toObject(response['incomplete_details'])?.['reason']);
    const isCounted = usage?.['input_tokens'] !== undefined && usage['output_tokens'] !== undefined;
    const summary = { ...(isCounted && { usage }), ...(reason !== undefined && { incomplete_details: { reason } }) };
    return [...items, { type, response: summary }];
  }

  #passOver(item: JsonObject): [] {
    this.#listener.passOver(String(item['type']));
    return [];
  }
}

const SUMMARY_BEGIN = 'response.reasoning_summary_part.added';
const SUMMARY_DELTA = 'response.reasoning_summary_text.delta';
const REFUSAL_DELTA = 'response.refusal.delta';

const toCitation = (annotation: JsonObject): object[] | undefined =>
  ANNOTATIONS.has(String(annotation['type']))
    ? [{ type: 'response.output_text.annotation.added', annotation }]
    : undefined;

function toBegin(response: JsonObject): object[] {
  const { id, model, created_at: sent } = response;
  if (typeof id !== 'string' || typeof model !== 'string' || model === '') return [];
  return [{ type: 'response.created', response: { id, model, created_at: toNumber(sent) ?? 0 } }];
}

function toItem(place: number, item: JsonObject): JsonObject | undefined {
  const { type } = item;
  if (typeof type !== 'string' || !ITEMS.has(type)) return undefined;
  const id = toWord(item['id']) ?? `item_${place}`;
  if (type === 'reasoning') {
    const content = toWord(item['encrypted_content']);
    return { type, id, ...(content !== undefined && { encrypted_content: content }) };
  }
  if (type === 'message') {
    const { phase } = item;
    return { type, id, ...((phase === 'commentary' || phase === 'final_answer') && { phase }) };
  }
  const name = toWord(item['name']);
  if (name === undefined) return undefined;
  const args = toArgumentsText(item['arguments']);
  return { type, id, call_id: toWord(item['call_id']) ?? id, name, arguments: args, status: 'completed' };
}

interface ItemText {
  text: string;
  isRefusal: boolean;
}

/** The texts of an item. Open models give their reasoning as one content, and no summary. */
function toTexts({ type, summary, content }: JsonObject): ItemText[] {
  if (type !== 'reasoning') return toParts(content);
  const summaries = toParts(summary);
  if (summaries.length > 0) return summaries;
  const text = toParts(content)
    .map((part) => part.text)
    .join('');
  return text === '' ? [] : [{ text, isRefusal: false }];
}

function toParts(parts: unknown): ItemText[] {
  const all = typeof parts === 'string' ? [{ text: parts }] : toObjects(parts ?? []);
  return all.flatMap((part: JsonObject) => {
    const [text, refusal] = [toWord(part['text']), toWord(part['refusal'])];
    const words = text ?? refusal;
    return words === undefined ? [] : [{ text: words, isRefusal: text === undefined }];
  });
}

export const openai: Provider<'openai'> = {
  name: 'openai',
  baseUrl: 'https://api.openai.com/v1',
  examples: ['MODEL_NAME=gpt-5-mini MODEL_API_KEY=sk-…'],
  toKeyHeaders: (key) => ({ authorization: `Bearer ${key}` }),
  load: async (connection) => (await import('@ai-sdk/openai')).createOpenAI(connection),
  hasEmbeddings: true,
  facts: () => FACTS,
  contextTokens: findWindow([
    [/audio|realtime|search|transcribe|tts|image|oss|computer-use/, undefined],
    [/^gpt-5[\w.-]*-chat/, 128_000],
    // Of 400,000 tokens 128,000 are for the answer only.
    [/^gpt-5/, 272_000],
    [/^gpt-4\.1/, 1_000_000],
    [/^(?:gpt-4o|gpt-4-turbo|chatgpt-4o)/, 128_000],
    [/^(?:o1-mini|o1-preview)/, 128_000],
    [/^(?:o1|o3|o4-mini)/, 200_000],
  ]),
  // OpenAI is told to store nothing, so its reasoning is sent in the history, encrypted.
  toOptions: ({ outputSchema, cacheKey }) => ({
    openai: {
      store: false,
      ...(cacheKey && { promptCacheKey: cacheKey }),
      ...(outputSchema && { strictJsonSchema: isStrict(outputSchema) }),
    },
  }),
  Cleaner: ResponsesCleaner,
};
