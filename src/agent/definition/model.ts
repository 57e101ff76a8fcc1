import { z } from 'zod';
import type { Content, FunctionCall, FunctionResponse, JsonObject, Part } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { CircuitBreaker } from './circuit-breaker.ts';
import { names, type Of, optional, positive } from './members.ts';

/** A tool for the model. `parameters` is a JSON Schema; keywords that the provider does not support are not sent. */
export interface ToolDeclaration {
  /** Name by which the model calls the tool; unique in the application. */
  name: string;
  /** Tells the model what the tool does and when to call it. */
  description: string;
  /** JSON Schema of the arguments, an object. */
  parameters: JsonObject;
}

export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const;

const samplingShape = {
  /** Randomness of the answers, from 0 to 2. */
  temperature: optional(z.number().min(0).max(2)),
  /** Share of probability from which each token is drawn, from 0 to 1. */
  topP: optional(z.number().min(0).max(1)),
  /** Maximum number of tokens of one answer. */
  maxOutputTokens: optional(positive),
  /** Penalty on tokens that have occurred, from -2 to 2. */
  presencePenalty: optional(z.number().min(-2).max(2)),
  /** Penalty on tokens by how often they have occurred, from -2 to 2. */
  frequencyPenalty: optional(z.number().min(-2).max(2)),
  /** Seed that makes answers repeatable as far as the provider can. */
  seed: optional(z.int()),
  /** Texts at which the model stops. OpenAI supports neither stop sequences nor a seed. */
  stopSequences: optional(names.max(16)),
  /** How long the model thinks before it answers. */
  reasoningEffort: optional(z.enum(EFFORTS, EFFORTS.join(', '))),
  /**
   * True: every request asks the provider to cache its instruction and history for the session's next call. False: none
   * does. Has no effect on providers that always cache. Default: where it costs nothing (OpenAI), and of agents with
   * tools where the provider takes more for what it caches (Anthropic).
   */
  promptCaching: optional(z.boolean()),
};
export const samplingSchema = z.strictObject(samplingShape);

/** Sampling parameters. The provider's default applies to an omitted parameter; one that the provider does not support is not sent. */
export interface Sampling extends Of<typeof samplingShape> {}

/** What the model must call: any tool (`required`), or the named tool. */
export type ToolChoice = 'required' | { name: string };

/** Start of a content that reports other agents' messages, because its role is `user` as for the user's messages. */
export const CONTEXT_PREFIX = 'For context:';

/** Asks a model to go on that has spoken last, because no provider is sure to take a conversation that ends so. */
export const GO_ON = 'Go on with what was asked, or conclude.';

/**
 * A request to a model. `contents` starts and ends with a content of the role `user`; neighbouring contents may have the same role. Every
 * function call is followed by exactly one response. Parts are frozen, because they are shared with the session.
 */
export interface ModelRequest {
  /** Name of the model, as the provider has it. */
  modelName: string;
  /** System prompt, with its values filled in. */
  instruction: string;
  /** The conversation, oldest first. */
  contents: Content[];
  /** Tools that the model may call. */
  tools: ToolDeclaration[];
  /** Sampling parameters of the agent or the request. */
  sampling: Sampling;
  /** Whether the model must call a tool, and which. Default: the model decides. */
  toolChoice?: ToolChoice;
  /** JSON Schema of the final answer, which the loop checks. The model may call tools before. Default: free text. */
  outputSchema?: JsonObject;
  /** Key for the provider's prompt cache, equal for model calls whose prompts begin alike. Default: none. */
  cacheKey?: string;
  /** Estimated tokens of the prompt. Default: not estimated, because the context window of the model is not known. */
  promptTokens?: number;
  /** The invocation that makes the call. Set only if the model is an agent of another service. */
  caller?: CallingInvocation;
  /** Aborted when the invocation ends; the model then stops and throws. */
  signal: AbortSignal;
  /**
   * True: nobody reads the pieces of the output, so the provider is asked for the whole answer, if it gives one.
   * Default: false.
   */
  asWhole?: boolean;
  /**
   * True: another model answers if this one cannot be reached at all, so no connection is tried again. Default: false.
   */
  hasFallback?: boolean;
  /**
   * Called before each attempt; `asWhole` is false if the model is asked for a stream. A model that does not call it is
   * asked as the request says.
   */
  onAsk?(asWhole: boolean): void;
  /** Called when the first piece of the model's output arrives, even if nothing is yielded yet. */
  onBegin?(): void;
  /** Called with the type or first characters of each part of the response that is unknown and therefore skipped. */
  onPassedOver?(what: string): void;
  /** Called for each attempt that failed before a next one is made. */
  onFailedTry?(failed: FailedTry): void;
  /** Called for each tool that is not sent to the provider, because the provider would reject the whole request. */
  onLeftOut?: ((omitted: { tool: string; reason: string }) => void) | undefined;
}

/** The invocation that asks an agent of another service. */
export interface CallingInvocation {
  session: SessionKey;
  /** Idempotency key of the call of the other service's agent: every retry has the same key. */
  operationId: string;
  /** Id of this session's conversation with the other service's agent. Default: each call begins a new conversation. */
  conversationId?: string | undefined;
  /** Part of the other service's agent's last message: its question to the user. */
  question?: Part | undefined;
  /** The session state as the invocation sees it. */
  state: Readonly<JsonObject>;
  /** When the time limit ends the invocation, on the clock of `performance.now()`. Default: unknown. */
  endTime?: number | undefined;
  modelCalls: {
    /** Number of model calls that the invocation may still make, including the present call. */
    remaining: number;
    /** Counts the model calls that the other agent reports, minus one: the call of that agent is already counted. */
    count(made: number): void;
  };
  /** The data that an earlier attempt of the call of the agent stored with `keep`. */
  kept?: JsonObject | undefined;
  /** Stores data with which another process can resume the call of the agent if this process dies. */
  keep(value: JsonObject): Promise<void>;
}

/** A failed model call. `error` is the error's code, or `passed_over` if an open circuit breaker prevented the call. */
export type FailedTry = { provider: string; model: string; error: string };

/** The output of one model call: members of the event in which it is stored. */
export type ModelAnswer = Pick<
  Event,
  'actions' | 'content' | 'modelVersion' | 'finishReason' | 'usageMetadata' | 'groundingMetadata' | 'citationMetadata'
>;

/** A piece of the model's output: `content` has only the text that is new. */
export type ModelDelta = { content: Content; modelVersion: string };

/**
 * A model of a provider. `generate` yields pieces of the output as they arrive and returns the whole output.
 * @throws {AgentError} that tells the user what to do, without the API key, the prompt or the request body
 */
export interface Model {
  /** Name of the provider, in errors, traces and metrics. */
  provider: string;
  /** True: the provider needs an API key and none is configured, so every call fails. */
  lacksKey?: boolean;
  /** The context window of a model, in tokens, if it is publicly known. Default: unknown. */
  contextTokens?(modelName: string): number | undefined;
  /** The provider's live API, if it has one and the operator has named a model for it. */
  live?: LiveModel;
  /** Decides when calls skip this model for a fallback model. Default: never. */
  breaker?: CircuitBreaker;
  /** Returns one vector for each text; `tokens` is the provider's count. Absent if the model makes no embeddings. */
  embed?(
    texts: string[],
    options: { modelName: string; dimensions?: number; signal: AbortSignal },
  ): Promise<{ vectors: number[][]; tokens?: number | undefined }>;
  /** Answers one request: yields pieces of text while they come, and returns the whole answer. */
  generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void>;
}

/** Token counts of one model call. `model` is the configured name, `answeredAs` the name in the response. */
export interface CallUse {
  model: string;
  answeredAs: string;
  promptTokens: number;
  outputTokens: number;
}

export function toCallUse(
  model: string,
  { usageMetadata: usage, modelVersion }: Pick<ModelAnswer, 'usageMetadata' | 'modelVersion'>,
): CallUse {
  const outputTokens = toCount(usage?.candidatesTokenCount) + toCount(usage?.thoughtsTokenCount);
  return { model, answeredAs: modelVersion ?? model, promptTokens: toCount(usage?.promptTokenCount), outputTokens };
}

/** Highest token count of one call: a higher one is cut, because stored sums of counts must not overflow. */
const MAX_TOKENS = 10_000_000;

/** Converts a provider's token count, of any type, to an integer; 0 if it is none. */
export const toCount = (count: unknown): number =>
  typeof count === 'number' ? Math.min(Math.max(Math.round(count) || 0, 0), MAX_TOKENS) : 0;

/** The settings of a live session (speech); they cannot change while the session is open. */
export interface LiveRequest {
  instruction: string;
  /** The conversation before the live session, without media. */
  contents: Content[];
  tools: ToolDeclaration[];
  sampling: Sampling;
  modality: 'TEXT' | 'AUDIO';
  /** True: the model may leave speech that is not addressed to it without a response. */
  proactiveAudio: boolean;
  /** True: the model adapts its tone to the tone of the user's voice. */
  affectiveDialog: boolean;
  /** Aborted if the session is not needed any more while it is being opened. */
  signal: AbortSignal;
}

/** Audio or video; `data` is base64. */
export interface LiveBlob {
  mimeType: string;
  data: string;
}

/** Input for the model, sent at once and in order. `responses` answer all tool calls of one message together. */
export type LiveInput =
  | { kind: 'content'; content: Content }
  | { kind: 'blob'; blob: LiveBlob }
  | { kind: 'activityStart' }
  | { kind: 'activityEnd' }
  | { kind: 'responses'; responses: FunctionResponse[] };

export interface LiveMessage {
  /** New pieces of the model's output: text that continues the earlier text, or complete media. */
  parts?: Part[];
  /** New part of the transcript of the user's speech; `finished` is false if more of it follows. */
  inputTranscription?: { text: string; finished: boolean };
  /** New part of the transcript of the model's speech. */
  outputTranscription?: { text: string; finished: boolean };
  calls?: FunctionCall[];
  /** Token counts of the current turn, summed up to this message. */
  usageMetadata?: NonNullable<Event['usageMetadata']>;
  groundingMetadata?: Event['groundingMetadata'];
  /** True: the user interrupted the model, and its output ends here. */
  interrupted?: boolean;
  /** True: the model has generated its whole output, but the speech is still being played. */
  generationComplete?: boolean;
  turnComplete?: boolean;
  /** Why the connection ended; only in the last message. */
  closed?: AgentError;
}

/** An open connection to a provider's live API. Only one reader may read its messages. */
export interface LiveConnection {
  /** @throws {AgentError} `model_unavailable` if the provider does not read fast enough what is sent */
  send(input: LiveInput): void;
  /** Settles when a message of the model can be read. */
  ready(): Promise<void>;
  peek(): LiveMessage | undefined;
  shift(): LiveMessage | undefined;
  /**
   * Returns a signal that aborts when the provider cancels one of these tool calls. It replaces the previous signal.
   */
  cancelled(callIds: string[]): AbortSignal;
  close(): void;
}

/** A provider's live API: audio and video stream to the model, and its speech comes back while it is generated. */
export interface LiveModel {
  modelName: string;
  /** @throws {AgentError} whose message has no API key or prompt, if the provider refuses or cannot be reached */
  connect(request: LiveRequest): Promise<LiveConnection>;
}
