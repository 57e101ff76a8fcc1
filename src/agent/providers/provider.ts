import type { createAnthropic } from '@ai-sdk/anthropic';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { UsageMetadata } from '../../core/model-metadata.ts';
import type { Cleaner, Listener } from './cleaner.ts';

/** A model, by the interface that all provider packages of the AI SDK have. */
export type ProviderModel = ReturnType<ReturnType<typeof createAnthropic>>;
type ProviderModels = ((modelName: string) => ProviderModel) &
  Pick<ReturnType<typeof createAnthropic>, 'embeddingModel'>;
export type CallOptions = Parameters<ProviderModel['doStream']>[0];
export type StreamPart =
  Awaited<ReturnType<ProviderModel['doStream']>>['stream'] extends ReadableStream<infer Part> ? Part : never;
/** Options of a call, a message or a part, or what the provider sent with a part, by its name in the AI SDK. */
export type ProviderData = NonNullable<CallOptions['providerOptions']>;

/**
 * All that the runtime knows of one provider of models. `index.ts` lists the providers; nothing else names one.
 */
export interface Provider<Name extends string = string> {
  /** Value of `MODEL_PROVIDER` and of `provider` in `harness.yaml`. */
  name: Name;
  /** The name that OpenTelemetry's conventions have for the provider. Default: `name`. */
  telemetryName?: string;
  /** Public base URL. Undefined: the operator has to name one, and no key is required. */
  baseUrl: string | undefined;
  /** Settings of the examples in `docs/models.md`. */
  examples: readonly string[];
  /** Headers that carry the key, for requests that the AI SDK package does not make. */
  toKeyHeaders(key: string): Record<string, string>;
  /** True: `doctor` finds a model in the list at `/models`. Default: at `/models/<name>`. */
  listsModels?: boolean;
  /** Imports the provider's package of the AI SDK when it is first needed, so that no other slows the start. */
  load(connection: Connection): Promise<ProviderModels>;
  hasEmbeddings: boolean;
  /** The wire of the provider's API for live sessions. Default: text only. */
  liveApi?: 'bidi-generate-content';

  facts(baseUrl: string | undefined, modelName: string): ProviderFacts;
  /**
   * The context window of a model in tokens, the largest prompt that all models of this name take. Default: unknown, as
   * for a server whose operator chooses it.
   */
  contextTokens?(modelName: string): number | undefined;
  /** Options of each call. */
  toOptions?(call: {
    outputSchema: JsonObject | undefined;
    cacheKey: string | undefined;
    asWhole: boolean;
  }): ProviderData | undefined;
  /** Converts the URL of a request for a stream to that for a whole answer. Default: only the body tells them apart. */
  toWholeUrl?(url: string): string;
  /** Options of the messages at which a cached prefix of the prompt ends. Default: caching needs no marks. */
  cacheMark?: ProviderData;
  /** Reads a signature that this runtime did not make. Default: the part is sent without it. */
  fromForeignSignature?(signature: string): ProviderData;

  /** Rewrites the events of a response before the AI SDK package reads them. */
  Cleaner: new (
    listener: Listener,
  ) => Cleaner;
  /** Reads an event of the response that the AI SDK package reads only in part. */
  readChunk?(raw: unknown): { modelVersion: string | undefined; grounding: Event['groundingMetadata'] };
  /** Converts the text of a call's arguments, if `Cleaner` has changed it. */
  readArguments?(text: string): string;
  /** True: a thought in the text may have a closing tag only, because the chat template opens it. Default: false. */
  mayOmitThoughtTag?: boolean;
  /** Thoughts that belong to a message and not to one of its parts. Default: the provider has none. */
  messageThoughts?: MessageThoughts;
  /** Converts the provider's finish reason. Default: the reason as the AI SDK package understands it. */
  toFinishReason?(raw: string): string | undefined;
  /** Converts the provider's token counts. Default: the counts as the AI SDK package understands them. */
  toUsage?(raw: JsonObject): UsageMetadata;
}

/** Settings of the AI SDK packages. `baseURL` is always set, because they would otherwise read environment variables. */
interface Connection {
  apiKey: string;
  baseURL: string;
  fetch: typeof fetch;
}

interface MessageThoughts {
  /** Reads them from the metadata of the stream's finish part, as data to be sent back. */
  read(metadata: ProviderData): ProviderData | undefined;
  /** Returns the thoughts in data that `read` returned; may be empty. */
  ofData(data: ProviderData): JsonObject[];
  /** The options with which a message carries the thoughts. */
  toOptions(thoughts: JsonObject[]): ProviderData;
}

/**
 * What a provider's API accepts in a request. The values come from published API descriptions and from rejections that
 * others have reported (table in docs/models.md).
 */
export interface ProviderFacts {
  callIds: CallIdFacts;
  toolName: RegExp;
  /** Argument names that the provider accepts, at any depth of the arguments. */
  argumentName: RegExp;
  /** Names of tools that the provider's AI SDK package adds itself for structured output. */
  formTools: readonly string[];
  /** Maximum length of a tool's description, in characters. The text beyond it is put into the system instruction. */
  description: number;
  tools: number;
  /** False: the provider can force a tool call, but not the call of a specific tool. */
  choosesByName: boolean;
  /** Keywords allowed in schemas of arguments: all of JSON Schema, or only those of Google's closed list. */
  schemas: 'json-schema' | 'google';
  /** Which files the provider accepts in user messages. */
  files: FileFacts;
  /** Which files it accepts in tool results. Default: files are sent as a user message after the result. */
  resultFiles: FileFacts | undefined;
  /** Which files made by a model may be sent back to it. Default: such files are described in words. */
  answerFiles: FileFacts | undefined;
  /** Text of a model message to insert between tool results and a user message, for models that reject that order. */
  afterResults: string | undefined;
  /** False: the provider rejects a conversation with its model's earlier thoughts, so they are not sent. */
  takesThoughts: boolean;
  /** The provider takes a thought only with one of these members in its signature. Empty: any thought with a text. */
  thoughtData: readonly string[];
  /**
   * `tried`: a server may ignore the output schema, and calls no tools if there is one. So the instruction has the
   * schema too, and a request with tools has it there only.
   */
  outputSchemas: 'enforced' | 'tried';
  outputTokens: number;
  /**
   * A request is for the whole answer only if it allows at most this many output tokens. Infinity: also if it sets no
   * maximum.
   */
  wholeTokens: number;
  stops: number;
  /** Request members that the server calls by another name (string), or does not accept (undefined). */
  members?: Readonly<Record<string, string | undefined>>;
}

/** Format of the ids that pair function calls with their results. Ids are unique within a request. */
interface CallIdFacts {
  fits: RegExp;
  length: number;
}

/** Accepted files. Any other is sent as text if it is a text file, else as a description with name, type and size. */
export interface FileFacts {
  /** Accepted media types; `audio/*` means all of that kind. The type of an image is detected from its first bytes. */
  types: ReadonlySet<string>;
  /** Media types of files that may be sent as a URL. */
  addressTypes: ReadonlySet<string>;
  addresses: RegExp;
  /** Maximum length of one file, in characters of base64. */
  size: number;
  count: number;
}

/** Image types that every provider with image input accepts. */
export const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
export const PDF = 'application/pdf';

/** Argument names that OpenAI and Anthropic accept: letters, digits, `_`, `.` and `-`. */
export const LOOSE_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
/** Tool names that all providers accept. */
export const TOOL_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
/** Argument names that all providers accept. */
export const ARGUMENT_NAME = /^[a-zA-Z_][a-zA-Z0-9_]{0,63}$/;

/** Finds the window of the first pattern that the name of a model matches; `undefined` if there is none. */
export const findWindow =
  (windows: readonly (readonly [RegExp, number | undefined])[]) =>
  (modelName: string): number | undefined =>
    windows.find(([pattern]) => pattern.test(modelName))?.[1];
