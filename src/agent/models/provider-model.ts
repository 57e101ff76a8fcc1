import { setTimeout as delay } from 'node:timers/promises';
import { currentContext } from '../../platform/context.ts';
import { abortError } from '../../core/abort.ts';
import { CircuitBreaker } from '../definition/circuit-breaker.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest, ToolChoice } from '../definition/model.ts';
import { type Listener, listenWith } from './clean-answer.ts';
import { readStream } from './from-stream.ts';
import { ModelFailure, toFailure, toModelError } from './model-error.ts';
import { fitSchema } from './fit-schema.ts';
import { fitTools } from './fit-tools.ts';
import type { ProviderFacts } from '../providers/facts.ts';
import {
  factsOf,
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
      throw toModelError(toFailure(error, false, settings.apiKey), provider, modelName);
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
    const facts = factsOf(provider, settings.baseUrl, request.modelName);
    let fitted = fitRequest(request, provider, facts);
    for (let attempt = 0; ; attempt += 1) {
      const result = yield* attemptOnce(model, request, settings, fitted);
      if ('answer' in result) {
        const { content } = result.answer;
        return content ? { ...result.answer, content: fitted.tools.readCalls(content) } : result.answer;
      }
      if (request.signal.aborted) throw abortError(request.signal);
      const { failure, hasAnswered } = result;
      const less =
        failure.code === 'model_rejected' && !hasAnswered ? toLess(fitted, request, provider, facts) : undefined;
      if (less) {
        fitted = less;
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

/** A request as a provider takes it. */
interface FittedRequest {
  options: Omit<CallOptions, 'abortSignal' | 'headers'>;
  tools: ReturnType<typeof fitTools>;
  form: AnswerForm | undefined;
  left: { withoutThoughts: boolean; withoutFiles: boolean };
  hasThoughts: boolean;
  hasFiles: boolean;
}

/**
 * Returns the request with less in it, for a provider that refuses it: what others, or another model of this provider,
 * signed cannot be known, nor whether a model sees pictures. A stored event must not be refused for ever.
 */
function toLess(
  fitted: FittedRequest,
  request: ModelRequest,
  provider: ProviderName,
  facts: ProviderFacts,
): FittedRequest | undefined {
  const { form, left, hasThoughts, hasFiles } = fitted;
  // Providers know parts of JSON Schema only, and servers of this wire need not know it at all.
  if (form?.isNative) return fitRequest(request, provider, facts, { ...form, isNative: false }, left);
  if (hasThoughts) return fitRequest(request, provider, facts, form, { ...left, withoutThoughts: true });
  return hasFiles ? fitRequest(request, provider, facts, form, { ...left, withoutFiles: true }) : undefined;
}

/** Beside tools the package of Google's older models makes a tool of the form, whose schema is held to the same words. */
function toFormSchema(
  { schema }: AnswerForm,
  { tools }: FittedRequest['tools'],
  facts: ProviderFacts,
): AnswerForm['schema'] {
  if (facts.schemas !== 'google' || tools.length === 0) return schema;
  const fitted = fitSchema(schema, facts);
  return typeof fitted === 'string' || fitted.code ? schema : (fitted.schema ?? schema);
}

function fitRequest(
  request: ModelRequest,
  provider: ProviderName,
  facts: ProviderFacts,
  form = toForm(request, provider),
  left: FittedRequest['left'] = { withoutThoughts: false, withoutFiles: false },
): FittedRequest {
  const tools = fitTools(request, facts, request.onLeftOut);
  const formed = form ? withForm(request, provider, form) : request;
  const instruction = [formed.instruction, tools.notes].filter(Boolean).join('\n\n');
  const told = toPrompt({ ...formed, instruction }, { provider, facts, tools, ...left });
  const { promptCaching: _, reasoningEffort, stopSequences, maxOutputTokens, ...sampling } = request.sampling;
  const stops = stopSequences?.filter((text) => text.trim() !== '').slice(0, facts.stops);
  return {
    options: {
      prompt: told.prompt,
      ...toTools(request.toolChoice, tools, facts),
      ...sampling,
      ...(stops && stops.length > 0 && { stopSequences: stops }),
      ...(maxOutputTokens !== undefined && { maxOutputTokens: Math.max(maxOutputTokens, facts.outputTokens) }),
      ...(reasoningEffort && { reasoning: reasoningEffort }),
      ...(form?.isNative && { responseFormat: { type: 'json' as const, schema: toFormSchema(form, tools, facts) } }),
      ...providerOptions(provider, form?.schema, request.cacheKey),
      includeRawChunks: provider === 'google',
    },
    tools,
    form,
    left,
    hasThoughts: told.hasThoughts,
    hasFiles: told.hasFiles,
  };
}

type Attempt = { answer: ModelAnswer } | { failure: ModelFailure; hasAnswered: boolean };

/** Characters that are told of what was passed over. */
const MAX_TOLD = 100;

/** One request. A failure is returned, so that the caller may try again while nothing was yielded. */
async function* attemptOnce(
  model: ProviderModel,
  request: ModelRequest,
  { provider, apiKey, timeoutMs = 120_000 }: ProviderSettings,
  { options }: FittedRequest,
): AsyncGenerator<ModelDelta, Attempt, void> {
  const idle = startIdleTimer(timeoutMs);
  const ended = new AbortController();
  const abortSignal = AbortSignal.any([request.signal, idle.signal, ended.signal]);
  let hasAnswered = false;
  let failed: ModelFailure | undefined;
  const listener: Listener = {
    touch: idle.touch,
    begin: () => request.onBegin?.(),
    passOver: (what) => request.onPassedOver?.(what.slice(0, MAX_TOLD)),
    fail: (failure) => void (failed ??= failure),
  };
  try {
    const sent = { ...options, ...withTrace(), abortSignal };
    const { stream } = await listenWith(listener, () => model.doStream(sent));
    const watched = untilAborted(stream, abortSignal, idle.touch, () => request.onBegin?.());
    const parts = readStream(watched, provider, request.modelName);
    for (;;) {
      const next = await parts.next();
      if (next.done) return failed ? { failure: failed, hasAnswered } : { answer: next.value };
      hasAnswered = true;
      yield next.value;
    }
  } catch (error) {
    if (failed && !idle.signal.aborted && !request.signal.aborted) return { failure: failed, hasAnswered };
    const failure = idle.signal.aborted
      ? new ModelFailure('model_timeout', { cause: error })
      : toFailure(error, hasAnswered, apiKey);
    return { failure, hasAnswered };
  } finally {
    idle.stop();
    ended.abort();
  }
}

function withTrace(): Pick<CallOptions, 'headers'> {
  const { traceparent } = currentContext();
  return traceparent === undefined ? {} : { headers: { traceparent } };
}

/**
 * The tools and the choice among them. A tool is named as the provider knows it; a provider that takes no names is told
 * of that tool alone. A tool that the provider is not told of cannot be chosen.
 */
function toTools(
  choice: ToolChoice | undefined,
  { tools, toName }: FittedRequest['tools'],
  { choosesByName }: ProviderFacts,
): Pick<CallOptions, 'tools' | 'toolChoice'> {
  if (tools.length === 0) return {};
  if (!choice) return { tools };
  const chosen = choice === 'required' ? [] : tools.filter(({ name }) => name === toName(choice.name));
  const [{ name: toolName } = { name: '' }] = chosen;
  if (choice !== 'required' && chosen.length === 0) return { tools };
  if (choice !== 'required' && choosesByName) return { tools, toolChoice: { type: 'tool', toolName } };
  return { tools: choice === 'required' ? tools : chosen, toolChoice: { type: 'required' } };
}

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
      const part = next.value;
      if (!BEFORE_ANSWER.has(part.type)) onBegin();
      size += getSize(part);
      if (size > MAX_ANSWER)
        throw new ModelFailure('model_bad_response', { detail: `more than ${MAX_ANSWER} characters` });
      yield part;
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
