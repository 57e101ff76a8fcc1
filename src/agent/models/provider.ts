import type { createAnthropic } from '@ai-sdk/anthropic';
import type { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type JsonObject, toMembers } from '../../core/content.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { ANTHROPIC } from '../providers/anthropic.ts';
import { compatibleFacts } from '../providers/compatible.ts';
import type { ProviderName } from '../definition/model.ts';
import type { ProviderFacts } from '../providers/facts.ts';
import { GOOGLE } from '../providers/google.ts';
import { OPENAI } from '../providers/openai.ts';
import { boundedResponse } from '../../platform/net/bounded-response.ts';
import { cleanAnswer } from './clean-answer.ts';
import { ModelFailure } from './model-error.ts';

export type ProviderModel = ReturnType<ReturnType<typeof createAnthropic>>;
type ProviderModels = ((modelName: string) => ProviderModel) &
  Pick<ReturnType<typeof createAnthropic>, 'embeddingModel'>;
export type CallOptions = Parameters<ProviderModel['doStream']>[0];
export type StreamPart =
  Awaited<ReturnType<ProviderModel['doStream']>>['stream'] extends ReadableStream<infer Part> ? Part : never;

/** Base URLs are always passed to the AI SDK packages, because they would otherwise read environment variables. */
const BASE_URLS = {
  openai: 'https://api.openai.com/v1',
  anthropic: 'https://api.anthropic.com/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta',
};

export function factsOf(name: ProviderName, baseUrl: string | undefined, modelName: string): ProviderFacts {
  if (name === 'openai-compatible') return compatibleFacts(baseUrl, modelName);
  return { openai: OPENAI, anthropic: ANTHROPIC, google: GOOGLE }[name];
}

/** Matches a lone UTF-16 surrogate, which JSON.stringify writes as an escape sequence and providers reject. */
const HALF = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

function withWholeText(init: RequestInit | undefined): RequestInit | undefined {
  const body = init?.body;
  if (typeof body !== 'string' || !body.includes('\\ud')) return init;
  return { ...init, body: body.replaceAll(HALF, '$1\\ufffd') };
}

/** Limits and rewrites HTTP responses: endless lines or nesting then fail the model call and not the process. */
const fetchFrom =
  (provider: ProviderName): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, withWholeText(init));
    // The AI SDK packages read every HTTP response as a stream, whatever its media type, except errors and embeddings.
    const isStream = response.ok && !/(?:\/embeddings|mbedContents?)$/.test(response.url);
    const toError = (excess: string) => new ModelFailure('model_bad_response', { detail: excess });
    const bounded = boundedResponse(response, isStream, INPUT_LIMITS.modelAnswer, toError);
    return isStream ? cleanAnswer(bounded, provider) : bounded;
  };

/**
 * Reads OpenRouter's reasoning (`reasoning_details`), which the AI SDK package does not know. Pieces with the same
 * index are joined, and the finish part of the stream carries the result.
 */
const DETAILS: NonNullable<Parameters<typeof createOpenAICompatible>[0]['metadataExtractor']> = {
  extractMetadata: () => Promise.resolve(undefined),
  createStreamExtractor: () => {
    const details: JsonObject[] = [];
    return {
      processChunk(chunk) {
        const { choices } = toMembers(chunk);
        const { delta } = toMembers(Array.isArray(choices) ? choices[0] : undefined);
        const { reasoning_details: pieces } = toMembers(delta);
        for (const each of Array.isArray(pieces) ? pieces : []) addDetail(details, toMembers(each));
      },
      buildMetadata: () => (details.length > 0 ? { compatible: { reasoningDetails: details as never } } : undefined),
    };
  },
};

/** Renames or removes members of the request body as the provider requires. */
const withMembers = (body: JsonObject, members: ProviderFacts['members']): JsonObject =>
  members === undefined
    ? body
    : Object.fromEntries(
        Object.entries(body).flatMap(([name, value]) => {
          const sentName = Object.hasOwn(members, name) ? members[name] : name;
          return sentName === undefined ? [] : [[sentName, value]];
        }),
      );

/** Members of OpenRouter's `reasoning_details` whose text arrives in several pieces. */
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

/** Loads a provider's AI SDK package when it is first needed, so that other packages do not slow the start. */
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
