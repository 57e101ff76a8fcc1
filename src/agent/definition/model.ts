import type { Content, JsonObject, Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { CircuitBreaker } from './circuit-breaker.ts';
import type { LiveModel } from './live.ts';

/** A tool as the model sees it. `parameters` is JSON Schema; a provider receives as much of it as it supports. */
export interface ToolDeclaration {
  name: string;
  description: string;
  parameters: JsonObject;
}

/**
 * Parameters of a model call. An omitted member has the provider's default; one that the provider does not support is
 * not sent.
 */
export interface Sampling {
  temperature?: number;
  topP?: number;
  maxOutputTokens?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  seed?: number;
  /** Texts at which the answer ends. OpenAI supports neither these nor a seed. */
  stopSequences?: string[];
  reasoningEffort?: (typeof EFFORTS)[number];
  /**
   * True: the provider caches instruction and history for the session's next call; for providers that cache only on
   * request [false].
   */
  promptCaching?: boolean;
}

/** What a model must call: any tool, or the tool of this name. */
export type ToolChoice = 'required' | { name: string };

/** All providers, as `MODEL_PROVIDER` spells them. */
export const PROVIDERS = ['offline', 'openai', 'openai-compatible', 'anthropic', 'google'] as const;
export type Provider = (typeof PROVIDERS)[number];

export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const;

/** First text of a user content that reports other agents' messages; the user did not write it. */
export const CONTEXT_PREFIX = 'For context:';

/**
 * One model call. `contents` starts and ends with a user content; contents of one role may follow each other, and every
 * function call is followed by exactly one response. Parts are shared with the session and frozen.
 */
export interface ModelRequest {
  modelName: string;
  instruction: string;
  contents: Content[];
  tools: ToolDeclaration[];
  sampling: Sampling;
  toolChoice?: ToolChoice;
  /** JSON Schema of the answer, checked by the loop; tool calls may come before the answer [text]. */
  outputSchema?: JsonObject;
  /** Equal for calls with the same beginning, for providers that cache by a key [none]. */
  cacheKey?: string;
  /** For an agent of another service: the invocation on whose behalf it is called. */
  caller?: CallingInvocation;
  signal: AbortSignal;
  /** Called when the first piece of the answer arrives, even if it cannot be shown yet. */
  onBegin?(): void;
  /** Called with each part of an answer that was not understood and skipped: its type, or its beginning. */
  onPassedOver?(what: string): void;
  onFailedTry?(failed: FailedTry): void;
  /** Called with each tool that is omitted because the provider would refuse the whole request with it. */
  onLeftOut?: ((omitted: { tool: string; reason: string }) => void) | undefined;
}

/** The invocation on whose behalf an agent of another service is called. */
export interface CallingInvocation {
  session: SessionKey;
  /** Idempotency key of this call: the same when the call is retried. */
  operationId: string;
  /** Identifies the session's conversation with that agent [each call begins a new one]. */
  conversationId?: string | undefined;
  /** The part of the agent's last answer that asks a person. */
  question?: Part | undefined;
  /** The state as the invocation sees it. */
  state: Readonly<JsonObject>;
  /** When the time limit ends the invocation, by `performance.now()` [unknown]. */
  endTime?: number | undefined;
  modelCalls: {
    /** Model calls left to the invocation, including this one. */
    remaining: number;
    /** Charges the model calls that the other agent made; the first is this call, which is charged already. */
    count(made: number): void;
  };
  /** The value that an earlier attempt of this call stored with `keep`. */
  kept?: JsonObject | undefined;
  /** Stores what another process needs to resume this call if this process dies. */
  keep(value: JsonObject): Promise<void>;
}

/**
 * A failed attempt of a model call: the error's code, or `passed_over` if an open circuit breaker prevented the call.
 */
export type FailedTry = { provider: string; model: string; error: string };

/** The result of one model call: members of the event that stores it. */
export type ModelAnswer = Pick<
  Event,
  'actions' | 'content' | 'modelVersion' | 'finishReason' | 'usageMetadata' | 'groundingMetadata' | 'citationMetadata'
>;

/** A piece of a streamed answer: `content` has only the new text. */
export type ModelDelta = { content: Content; modelVersion: string };

/**
 * A language model. `generate` yields the deltas of a stream as they arrive and returns the whole answer.
 * @throws {AgentError} with a sentence that a user can act on; never with the key, the prompt or the request body
 */
export interface Model {
  provider: string;
  /** True if the provider needs a key and none is set: every call fails. */
  lacksKey?: boolean;
  /** Set if the provider has a live API and the operator has named a model for it. */
  live?: LiveModel;
  /** Decides when calls skip this model in favour of a fallback [never]. */
  breaker?: CircuitBreaker;
  /** Returns an embedding vector for each text [not supported]; `tokens` as counted by the provider. */
  embed?(
    texts: string[],
    options: { modelName: string; dimensions?: number; signal: AbortSignal },
  ): Promise<{ vectors: number[][]; tokens?: number | undefined }>;
  generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void>;
}

/** The tokens of a model call; `model` is the configured name, `answeredAs` the name that the provider reported. */
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

/** Upper bound for a provider's count of one call, because sums of it are stored. */
const MAX_TOKENS = 10_000_000;

/** Converts a provider's count, whatever was sent, to a bounded non-negative integer. */
export const toCount = (count: unknown): number =>
  typeof count === 'number' ? Math.min(Math.max(Math.round(count) || 0, 0), MAX_TOKENS) : 0;
