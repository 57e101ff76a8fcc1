import { setTimeout as delay } from 'node:timers/promises';
import { currentContext } from '../../platform/context.ts';
import { abortError } from '../../core/abort.ts';
import { isUnconnected } from '../../core/errors.ts';
import { CircuitBreaker } from '../definition/circuit-breaker.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest, ToolChoice } from '../definition/model.ts';
import type { Listener } from '../providers/cleaner.ts';
import { ModelFailure, type ModelOrigin, toFailure, toModelError } from '../providers/model-error.ts';
import type { CallOptions, Provider, ProviderFacts, ProviderModel, StreamPart } from '../providers/provider.ts';
import { BoundedCache } from '../../platform/work/bounded-cache.ts';
import { readStream } from './from-stream.ts';
import { fitSchema } from './fit-schema.ts';
import { fitTools } from './fit-tools.ts';
import { fetchFrom, listenWith } from './provider-fetch.ts';
import { toPrompt } from './to-prompt.ts';
import { type JsonObject, toMembers } from '../../core/content.ts';

export interface ProviderSettings {
  provider: Provider;
  apiKey?: string;
  baseUrl?: string;
  /**
   * Maximum time without a byte of the response, in milliseconds. A whole answer that takes longer is asked for again as
   * a stream. Default: 120,000.
   */
  timeoutMs?: number;
  /** Maximum number of retries after status 429 or 5xx or a network failure, if no output has arrived. Default: 3. */
  maxRetries?: number;
  /** First back-off, in milliseconds; it doubles with each retry. Default: 500. */
  retryDelayMs?: number;
  /** Who set what, for messages; without `baseUrl` the provider's public address is called. Default: the environment. */
  origin?: { [Name in keyof ModelOrigin]?: string | undefined } & {
    /** The name of the model that `name` says; any other one is an agent's. */
    modelName?: string;
  };
}

/** Names what said which model is called. */
export function toOrigin(
  { baseUrl, origin = {} }: Pick<ProviderSettings, 'baseUrl' | 'origin'>,
  calledName: string,
): ModelOrigin {
  const { modelName = calledName, provider = 'MODEL_PROVIDER', name = 'MODEL_NAME', apiKey = 'MODEL_API_KEY' } = origin;
  return {
    provider,
    name: modelName === calledName ? name : 'the name in `model` of the agent',
    apiKey,
    baseUrl: baseUrl === undefined ? undefined : (origin.baseUrl ?? 'MODEL_BASE_URL'),
  };
}

/** Maximum time of one back-off, in milliseconds. If a provider demands a longer one, the call fails at once. */
const MAX_RETRY_DELAY_MS = 20_000;
/** Time in milliseconds after which a failure may be that of a gateway that cuts connections on which nothing comes. */
const MIN_CUT_MS = 25_000;
/** How long a model is only streamed after it did not give a whole answer, in milliseconds. */
const STREAMED_MS = 3_600_000;
/** Maximum number of models of one provider that are kept. Requests may name any. */
const MAX_KEPT_MODELS = 100;

/** A model that is called through a provider package of the AI SDK, by the SDK's low-level provider interface. */
export function providerModel(settings: ProviderSettings): Model {
  const { provider, maxRetries = 3, retryDelayMs = 500 } = settings;
  let loading: ReturnType<Provider['load']> | undefined;
  const load = () => (loading ??= loadModels(settings));
  const kept = new BoundedCache<ProviderModel>(MAX_KEPT_MODELS);
  /** Keeps the models, because the AI SDK packages make all their schemas anew for each. */
  const findModel = async (name: string): Promise<ProviderModel> => {
    const models = await load();
    const known = kept.get(name) ?? models(name);
    if (!kept.has(name)) kept.set(name, known);
    return known;
  };
  const toError = (failure: ModelFailure, name: string) =>
    toModelError(failure, provider.name, name, toOrigin(settings, name));
  /** Until when a model is only streamed, by its name, on the clock of `performance.now()`. */
  const streamedUntil = new BoundedCache<number>();

  const embed: Model['embed'] = async (texts, { modelName, signal, ...length }) => {
    try {
      if (needsKey(settings)) throw new ModelFailure('model_unauthorized', { detail: 'no key is set' });
      const model = (await load()).embeddingModel(modelName);
      const { embeddings, usage } = await model.doEmbed({ values: texts, ...length, abortSignal: signal });
      if (embeddings.length !== texts.length) throw new ModelFailure('model_bad_response');
      return { vectors: embeddings, tokens: usage?.tokens };
    } catch (error) {
      throw toError(toFailure(error, false, settings.apiKey), modelName);
    }
  };

  async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
    if (needsKey(settings))
      throw toError(new ModelFailure('model_unauthorized', { detail: 'no key is set' }), request.modelName);
    const model = await findModel(request.modelName);
    const facts = provider.facts(settings.baseUrl, request.modelName);
    let fitted = fitRequest(request, provider, facts);
    let asWhole = fitted.asWhole && (streamedUntil.get(request.modelName) ?? 0) < performance.now();
    let isWholeRefused = false;
    const streamLater = () => streamedUntil.set(request.modelName, performance.now() + STREAMED_MS);
    const wait = async ({ code }: ModelFailure, waitMs: number) => {
      request.onFailedTry?.({ provider: provider.name, model: request.modelName, error: code });
      await delay(waitMs, undefined, { signal: request.signal }).catch(() => {
        throw abortError(request.signal);
      });
    };
    for (let attempt = 0; ; attempt += 1) {
      const startedAt = performance.now();
      const result = yield* attemptOnce(model, request, settings, fitted, asWhole);
      if ('answer' in result) {
        if (isWholeRefused) streamLater();
        const { content } = result.answer;
        return content ? { ...result.answer, content: fitted.tools.readCalls(content) } : result.answer;
      }
      if (request.signal.aborted) throw abortError(request.signal);
      const { failure, hasAnswered } = result;
      const { retryAfterMs = 0 } = failure;
      const cause =
        asWhole && !hasAnswered ? findStreamCause(failure, performance.now() - startedAt, provider) : undefined;
      if (cause && retryAfterMs <= MAX_RETRY_DELAY_MS) {
        asWhole = false;
        // A refusal may have other reasons, so it counts when the stream has succeeded. A silence counts at once, because
        // the next call would wait as long.
        if (cause === 'refused') isWholeRefused = true;
        else streamLater();
        await wait(failure, retryAfterMs);
        continue;
      }
      const reduced =
        failure.code === 'model_rejected' && !hasAnswered ? reduceRequest(fitted, request, provider, facts) : undefined;
      if (reduced) {
        fitted = reduced;
        continue;
      }
      const waitMs = Math.max(retryAfterMs, retryDelayMs * 2 ** attempt);
      const isFallbackSooner = request.hasFallback === true && isUnconnected(failure.cause);
      const isFinal = hasAnswered || attempt >= maxRetries || waitMs > MAX_RETRY_DELAY_MS || isFallbackSooner;
      if (failure.retryAfterMs === undefined || isFinal) throw toError(failure, request.modelName);
      await wait(failure, waitMs);
    }
  }
  return {
    provider: provider.name,
    generate,
    ...(provider.hasEmbeddings && { embed }),
    contextTokens: (name) => provider.contextTokens?.(name),
    lacksKey: needsKey(settings),
    breaker: new CircuitBreaker(),
  };
}

/** True if an API key is certainly required; at an address other than the provider's public one it may not be. */
const needsKey = ({ provider, apiKey, baseUrl }: ProviderSettings) =>
  provider.baseUrl !== undefined && !apiKey && baseUrl === undefined;

/**
 * Why a stream may succeed where the whole answer failed: the answer took too long for the time-out or a gateway
 * (`silent`), or the server may only stream (`refused`); `undefined` if a stream would fail too.
 */
function findStreamCause(
  { code, cause }: ModelFailure,
  elapsedMs: number,
  provider: Provider,
): 'silent' | 'refused' | undefined {
  if (code === 'model_timeout' || (code === 'model_unavailable' && elapsedMs >= MIN_CUT_MS)) return 'silent';
  const { responseBody, statusCode } = toMembers(cause);
  // A proxy may know, or allow, only the URL of streams.
  if (provider.toWholeUrl && (statusCode === 403 || statusCode === 404)) return 'refused';
  if (code !== 'model_rejected' && code !== 'model_unavailable') return undefined;
  // An error of the AI SDK package also has the request; an error within a response with status 200 is JSON.
  const words = cause instanceof Error ? responseBody : JSON.stringify(cause);
  return typeof words === 'string' && /\bstream/i.test(words) ? 'refused' : undefined;
}

const loadModels = ({ provider, apiKey = '', baseUrl = provider.baseUrl ?? '' }: ProviderSettings) =>
  provider.load({ apiKey, baseURL: baseUrl, fetch: fetchFrom(provider) });

/** A request converted for a provider. `omissions`: parts that are not sent, because the provider had rejected them. */
interface FittedRequest {
  options: Omit<CallOptions, 'abortSignal' | 'headers'>;
  tools: ReturnType<typeof fitTools>;
  form: AnswerForm | undefined;
  /** True: the provider may be asked for the whole answer. */
  asWhole: boolean;
  omissions: { withoutThoughts: boolean; withoutFiles: boolean };
  hasThoughts: boolean;
  hasFiles: boolean;
}

/**
 * After the provider rejected a request, returns one without structured output, thoughts or files; `undefined` if none
 * is left to omit. It is not known beforehand whether a provider accepts signatures of other models, or whether a model
 * sees pictures, and an event that is stored once must not make every later request fail.
 */
function reduceRequest(
  fitted: FittedRequest,
  request: ModelRequest,
  provider: Provider,
  facts: ProviderFacts,
): FittedRequest | undefined {
  const { form, omissions, hasThoughts, hasFiles } = fitted;
  // Structured output is omitted first: providers support parts of JSON Schema only, compatible servers perhaps none.
  if (form?.isNative) return fitRequest(request, provider, facts, { ...form, isNative: false }, omissions);
  if (hasThoughts) return fitRequest(request, provider, facts, form, { ...omissions, withoutThoughts: true });
  return hasFiles ? fitRequest(request, provider, facts, form, { ...omissions, withoutFiles: true }) : undefined;
}

/**
 * For Google's older models, the AI SDK package makes a tool of the output schema if there are other tools; then the
 * limits of tool schemas apply to it.
 */
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
  provider: Provider,
  facts: ProviderFacts,
  form = toForm(request, facts),
  omissions: FittedRequest['omissions'] = { withoutThoughts: false, withoutFiles: false },
): FittedRequest {
  const tools = fitTools(request, facts, request.onLeftOut);
  const formed = form ? withForm(request, facts, form) : request;
  const instruction = [formed.instruction, tools.notes].filter(Boolean).join('\n\n');
  const conversation = toPrompt({ ...formed, instruction }, { provider, facts, tools, ...omissions });
  const { promptCaching: _, reasoningEffort, stopSequences, maxOutputTokens, ...sampling } = request.sampling;
  // The AI SDK packages add the tokens of thoughts to the maximum.
  const isThinking = reasoningEffort !== undefined && reasoningEffort !== 'none';
  const maximum = isThinking ? Infinity : (maxOutputTokens ?? Infinity);
  const asWhole = request.asWhole === true && maximum <= facts.wholeTokens;
  const { cacheKey } = request;
  const providerOptions = provider.toOptions?.({ outputSchema: form?.schema, cacheKey, asWhole });
  const stops = stopSequences?.filter((text) => text.trim() !== '').slice(0, facts.stops);
  return {
    options: {
      prompt: conversation.prompt,
      ...toTools(request.toolChoice, tools, facts),
      ...sampling,
      ...(stops && stops.length > 0 && { stopSequences: stops }),
      ...(maxOutputTokens !== undefined && { maxOutputTokens: Math.max(maxOutputTokens, facts.outputTokens) }),
      ...(reasoningEffort && { reasoning: reasoningEffort }),
      ...(form?.isNative && { responseFormat: { type: 'json' as const, schema: toFormSchema(form, tools, facts) } }),
      ...(providerOptions && { providerOptions }),
      includeRawChunks: provider.readChunk !== undefined,
    },
    tools,
    form,
    asWhole,
    omissions,
    hasThoughts: conversation.hasThoughts,
    hasFiles: conversation.hasFiles,
  };
}

type Attempt = { answer: ModelAnswer } | { failure: ModelFailure; hasAnswered: boolean };

/** Maximum length of the reported text of an unknown part of a response, in characters. */
const MAX_REPORTED = 100;

/** Makes one attempt of a model call. A failure is returned and not thrown, so that the caller can retry. */
async function* attemptOnce(
  model: ProviderModel,
  request: ModelRequest,
  { provider, apiKey, timeoutMs = 120_000 }: ProviderSettings,
  { options }: FittedRequest,
  asWhole: boolean,
): AsyncGenerator<ModelDelta, Attempt, void> {
  const idle = startIdleTimer(timeoutMs);
  const ended = new AbortController();
  const abortSignal = AbortSignal.any([request.signal, idle.signal, ended.signal]);
  let hasAnswered = false;
  let failed: ModelFailure | undefined;
  const listener: Listener = {
    asWhole,
    touch: idle.touch,
    begin: () => request.onBegin?.(),
    passOver: (what) => request.onPassedOver?.(what.slice(0, MAX_REPORTED)),
    fail: (failure) => void (failed ??= failure),
  };
  request.onAsk?.(asWhole);
  try {
    const callOptions = { ...options, ...withTrace(), abortSignal };
    const { stream } = await listenWith(listener, () => model.doStream(callOptions));
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

/** A provider that cannot force a named tool receives only that tool. A name that is not in `tools` is ignored. */
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

/** Maximum size of a model's output, in characters; each part counts 100 more. */
const MAX_ANSWER = 33_554_432;

const getSize = (part: StreamPart) => 100 + ('delta' in part ? part.delta.length : 0);

const BEFORE_ANSWER = new Set<StreamPart['type']>(['stream-start', 'response-metadata', 'raw']);

/** Passes the stream on; after an abort, throws the signal's reason. Always releases the HTTP connection. */
async function* untilAborted(
  stream: ReadableStream<StreamPart>,
  signal: AbortSignal,
  touch: () => void,
  onBegin: () => void,
): AsyncGenerator<StreamPart, void, void> {
  const reader = stream.getReader();
  // Ends a pending read at once.
  const cancel = () => void reader.cancel().catch(() => {});
  signal.addEventListener('abort', cancel, { once: true });
  if (signal.aborted) cancel();
  let size = 0;
  try {
    for (;;) {
      const next = await reader.read();
      signal.throwIfAborted();
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
    signal.removeEventListener('abort', cancel);
    cancel();
  }
}

function startIdleTimer(timeoutMs: number) {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeoutMs);
  return { signal: controller.signal, touch: () => timer.refresh(), stop: () => clearTimeout(timer) };
}

type Schema = Extract<NonNullable<CallOptions['responseFormat']>, { type: 'json' }>['schema'] & JsonObject;

interface AnswerForm {
  schema: Schema;
  /** True: the provider's structured output enforces the output schema. False: only the instruction asks for it. */
  isNative: boolean;
}

function toForm(
  { outputSchema, tools, toolChoice }: ModelRequest,
  { outputSchemas }: ProviderFacts,
): AnswerForm | undefined {
  // A model that must call a tool gives no final answer, so the output schema does not apply.
  if (!outputSchema || toolChoice) return undefined;
  return { schema: outputSchema, isNative: outputSchemas === 'enforced' || tools.length === 0 };
}

/** Adds the output schema to the instruction, unless the provider enforces it. */
function withForm(
  request: ModelRequest,
  { outputSchemas }: ProviderFacts,
  { schema, isNative }: AnswerForm,
): ModelRequest {
  if (isNative && outputSchemas === 'enforced') return request;
  const words = `Your last answer is one JSON value that fits this schema, and nothing else: ${JSON.stringify(schema)}`;
  return { ...request, instruction: [request.instruction, words].filter(Boolean).join('\n\n') };
}
