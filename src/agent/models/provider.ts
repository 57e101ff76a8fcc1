import type { createAnthropic } from '@ai-sdk/anthropic';
import type { JsonObject } from '../../core/content.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { boundedResponse } from '../../platform/net/bounded-response.ts';
import { isStrict } from './answer-form.ts';
import { cleanAnswer } from './clean-answer.ts';
import { ModelFailure } from './model-error.ts';

/** The providers that are reached over HTTP. */
export type ProviderName = 'openai' | 'openai-compatible' | 'anthropic' | 'google';

/** A model of an AI SDK provider package, called one step at a time. */
export type ProviderModel = ReturnType<ReturnType<typeof createAnthropic>>;
/** The models of a provider by name, with those that make vectors. */
type ProviderModels = ((modelName: string) => ProviderModel) &
  Pick<ReturnType<typeof createAnthropic>, 'embeddingModel'>;
/** Options of one call of a provider's model. */
export type CallOptions = Parameters<ProviderModel['doStream']>[0];
/** One part of a provider's stream. */
export type StreamPart =
  Awaited<ReturnType<ProviderModel['doStream']>>['stream'] extends ReadableStream<infer Part> ? Part : never;

/** The providers' addresses without a `baseUrl`; given explicitly, since the packages else read the environment. */
const BASE_URLS = {
  openai: 'https://api.openai.com/v1',
  anthropic: 'https://api.anthropic.com/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta',
};

/** A provider that never ends a line, or nests it without end, ends the call and not the process. */
const fetchFrom =
  (provider: ProviderName): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, init);
    // The packages read every answer but a refusal and vectors as a stream, whatever its media type.
    const isStream = response.ok && !/(?:\/embeddings|mbedContents?)$/.test(response.url);
    const toError = (excess: string) => new ModelFailure('model_bad_response', { detail: excess });
    const bounded = boundedResponse(response, isStream, INPUT_LIMITS.modelAnswer, toError);
    return isStream ? cleanAnswer(bounded, provider) : bounded;
  };

/** Gives the provider's models by name. The package is loaded here, so that a start with another does not pay. */
export async function loadProvider(
  name: ProviderName,
  apiKey: string | undefined,
  baseUrl: string | undefined,
): Promise<ProviderModels> {
  if (name === 'openai-compatible') {
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
    const key = apiKey ? { apiKey } : {};
    return createOpenAICompatible({
      name: 'compatible',
      baseURL: baseUrl ?? '',
      includeUsage: true,
      supportsStructuredOutputs: true,
      ...key,
      fetch: fetchFrom(name),
    });
  }
  const settings = { apiKey: apiKey ?? '', baseURL: baseUrl ?? BASE_URLS[name], fetch: fetchFrom(name) };
  if (name === 'openai') return (await import('@ai-sdk/openai')).createOpenAI(settings);
  if (name === 'anthropic') return (await import('@ai-sdk/anthropic')).createAnthropic(settings);
  return (await import('@ai-sdk/google')).createGoogle(settings);
}

/** Options of every call of a provider: OpenAI is to keep nothing, so reasoning travels encrypted with the history. */
export function providerOptions(
  name: ProviderName,
  schema: JsonObject | undefined,
  promptCacheKey: string | undefined,
): Pick<CallOptions, 'providerOptions'> {
  const strict = schema && { strictJsonSchema: isStrict(schema) };
  if (name === 'openai')
    return { providerOptions: { openai: { store: false, ...(promptCacheKey && { promptCacheKey }), ...strict } } };
  return name === 'openai-compatible' && strict ? { providerOptions: { compatible: strict } } : {};
}
