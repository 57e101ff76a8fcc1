import type { createAnthropic } from '@ai-sdk/anthropic';
import type { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type JsonObject, toMembers } from '../../core/content.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { ANTHROPIC } from '../providers/anthropic.ts';
import { compatibleFacts } from '../providers/compatible.ts';
import type { ProviderFacts } from '../providers/facts.ts';
import { GOOGLE } from '../providers/google.ts';
import { OPENAI } from '../providers/openai.ts';
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

/** Returns what a provider takes. */
export function factsOf(name: ProviderName, baseUrl: string | undefined, modelName: string): ProviderFacts {
  if (name === 'openai-compatible') return compatibleFacts(baseUrl, modelName);
  return { openai: OPENAI, anthropic: ANTHROPIC, google: GOOGLE }[name];
}

/** JSON writes half of a surrogate pair as an escape, and only that: no provider takes it for text. */
const HALF = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

function withWholeText(init: RequestInit | undefined): RequestInit | undefined {
  const body = init?.body;
  if (typeof body !== 'string' || !body.includes('\\ud')) return init;
  return { ...init, body: body.replaceAll(HALF, '$1\\ufffd') };
}

/** A provider that never ends a line, or nests it without end, ends the call and not the process. */
const fetchFrom =
  (provider: ProviderName): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, withWholeText(init));
    // The packages read every answer but a refusal and vectors as a stream, whatever its media type.
    const isStream = response.ok && !/(?:\/embeddings|mbedContents?)$/.test(response.url);
    const toError = (excess: string) => new ModelFailure('model_bad_response', { detail: excess });
    const bounded = boundedResponse(response, isStream, INPUT_LIMITS.modelAnswer, toError);
    return isStream ? cleanAnswer(bounded, provider) : bounded;
  };

/**
 * OpenRouter's thoughts (`reasoning_details`), which the package does not know: pieces of a stream are put together by
 * their place, and the finish carries them.
 */
const DETAILS: NonNullable<Parameters<typeof createOpenAICompatible>[0]['metadataExtractor']> = {
  extractMetadata: () => Promise.resolve(undefined),
  createStreamExtractor: () => {
    const details: JsonObject[] = [];
    return {
      processChunk(chunk) {
        const { choices } = toMembers(chunk);
        const { delta } = toMembers(Array.isArray(choices) ? choices[0] : undefined);
        const { reasoning_details: given } = toMembers(delta);
        for (const each of Array.isArray(given) ? given : []) addDetail(details, toMembers(each));
      },
      buildMetadata: () => (details.length > 0 ? { compatible: { reasoningDetails: details as never } } : undefined),
    };
  },
};

/** Returns a request with members under the names that a server knows. */
const withMembers = (body: JsonObject, members: ProviderFacts['members']): JsonObject =>
  members === undefined
    ? body
    : Object.fromEntries(
        Object.entries(body).flatMap(([name, value]) => {
          const known = Object.hasOwn(members, name) ? members[name] : name;
          return known === undefined ? [] : [[known, value]];
        }),
      );

/** Members of a detail that come in pieces. */
const PIECES = ['text', 'summary', 'data'];

function addDetail(details: JsonObject[], detail: JsonObject): void {
  const last = details.at(-1);
  const isSame =
    last && last['type'] === detail['type'] && last['index'] === detail['index'] && detail['index'] !== undefined;
  const isNext = isSame && (last['id'] ?? detail['id']) === (detail['id'] ?? last['id']);
  if (!isNext) {
    details.push({ ...detail });
    return;
  }
  for (const [name, value] of Object.entries(detail)) {
    const before = last[name];
    if (PIECES.includes(name) && typeof before === 'string' && typeof value === 'string') last[name] = before + value;
    else if (value !== null && value !== undefined) last[name] = value;
  }
}

/** Gives the provider's models by name. The package is loaded here, so that a start with another does not pay. */
export async function loadProvider(
  name: ProviderName,
  apiKey: string | undefined,
  baseUrl: string | undefined,
): Promise<ProviderModels> {
  if (name === 'openai-compatible') {
    const compatible = await import('@ai-sdk/openai-compatible');
    const key = apiKey ? { apiKey } : {};
    return compatible.createOpenAICompatible({
      name: 'compatible',
      baseURL: baseUrl ?? '',
      includeUsage: true,
      supportsStructuredOutputs: true,
      metadataExtractor: DETAILS,
      transformRequestBody: (body) => withMembers(body, compatibleFacts(baseUrl, '').members),
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
