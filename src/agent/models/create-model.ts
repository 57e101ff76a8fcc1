import type { Model } from '../definition/model.ts';
import { findProvider, type ModelSource, OFFLINE } from '../providers/index.ts';
import { offlineModel } from './offline.ts';
import { providerModel, type ProviderSettings, toOrigin } from './provider-model.ts';

export type ModelSettings = Omit<ProviderSettings, 'provider'> & {
  provider: ModelSource;
  live?: { modelName: string };
};

/** Default time limit for opening a live session. */
const LIVE_TIMEOUT_MS = 120_000;

/**
 * Creates a model of a provider, which connects with the first call.
 * @throws {TypeError} for a provider that needs a base URL and has none, and for a live API of one that has none
 */
export function createModel({ provider: name, live, ...settings }: ModelSettings): Model {
  const provider = findProvider(name);
  if (live && !provider?.liveApi) throw new TypeError(`${name} has no live API that this runtime speaks.`);
  if (name === OFFLINE) return offlineModel();
  if (!provider) throw new TypeError(`There is no provider ${name}.`);
  const baseUrl = settings.baseUrl ?? provider.baseUrl;
  if (!baseUrl) throw new TypeError(`${name} needs a baseUrl.`);
  const model = providerModel({ provider, ...settings });
  if (!live) return model;
  const { apiKey, timeoutMs = LIVE_TIMEOUT_MS } = settings;
  const { modelName } = live;
  return {
    ...model,
    live: {
      modelName,
      connect: async (request) => {
        const { googleLive } = await import('./google-live.ts');
        const origin = { ...toOrigin(settings, modelName), name: 'MODEL_LIVE_NAME' };
        return googleLive({ provider, modelName, apiKey, baseUrl, timeoutMs, origin }).connect(request);
      },
    },
  };
}
