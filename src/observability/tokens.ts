import { toCount } from '../agent/definition/model.ts';
import type { Event } from '../core/event.ts';

/** Returns the tokens of a model call by their names in OpenTelemetry's conventions: thoughts are output. */
export const toTokens = ({ usageMetadata: usage }: Pick<Event, 'usageMetadata'>) => ({
  input_tokens: toCount(usage?.promptTokenCount),
  'cache_read.input_tokens': toCount(usage?.cachedContentTokenCount),
  output_tokens: toCount(usage?.candidatesTokenCount) + toCount(usage?.thoughtsTokenCount),
  'reasoning.output_tokens': toCount(usage?.thoughtsTokenCount),
});

/** Returns OpenTelemetry's name of a provider; one without keeps its own. */
export const toProviderName = (provider: string): string => (provider === 'google' ? 'gcp.gemini' : provider);
