import type { Config } from '../../config/config.ts';
import { readHarnessAgent } from '../../process/host-agents.ts';
import { fault, type Finding, ok, reasonOf, skipped } from './finding.ts';

const TIMEOUT_MS = 10_000;
const BASE_URLS: Record<string, string> = {
  openai: 'https://api.openai.com/v1',
  anthropic: 'https://api.anthropic.com/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta',
};

/** Whether the provider of the model answers, takes the key and knows the name. It asks no model: no cost. */
export async function checkModel(config: Config): Promise<Finding> {
  const { provider, name, baseUrl } = (await readHarnessAgent(config)).model;
  if (provider === 'offline') return ok('model', 'offline, it needs nothing');
  const key = config.MODEL_API_KEY;
  if (!key && baseUrl === undefined && provider !== 'openai-compatible') {
    return fault('model', `The provider ${provider} needs a key; set MODEL_API_KEY.`);
  }
  const base = (baseUrl ?? BASE_URLS[provider] ?? '').replace(/\/$/, '');
  const isList = provider === 'openai-compatible';
  const url = isList ? `${base}/models` : `${base}/models/${encodeURIComponent(name)}`;
  try {
    const headers = headersOf(provider, key);
    const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) });
    return judge(response.status, { provider, name }, isList ? await namesIn(response) : undefined);
  } catch (error) {
    const cause = error instanceof Error && error.cause ? error.cause : error;
    const { host } = new URL(url);
    return fault(
      'model',
      `The provider ${provider} at ${host} cannot be reached: ${reasonOf(cause)}; see MODEL_BASE_URL.`,
    );
  }
}

function judge(status: number, model: { provider: string; name: string }, names: string[] | undefined): Finding {
  const { provider, name } = model;
  if (status === 401 || status === 403) {
    return fault('model', `The provider ${provider} refuses the key (HTTP ${status}); change MODEL_API_KEY.`);
  }
  const isUnknown = names ? status === 200 && !names.includes(name) : status === 404;
  if (isUnknown) return fault('model', `The provider ${provider} does not know the model ${name}; change MODEL_NAME.`);
  if (status === 200) return ok('model', `${provider} knows ${name}`);
  if (status === 404) return skipped('model', `${provider} answers and has no list of models`);
  return fault('model', `The provider ${provider} answered HTTP ${status}; see MODEL_BASE_URL.`);
}

async function namesIn(response: Response): Promise<string[]> {
  const body = (await response.json().catch(() => undefined)) as { data?: { id?: string }[] } | undefined;
  return (body?.data ?? []).map(({ id = '' }) => id);
}

function headersOf(provider: string, key: string | undefined): Record<string, string> {
  if (!key) return {};
  if (provider === 'anthropic') return { 'x-api-key': key, 'anthropic-version': '2023-06-01' };
  return provider === 'google' ? { 'x-goog-api-key': key } : { authorization: `Bearer ${key}` };
}
