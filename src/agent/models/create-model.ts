import type { Model } from '../definition/model.ts';
import { offlineModel } from './offline.ts';
import { providerModel, type ProviderSettings } from './provider-model.ts';

/** Which provider answers, and how it is reached; `offline` needs nothing else. */
export type ModelSettings = Omit<ProviderSettings, 'provider'> & { provider: ProviderSettings['provider'] | 'offline' };

/**
 * The model of these settings; nothing is contacted before its first call.
 * @throws {TypeError} for `openai-compatible` without a base URL.
 */
export function createModel({ provider, ...settings }: ModelSettings): Model {
  if (provider === 'offline') return offlineModel();
  if (provider === 'openai-compatible' && !settings.baseUrl) throw new TypeError('openai-compatible needs a baseUrl.');
  return providerModel({ provider, ...settings });
}
