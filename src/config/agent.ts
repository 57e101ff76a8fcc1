import { MODEL_SOURCES, OFFLINE, PROVIDERS } from '../agent/providers/index.ts';
import { choice, documented, integer, list, rangeText, text, textOr, url, whole } from './setting-schemas.ts';

const namesOf = (providers: readonly { name: string }[]) => providers.map(({ name }) => `\`${name}\``).join(', ');
const WITHOUT_ADDRESS = PROVIDERS.filter(({ baseUrl }) => baseUrl === undefined);
const WITH_LIVE_API = PROVIDERS.filter(({ liveApi }) => liveApi);

const CONTEXT_RANGE: [number, number] = [1_000, 100_000_000];

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
  MODEL_CONTEXT_TOKENS: documented(
    integer(CONTEXT_RANGE).optional(),
    'Context window of the model, in tokens: [no request is larger](agents.md#long-conversations).',
    rangeText(CONTEXT_RANGE),
    'what is publicly known of the model, else unknown',
  ),
  MODEL_TIMEOUT_MS: whole(
    120_000,
    [100, 3_600_000],
    'Longest time in which the provider sends nothing; ' +
      '[a whole answer](models.md#whole-answers-and-streams) that takes longer is asked for again as a stream.',
  ),
  MODEL_MAX_RETRIES: whole(3, [0, 20], 'Further tries of a model call after 429, 5xx and network failures.'),
};

export const LIVE = {
  MODEL_LIVE_NAME: text(
    `Model for sound and pictures in live sessions, of a provider with a live API (${namesOf(WITH_LIVE_API)}, at the ` +
      'host of `MODEL_BASE_URL`).',
    'text only',
  ),
};

export const AGENT = {
  HARNESS_FILE: text(
    'YAML file that [describes the agent](agents.md#the-agent-harnessyaml); a variable wins over its member ' +
      'of the same meaning.',
    '`harness.yaml`, if it exists',
  ),
  SYSTEM_PROMPT: text('Instruction of the agent.'),
  TOOLS: list('Built-in tools of the agent.', '`current_time,calculator`'),
  SKILLS: list('Skills of the agent: directories in `SKILLS_DIR`.'),
  SKILLS_DIR: text('Directory of the skills.'),
  MCP_SERVERS: text(
    'Remote MCP servers: a JSON array as `mcp_servers` of `harness.yaml`, or URLs separated by commas.',
  ),
  MCP_ALLOWED_HOSTS: list(
    'Hosts that MCP servers may have: names, `*.example.com`, or an origin for a private address.',
    'every public host; in mode `local` without `ALLOW_ANONYMOUS` loopback too',
  ),
  OAUTH_REDIRECT_URL: url(
    'Page of yours to which browsers come back after a user has granted access; it calls `GET ' +
      '/oauth/callback` as the user who is logged in on it: with a token, or with a key and `user_id`.',
    'that operation itself, in mode `local`',
  ),
  AGENTS_DIR: textOr('agents', 'Directory of [applications](agents.md#your-own-agent), `<name>/agent.ts` each.'),
};
