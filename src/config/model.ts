import { choice, text, url, whole } from './setting-schemas.ts';

/** The provider of the model. */
export const MODEL = {
  MODEL_PROVIDER: choice(
    ['offline', 'openai', 'openai-compatible', 'anthropic', 'google'],
    'Who serves the model; `offline` is a built-in model that needs no key.',
    '`offline`',
  ),
  MODEL_NAME: text('Model to call; required for every provider except `offline`.'),
  MODEL_API_KEY: text("The provider's key; never accepted as a credential of this runtime."),
  MODEL_BASE_URL: url('Base URL of the provider; required for `openai-compatible`.', 'the public one of the provider'),
  MODEL_TIMEOUT_MS: whole(120_000, [100, 3_600_000], 'Maximum time in which the provider sends nothing.'),
  MODEL_MAX_RETRIES: whole(
    3,
    [0, 20],
    'Maximum number of further tries of a model call after 429, 5xx and network failures.',
  ),
};

/** Live sessions, `/run_live`. */
export const LIVE = {
  MODEL_LIVE_NAME: text(
    'Model of live sessions with sound and pictures, of a provider with a live API: `google`, at the host of ' +
      '`MODEL_BASE_URL`.',
    'live sessions have text only',
  ),
};
