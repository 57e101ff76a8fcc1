import type { Content, JsonObject, Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { CircuitBreaker } from './circuit-breaker.ts';
import type { LiveModel } from './live.ts';

/** One tool as the model sees it; `parameters` is JSON Schema; a provider is told as much of it as it takes. */
export interface ToolDeclaration {
  name: string;
  description: string;
  parameters: JsonObject;
}

/** Parameters of a model call; the provider's default where left out, and not sent where it does not know them. */
export interface Sampling {
  temperature?: number;
  topP?: number;
  maxOutputTokens?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  seed?: number;
  /** Texts at which the answer ends. OpenAI knows neither these nor a seed. */
  stopSequences?: string[];
  reasoningEffort?: (typeof EFFORTS)[number];
  /** True: the provider keeps instruction and history for the session's next call, where it has to be asked [false]. */
  promptCaching?: boolean;
}

/** What a model has to call: one of its tools, or the tool of this name. */
export type ToolChoice = 'required' | { name: string };

/** All providers, as `MODEL_PROVIDER` spells them. */
export const PROVIDERS = ['offline', 'openai', 'openai-compatible', 'anthropic', 'google'] as const;
/** The name of a provider. */
export type Provider = (typeof PROVIDERS)[number];

/** All efforts of reasoning. */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const;

/** First text of a user content that reports what other agents did; the user did not say it. */
export const CONTEXT_PREFIX = 'For context:';

/**
 * One model call. `contents` starts and ends with a user content, contents of one role can follow each other, and every
 * function call is followed by exactly one response; their parts are the session's own and frozen.
 */
export interface ModelRequest {
  modelName: string;
  instruction: string;
  contents: Content[];
  tools: ToolDeclaration[];
  sampling: Sampling;
  /** What it has to call [it may answer without a call]. */
  toolChoice?: ToolChoice;
  /** JSON Schema of the answer, which the loop checks; calls of tools may come before it [text]. */
  outputSchema?: JsonObject;
  /** Names calls with the same beginning, for providers that keep it by a key [none]. */
  cacheKey?: string;
  /** For an agent of another service: the invocation that it works for. */
  caller?: CallingInvocation;
  signal: AbortSignal;
  /** Called when the first of the answer has come, though nothing of it may be shown yet. */
  onBegin?(): void;
  /** Called with each part of an answer that was not understood and passed over: its type, or how it begins. */
  onPassedOver?(what: string): void;
  /** Called with each try that failed. */
  onFailedTry?(failed: FailedTry): void;
  /** Called with each tool that the model is not told of, since its provider would refuse the whole request. */
  onLeftOut?: ((left: { tool: string; reason: string }) => void) | undefined;
}

/** The invocation that asks an agent of another service. */
export interface CallingInvocation {
  session: SessionKey;
  /** Names this call, the same when it is made again. */
  operationId: string;
  /** Names the conversation of the session with that agent [each call begins one]. */
  conversationId?: string | undefined;
  /** The part of its last answer that asked a person. */
  question?: Part | undefined;
  /** The state as the invocation sees it. */
  state: Readonly<JsonObject>;
  /** The moment at which the time limit ends the invocation, by `performance.now()` [none is known]. */
  endTime?: number | undefined;
  modelCalls: {
    /** Calls left to the invocation, this one included. */
    left: number;
    /** Counts the calls made there: the first of them is this one. */
    count(made: number): void;
  };
  /** The value that an earlier attempt at this call kept. */
  kept?: JsonObject | undefined;
  /** Keeps what another process needs to go on with this call, where this one dies. */
  keep(value: JsonObject): Promise<void>;
}

/** A try of a model call that failed: the code of its error, or `passed_over` where it was not made. */
export type FailedTry = { provider: string; model: string; error: string };

/** The result of one model call: the members of the event that stores it. */
export type ModelAnswer = Pick<
  Event,
  'actions' | 'content' | 'modelVersion' | 'finishReason' | 'usageMetadata' | 'groundingMetadata' | 'citationMetadata'
>;

/** A piece of a streamed answer: a content with only the new text, and the version that answers. */
export type ModelDelta = { content: Content; modelVersion: string };

/**
 * A language model. `generate` yields the deltas of a stream as they come and returns the whole answer.
 * @throws {AgentError} with a sentence a user can act on; never with the key, the prompt or the request body in it.
 */
export interface Model {
  /** Name of the provider, as `MODEL_PROVIDER` spells it. */
  provider: string;
  /** True where the provider asks for a key and none is set: every call fails. */
  lacksKey?: boolean;
  /** Its live API, where it has one and the operator has named a model for it. */
  live?: LiveModel;
  /** Says when calls pass it over, where another model is left [never]. */
  breaker?: CircuitBreaker;
  /** Makes a vector of the meaning of each text [it makes none]; `tokens` as the provider counted them. */
  embed?(
    texts: string[],
    options: { modelName: string; dimensions?: number; signal: AbortSignal },
  ): Promise<{ vectors: number[][]; tokens?: number | undefined }>;
  /** Answers one request. */
  generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void>;
}

/** The tokens of a model call, with the model's name as the agent calls it and as the provider answered. */
export interface CallUse {
  model: string;
  answeredAs: string;
  promptTokens: number;
  outputTokens: number;
}

/** Returns the tokens of a call as its provider counted them. */
export function toCallUse(
  model: string,
  { usageMetadata: usage, modelVersion }: Pick<ModelAnswer, 'usageMetadata' | 'modelVersion'>,
): CallUse {
  const outputTokens = toCount(usage?.candidatesTokenCount) + toCount(usage?.thoughtsTokenCount);
  return { model, answeredAs: modelVersion ?? model, promptTokens: toCount(usage?.promptTokenCount), outputTokens };
}

/** Maximum number of tokens that one call is believed to have used: sums of it are stored. */
const MAX_TOKENS = 10_000_000;

/** Turns a provider's count into a number that can be added up, whatever the provider sent. */
export const toCount = (said: unknown): number =>
  typeof said === 'number' ? Math.min(Math.max(Math.round(said) || 0, 0), MAX_TOKENS) : 0;
