import { MODEL_SOURCES, OFFLINE, PROVIDERS } from '../agent/providers/index.ts';
import { choice, text, url, whole } from './setting-schemas.ts';

const namesOf = (providers: readonly { name: string }[]) => providers.map(({ name }) => `\`${name}\``).join(', ');
const WITHOUT_ADDRESS = PROVIDERS.filter(({ baseUrl }) => baseUrl === undefined);
const WITH_LIVE_API = PROVIDERS.filter(({ liveApi }) => liveApi);

export const MODEL = {
  MODEL_PROVIDER: choice(
    MODEL_SOURCES,
    `Provider of the model; \`${OFFLINE}\` is built in and needs no key.`,
    `\`${OFFLINE}\``,
  ),
  MODEL_NAME: text(`Model to call; required except for \`${OFFLINE}\`.`),
  MODEL_API_KEY: text("The provider's key."),
  MODEL_BASE_URL: url(
    `Base URL of the provider; required for ${namesOf(WITHOUT_ADDRESS)}.`,
    "the provider's public one",
  ),
  MODEL_TIMEOUT_MS: whole(120_000, [100, 3_600_000], 'Longest time in which the provider sends nothing.'),
  MODEL_MAX_RETRIES: whole(3, [0, 20], 'Further tries of a model call after 429, 5xx and network failures.'),
};

export const LIVE = {
  MODEL_LIVE_NAME: text(
    `Model for sound and pictures in live sessions, of a provider with a live API (${namesOf(WITH_LIVE_API)}, at the ` +
      'host of `MODEL_BASE_URL`).',
    'text only',
  ),
};
