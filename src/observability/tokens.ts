import { toCount } from '../agent/definition/model.ts';
import { PROVIDERS } from '../agent/providers/index.ts';
import type { Event } from '../core/event.ts';

/** Token counts of a model call by OpenTelemetry attribute name; thoughts count as output. */
export const toTokens = ({ usageMetadata: usage }: Pick<Event, 'usageMetadata'>) => ({
  input_tokens: toCount(usage?.promptTokenCount),
  'cache_read.input_tokens': toCount(usage?.cachedContentTokenCount),
  output_tokens: toCount(usage?.candidatesTokenCount) + toCount(usage?.thoughtsTokenCount),
  'reasoning.output_tokens': toCount(usage?.thoughtsTokenCount),
});

/** OpenTelemetry's names of model providers; most keep their own name. */
const TELEMETRY_NAMES = new Map<string, string>(
  PROVIDERS.map(({ name, telemetryName }) => [name, telemetryName ?? name]),
);
export const toProviderName = (provider: string): string => TELEMETRY_NAMES.get(provider) ?? provider;
