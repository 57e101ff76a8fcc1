import { choice, text, url, whole } from './setting-schemas.ts';

export const MODEL = {
  MODEL_PROVIDER: choice(
    ['offline', 'openai', 'openai-compatible', 'anthropic', 'google'],
    'Provider of the model; `offline` is built in and needs no key.',
    '`offline`',
  ),
  MODEL_NAME: text('Model to call; required except for `offline`.'),
  MODEL_API_KEY: text("The provider's key."),
  MODEL_BASE_URL: url('Base URL of the provider; required for `openai-compatible`.', "the provider's public one"),
  MODEL_TIMEOUT_MS: whole(120_000, [100, 3_600_000], 'Longest time in which the provider sends nothing.'),
  MODEL_MAX_RETRIES: whole(3, [0, 20], 'Further tries of a model call after 429, 5xx and network failures.'),
};

export const LIVE = {
  MODEL_LIVE_NAME: text(
    'Model for sound and pictures in live sessions, of a provider with a live API (`google`, at the host of ' +
      '`MODEL_BASE_URL`).',
    'text only',
  ),
};
