import type { Model } from '../definition/model.ts';
import type { GoogleLiveSettings } from './google-live.ts';
import { offlineModel } from './offline.ts';
import { providerModel, type ProviderSettings } from './provider-model.ts';

export type ModelSettings = Omit<ProviderSettings, 'provider'> & {
  provider: ProviderSettings['provider'] | 'offline';
  live?: Pick<GoogleLiveSettings, 'modelName'>;
};

/** Default time limit for opening a live session. */
const LIVE_TIMEOUT_MS = 120_000;

/**
 * Creates a model of a provider, which connects with the first call.
 * @throws {TypeError} for `openai-compatible` without a base URL, and for a live API of a provider other than Google
 */
export function createModel({ provider, live, ...settings }: ModelSettings): Model {
  if (live && provider !== 'google') throw new TypeError(`${provider} has no live API that this runtime speaks.`);
  if (provider === 'offline') return offlineModel();
  if (provider === 'openai-compatible' && !settings.baseUrl) throw new TypeError('openai-compatible needs a baseUrl.');
  const model = providerModel({ provider, ...settings });
  if (!live) return model;
  const { apiKey, baseUrl, timeoutMs = LIVE_TIMEOUT_MS } = settings;
  const { modelName } = live;
  return {
    ...model,
    live: {
      modelName,
      connect: async (request) => {
        const { googleLive } = await import('./google-live.ts');
        return googleLive({ ...live, apiKey, baseUrl, timeoutMs }).connect(request);
      },
    },
  };
}
