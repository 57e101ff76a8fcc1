import { toCount } from '../agent/definition/model.ts';
import type { Event } from '../core/event.ts';

/** Tokens of a model call by OpenTelemetry name; thoughts count as output. */
export const toTokens = ({ usageMetadata: usage }: Pick<Event, 'usageMetadata'>) => ({
  input_tokens: toCount(usage?.promptTokenCount),
  'cache_read.input_tokens': toCount(usage?.cachedContentTokenCount),
  output_tokens: toCount(usage?.candidatesTokenCount) + toCount(usage?.thoughtsTokenCount),
  'reasoning.output_tokens': toCount(usage?.thoughtsTokenCount),
});

/** OpenTelemetry's name of a provider; others keep theirs. */
export const toProviderName = (provider: string): string => (provider === 'google' ? 'gcp.gemini' : provider);
