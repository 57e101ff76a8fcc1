import { setTimeout as delay } from 'node:timers/promises';
import { currentContext } from '../../platform/context.ts';
import { abortError } from '../../core/abort.ts';
import { CircuitBreaker } from '../definition/circuit-breaker.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest, ToolChoice } from '../definition/model.ts';
import { readStream } from './from-stream.ts';
import { ModelFailure, toFailure, toModelError } from './model-error.ts';
import {
  loadProvider,
  providerOptions,
  type CallOptions,
  type ProviderModel,
  type ProviderName,
  type StreamPart,
} from './provider.ts';
import { type AnswerForm, toForm, withForm } from './answer-form.ts';
import { toPrompt } from './to-prompt.ts';

/** How to reach a provider, and for how long to try. */
export interface ProviderSettings {
  provider: ProviderName;
  apiKey?: string;
  baseUrl?: string;
  /** Maximum wait for the next bytes of an answer [120,000]. */
  timeoutMs?: number;
  /** Retries after 429, 5xx and network failures, before any of the answer has come [3]. */
  maxRetries?: number;
  /** First back-off; doubles with each retry [500]. */
  retryDelayMs?: number;
}

/** Maximum single back-off; where a provider demands more, the call fails at once. */
const MAX_RETRY_DELAY_MS = 20_000;

/** A model behind one of the AI SDK's provider packages, called one step at a time through their provider interface. */
export function providerModel(settings: ProviderSettings): Model {
  const { provider, maxRetries = 3, retryDelayMs = 500 } = settings;
  let loading: ReturnType<typeof loadProvider> | undefined;

  const embed: Model['embed'] = async (texts, { modelName, signal, ...length }) => {
    try {
      if (needsKey(settings)) throw new ModelFailure('model_unauthorized', { detail: 'no key is set' });
      loading ??= loadProvider(provider, settings.apiKey, settings.baseUrl);
      const model = (await loading).embeddingModel(modelName);
      const { embeddings, usage } = await model.doEmbed({ values: texts, ...length, abortSignal: signal });
      if (embeddings.length !== texts.length) throw new ModelFailure('model_bad_response');
      return { vectors: embeddings, tokens: usage?.tokens };
    } catch (error) {
      throw toModelError(toFailure(error, false), provider, modelName);
    }
  };

  async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
    if (needsKey(settings))
      throw toModelError(
        new ModelFailure('model_unauthorized', { detail: 'no key is set' }),
        provider,
        request.modelName,
      );
    const load = (loading ??= loadProvider(provider, settings.apiKey, settings.baseUrl));
    const model = (await load)(request.modelName);
    let form = toForm(request, provider);
    for (let attempt = 0; ; attempt += 1) {
      const result = yield* attemptOnce(model, request, settings, form);
      if ('answer' in result) return result.answer;
      if (request.signal.aborted) throw abortError(request.signal);
      const { failure, hasAnswered } = result;
      if (form?.isNative && failure.code === 'model_rejected' && !hasAnswered) {
        // Providers know parts of JSON Schema only, and servers of this wire need not know it at all.
        form = { ...form, isNative: false };
        continue;
      }
      const waitMs = Math.max(failure.retryAfterMs ?? 0, retryDelayMs * 2 ** attempt);
      const isFinal = hasAnswered || attempt >= maxRetries || waitMs > MAX_RETRY_DELAY_MS;
      if (failure.retryAfterMs === undefined || isFinal) throw toModelError(failure, provider, request.modelName);
      request.onFailedTry?.({ provider, model: request.modelName, error: failure.code });
      await delay(waitMs, undefined, { signal: request.signal }).catch(() => {
        throw abortError(request.signal);
      });
    }
  }
  const vectors = provider !== 'anthropic' && { embed };
  return { provider, generate, ...vectors, lacksKey: needsKey(settings), breaker: new CircuitBreaker() };
}

/** Only the public addresses are sure to ask for a key. */
const needsKey = ({ provider, apiKey, baseUrl }: ProviderSettings) =>
  provider !== 'openai-compatible' && !apiKey && baseUrl === undefined;

type Attempt = { answer: ModelAnswer } | { failure: ModelFailure; hasAnswered: boolean };

/** One request. A failure is returned, so that the caller may try again while nothing was yielded. */
async function* attemptOnce(
  model: ProviderModel,
  request: ModelRequest,
  { provider, timeoutMs = 120_000 }: ProviderSettings,
  form: AnswerForm | undefined,
): AsyncGenerator<ModelDelta, Attempt, void> {
  const idle = startIdleTimer(timeoutMs);
  const ended = new AbortController();
  const abortSignal = AbortSignal.any([request.signal, idle.signal, ended.signal]);
  let hasAnswered = false;
  try {
    const { stream } = await model.doStream(toOptions(request, provider, abortSignal, form));
    const watched = untilAborted(stream, abortSignal, idle.touch, () => request.onBegin?.());
    const parts = readStream(watched, provider, request.modelName);
    for (;;) {
      const next = await parts.next();
      if (next.done) return { answer: next.value };
      hasAnswered = true;
      yield next.value;
    }
  } catch (error) {
    const failure = idle.signal.aborted
      ? new ModelFailure('model_timeout', { cause: error })
      : toFailure(error, hasAnswered);
    return { failure, hasAnswered };
  } finally {
    idle.stop();
    ended.abort();
  }
}

function toOptions(
  request: ModelRequest,
  provider: ProviderName,
  abortSignal: AbortSignal,
  form: AnswerForm | undefined,
): CallOptions {
  const { traceparent } = currentContext();
  const { promptCaching: _, reasoningEffort, ...sampling } = request.sampling;
  return {
    prompt: toPrompt(form ? withForm(request, provider, form) : request, provider),
    ...(request.tools.length > 0
      ? {
          tools: request.tools.map(({ name, description, parameters }) => ({
            type: 'function' as const,
            name,
            description,
            inputSchema: parameters,
          })),
          ...(request.toolChoice && { toolChoice: toToolChoice(request.toolChoice) }),
        }
      : {}),
    ...sampling,
    ...(reasoningEffort && { reasoning: reasoningEffort }),
    ...(form?.isNative && { responseFormat: { type: 'json' as const, schema: form.schema } }),
    ...providerOptions(provider, form?.schema, request.cacheKey),
    ...(traceparent === undefined ? {} : { headers: { traceparent } }),
    includeRawChunks: provider === 'google',
    abortSignal,
  };
}

const toToolChoice = (choice: ToolChoice): NonNullable<CallOptions['toolChoice']> =>
  choice === 'required' ? { type: choice } : { type: 'tool', toolName: choice.name };

/** Maximum size of what an answer brings, in characters, with 100 for each piece of it. */
const MAX_ANSWER = 33_554_432;

const getSize = (part: StreamPart) => 100 + ('delta' in part ? part.delta.length : 0);

/** Parts that come before there is any answer. */
const BEFORE_ANSWER = new Set<StreamPart['type']>(['stream-start', 'response-metadata', 'raw']);

/** The stream's parts; ends with the signal's reason as soon as it is aborted, and always lets the connection go. */
async function* untilAborted(
  stream: ReadableStream<StreamPart>,
  signal: AbortSignal,
  touch: () => void,
  onBegin: () => void,
): AsyncGenerator<StreamPart, void, void> {
  const reader = stream.getReader();
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  aborted.promise.catch(() => {});
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  let size = 0;
  try {
    for (;;) {
      const next = await Promise.race([reader.read(), aborted.promise]);
      if (next.done) return;
      touch();
      if (!BEFORE_ANSWER.has(next.value.type)) onBegin();
      size += getSize(next.value);
      if (size > MAX_ANSWER)
        throw new ModelFailure('model_bad_response', { detail: `more than ${MAX_ANSWER} characters` });
      yield next.value;
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
    reader.cancel().catch(() => {});
  }
}

function startIdleTimer(timeoutMs: number) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeoutMs);
  return { signal: controller.signal, touch: () => timer.refresh(), stop: () => clearTimeout(timer) };
}
