import type { UserCredentials } from '../../agent/definition/services.ts';
import { findProvider } from '../../agent/providers/index.ts';
import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import type { Config } from '../../process/config.ts';
import { hostAgents, readHarnessAgent } from '../../process/host-agents.ts';
import { checkTools, findDatabase } from '../../process/open-database.ts';
import { fault, type Finding, ok, toReason, skipped, warning } from './finding.ts';

/** Credentials of a user who has granted no access to any MCP server. */
const NOTHING_GRANTED: UserCredentials = {
  redirectUrl: '',
  read: async () => undefined,
  renew: async () => undefined,
  begin: async () => {},
};

/** Prepares every agent as for an invocation: checks that its tools and skills exist and its MCP servers respond. */
export async function checkAgents(config: Config): Promise<Finding[]> {
  const { signal } = new AbortController();
  try {
    const openCredentials = () => (config.RUNTIME_SECRET_KEY.length > 0 ? NOTHING_GRANTED : undefined);
    const findings: Finding[] = [];
    const warn = (text: string) => void findings.push(fault('agents', text));
    const agents = await hostAgents(config, warn, { mcp: { onFailure: 'fail' } }, openCredentials);
    const { definition: harness } = await readHarnessAgent(config);
    for (const [name, agent] of agents) {
      // MCP servers are tried one at a time, so that each unreachable server is reported.
      const servers = name === harness.name ? harness.mcpServers.map((server) => [server]) : [undefined];
      for (const mcpServers of servers) {
        const overrides = mcpServers ? { mcpServers } : {};
        const failure = await agent.prepare(overrides, signal, 'doctor').then(
          (prepared) => prepared.close(),
          (error: unknown) => toReason(error),
        );
        if (failure) findings.push(fault('agents', `${name}: ${failure} See MCP_SERVERS, or the file of the agent.`));
      }
    }
    const fine = findings.length > 0 ? findings : [ok('agents', [...agents.keys()].join(', '))];
    return [...fine, ...(await checkSql(config, agents))];
  } catch (error) {
    return [fault('agents', toReason(error))];
  }
}

/** Checks the database role of transactional tools. Skips an embedded database, which runs only with the service. */
async function checkSql(config: Config, agents: ReadonlyMap<string, HostedAgent>): Promise<Finding[]> {
  if (config.DATABASE_URL === undefined || ![...agents.values()].some((agent) => agent.hasTransactions)) return [];
  const { access } = await findDatabase(config);
  const tools = await checkTools(access);
  return tools.warning === undefined ? [] : [warning('agents', tools.warning)];
}

const TIMEOUT_MS = 10_000;

/** Checks that the model provider responds, accepts the key and knows the model. Costs nothing: calls no model. */
export async function checkModel(config: Config): Promise<Finding> {
  const { provider, name, baseUrl } = (await readHarnessAgent(config)).model;
  const known = findProvider(provider);
  if (!known) return ok('model', `${provider}, it needs nothing`);
  const key = config.MODEL_API_KEY;
  if (!key && baseUrl === undefined && known.baseUrl !== undefined)
    return fault('model', `The provider ${provider} needs a key; set MODEL_API_KEY.`);
  const base = (baseUrl ?? known.baseUrl ?? '').replace(/\/$/, '');
  const url = known.listsModels ? `${base}/models` : `${base}/models/${encodeURIComponent(name)}`;
  try {
    const headers = key ? known.toKeyHeaders(key) : {};
    const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) });
    return toFinding(response.status, { provider, name }, known.listsModels ? await readNames(response) : undefined);
  } catch (error) {
    const cause = error instanceof Error && error.cause ? error.cause : error;
    const { host } = new URL(url);
    return fault(
      'model',
      `The provider ${provider} at ${host} cannot be reached: ${toReason(cause)}; see MODEL_BASE_URL.`,
    );
  }
}

function toFinding(status: number, model: { provider: string; name: string }, names: string[] | undefined): Finding {
  const { provider, name } = model;
  if (status === 401 || status === 403)
    return fault('model', `The provider ${provider} refuses the key (HTTP ${status}); change MODEL_API_KEY.`);
  const isUnknown = names ? status === 200 && !names.includes(name) : status === 404;
  if (isUnknown) return fault('model', `The provider ${provider} does not know the model ${name}; change MODEL_NAME.`);
  if (status === 200) return ok('model', `${provider} knows ${name}`);
  if (status === 404) return skipped('model', `${provider} answers and has no list of models`);
  return fault('model', `The provider ${provider} answered HTTP ${status}; see MODEL_BASE_URL.`);
}

async function readNames(response: Response): Promise<string[]> {
  const body = (await response.json().catch(() => undefined)) as { data?: { id?: string }[] } | undefined;
  return (body?.data ?? []).map(({ id = '' }) => id);
}
