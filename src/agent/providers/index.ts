import { anthropic } from './anthropic.ts';
import { google } from './google.ts';
import { openaiCompatible } from './openai-compatible.ts';
import { openai } from './openai.ts';
import type { Provider } from './provider.ts';

/** The providers of models, in the order of the documents. */
export const PROVIDERS = [openai, openaiCompatible, anthropic, google] as const;

/** The built-in model, which no provider serves. */
export const OFFLINE = 'offline';

/** A provider that is reached over HTTP. */
export type ProviderName = (typeof PROVIDERS)[number]['name'];
/** Value of the setting `MODEL_PROVIDER`. */
export type ModelSource = typeof OFFLINE | ProviderName;

/** The values of the setting `MODEL_PROVIDER`. */
export const MODEL_SOURCES: readonly [ModelSource, ...ModelSource[]] = [OFFLINE, ...PROVIDERS.map(({ name }) => name)];

export function findProvider(name: ProviderName): Provider;
export function findProvider(name: string): Provider | undefined;
export function findProvider(name: string): Provider | undefined {
  return PROVIDERS.find((provider) => provider.name === name);
}
