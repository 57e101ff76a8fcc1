import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { hasExactIntegers, parseExactJson } from '../../core/exact-json.ts';
import { type Cleaner, type Listener, toNumber, toObject, toObjects, toWord } from './cleaner.ts';
import { ModelFailure } from './model-error.ts';
import {
  ARGUMENT_NAME,
  type FileFacts,
  findWindow,
  PDF,
  type Provider,
  type ProviderFacts,
  TOOL_NAME,
} from './provider.ts';

const TYPES = ['image/png', 'image/jpeg', 'image/webp', 'image/heic', 'image/heif', 'audio/*', 'video/*', PDF];

const FILES: FileFacts = {
  types: new Set(TYPES),
  addressTypes: new Set([...TYPES, 'text/*']),
  // URLs that Gemini can read itself: files of Google's file API, files in a storage bucket, and YouTube videos.
  addresses: /^(?:https?|gs):$/,
  size: 20_900_000,
  count: 3_000,
};

const FACTS: ProviderFacts = {
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
  thoughtData: [],
  outputSchemas: 'enforced',
  outputTokens: 1,
  wholeTokens: Infinity,
  stops: 5,
};

/** Argument with all others as JSON text, used if they have integers that the AI SDK package would round. */
const PACKED = 'agent-runtime/packed';

class GoogleCleaner implements Cleaner {
  readonly #listener: Listener;
  #hasAnswered = false;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  read(chunk: JsonObject): object[] | undefined {
    const [candidate] = toObjects(chunk['candidates']);
    const feedback = toObject(chunk['promptFeedback']);
    const usage = toObject(chunk['usageMetadata']);
    if (!candidate && !feedback && !usage && chunk['candidates'] === undefined) return undefined;
    const isBlocked = !candidate && toWord(feedback?.['blockReason']) !== undefined;
    const responseId = toWord(chunk['responseId']);
    const modelVersion = toWord(chunk['modelVersion']);
    return [
      {
        ...(responseId !== undefined && { responseId }),
        ...(modelVersion !== undefined && { modelVersion }),
        ...(candidate && { candidates: [this.#toCandidate(candidate)] }),
        ...(usage && { usageMetadata: toCounts(usage) }),
        ...(isBlocked && { promptFeedback: { blockReason: 'SAFETY' } }),
      },
    ];
  }

  end(): object[] {
    return [];
  }

  readWhole(answer: JsonObject): object[] | undefined {
    return this.read(answer);
  }

  #toCandidate(candidate: JsonObject): object {
    const content = toObject(candidate['content']);
    const parts = toObjects(content?.['parts'] ?? []).flatMap((part) => this.#toPart(part) ?? []);
    if (parts.length > 0) this.#hasAnswered = true;
    const reason = toWord(candidate['finishReason']);
    if (reason === 'MALFORMED_FUNCTION_CALL' && !this.#hasAnswered)
      throw new ModelFailure('model_bad_response', { detail: reason, retryAfterMs: 0 });
    const grounding = toObject(candidate['groundingMetadata']);
    const token = toWord(candidate['continuationToken']);
    return {
      content: { role: 'model', parts },
      ...(reason !== undefined && reason !== 'FINISH_REASON_UNSPECIFIED' && { finishReason: reason }),
      ...(grounding && { groundingMetadata: grounding }),
      ...(token !== undefined && { continuationToken: token }),
    };
  }

  #toPart(part: JsonObject): object | undefined {
    const signature = toWord(part['thoughtSignature']) ?? toWord(part['thought_signature']);
    const signed = signature === undefined ? {} : { thoughtSignature: signature };
    const call = toObject(part['functionCall']);
    if (call) return { functionCall: toCall(call), ...signed };
    const data = toObject(part['inlineData']);
    if (typeof data?.['mimeType'] === 'string' && typeof data['data'] === 'string')
      return { inlineData: { mimeType: data['mimeType'], data: data['data'] }, ...signed };
    // A part with code that Google executed, or with the code's result, is passed on.
    if (toObject(part['executableCode']) ?? toObject(part['codeExecutionResult'])) return part;
    const { text } = part;
    if (typeof text === 'string' || signature !== undefined)
      return {
        text: typeof text === 'string' ? text : '',
        ...(part['thought'] === true && { thought: true }),
        ...signed,
      };
    const [name = 'an empty part'] = Object.keys(part);
    this.#listener.passOver(name);
    return undefined;
  }
}

function toCall(call: JsonObject): object {
  const { willContinue, partialArgs } = call;
  const [id, name] = [toWord(call['id']), toWord(call['name'])];
  const args = toArguments(call['args']);
  return {
    ...(id !== undefined && { id }),
    ...(name !== undefined && { name }),
    ...(args !== undefined && { args }),
    ...(Array.isArray(partialArgs) && { partialArgs }),
    ...(typeof willContinue === 'boolean' && { willContinue }),
  };
}

function toArguments(value: unknown): unknown {
  const args = typeof value === 'string' ? (toObject(parse(value)) ?? {}) : toObject(value);
  return args && hasExactIntegers(args) ? { [PACKED]: JSON.stringify(args) } : args;
}

function parse(text: string): unknown {
  try {
    return parseExactJson(text);
  } catch {
    return undefined;
  }
}

/** Unpacks a call's arguments if `GoogleCleaner` has packed them into one as JSON text. */
function unpackArguments(input: string): string {
  if (!input.startsWith(`{"${PACKED}":`)) return input;
  const { [PACKED]: text } = JSON.parse(input) as JsonObject;
  return typeof text === 'string' ? text : input;
}

/** Reads the token counts. Lists of counts by modality are passed on as they are. */
function toCounts(usage: JsonObject): JsonObject {
  const members = Object.entries(usage).flatMap(([name, value]): [string, unknown][] => {
    if (!name.endsWith('Count')) return [[name, value]];
    const count = toNumber(value);
    return count === undefined ? [] : [[name, count]];
  });
  return Object.fromEntries(members);
}

const COUNTS = [
  'promptTokenCount',
  'candidatesTokenCount',
  'thoughtsTokenCount',
  'cachedContentTokenCount',
  'toolUsePromptTokenCount',
  'totalTokenCount',
  'promptTokensDetails',
  'candidatesTokensDetails',
  'cacheTokensDetails',
  'toolUsePromptTokensDetails',
  'trafficType',
] as const;

/** Reads model version and grounding from a chunk, because the AI SDK package lacks some of them. */
function readChunk(raw: unknown) {
  const chunk = raw as
    | { modelVersion?: string; candidates?: { groundingMetadata?: Event['groundingMetadata'] }[] }
    | undefined;
  return { modelVersion: toWord(chunk?.modelVersion), grounding: chunk?.candidates?.[0]?.groundingMetadata };
}

export const google: Provider<'google'> = {
  name: 'google',
  telemetryName: 'gcp.gemini',
  baseUrl: 'https://generativelanguage.googleapis.com/v1beta',
  examples: ['MODEL_NAME=gemini-2.5-flash MODEL_API_KEY=AIza…'],
  toKeyHeaders: (key) => ({ 'x-goog-api-key': key }),
  load: async (connection) => (await import('@ai-sdk/google')).createGoogle(connection),
  hasEmbeddings: true,
  liveApi: 'bidi-generate-content',
  facts: () => FACTS,
  contextTokens: findWindow([
    [/image|audio|live|tts|embedding|computer-use|robotics|omni/, undefined],
    [/^(?:models\/)?gemini-(?:1\.5|2\.0|2\.5|3)/, 1_000_000],
  ]),
  toWholeUrl: (url) => url.replace(':streamGenerateContent?alt=sse', ':generateContent'),
  // A session that was imported from ADK has signatures in Gemini's own format.
  fromForeignSignature: (signature) => ({ google: { thoughtSignature: signature } }),
  Cleaner: GoogleCleaner,
  readChunk,
  readArguments: unpackArguments,
  // Finish reasons and token counts are those of ADK already.
  toFinishReason: (raw) => (/^[A-Z_]+$/.test(raw) ? raw : undefined),
  toUsage: (raw) => Object.fromEntries(COUNTS.flatMap((name) => (raw[name] === undefined ? [] : [[name, raw[name]]]))),
};
