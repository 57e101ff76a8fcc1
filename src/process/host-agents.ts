import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AgentDefinition, AgentSource, HarnessFile } from '../agent/definition/agent.ts';
import type { Model } from '../agent/definition/model.ts';
import { loadEvalModule } from '../agent/definition/eval-module.ts';
import { type AgentModule, loadAgentModules, loadTools, toAgentModules } from '../agent/definition/agent-module.ts';
import { parseMcpServers, toAgentDefinition } from '../agent/definition/harness-file.ts';
import { McpConnections, type McpTimeouts } from '../agent/mcp/mcp-tools.ts';
import { createModel } from '../agent/models/create-model.ts';
import { type AgentEnvironment, prepareAgent } from '../agent/prepare-agent.ts';
import { loadSkills } from '../agent/skills.ts';
import type { Tool } from '../agent/definition/tool.ts';
import { builtInTools } from '../agent/tools/registry.ts';
import type { Config } from '../config/config.ts';
import { AgentError, ConfigError } from '../core/errors.ts';
import { HARNESS_APP } from '../core/names.ts';
import { describeAgent } from '../conversation/apps/agent-description.ts';

/** Where the agent is described when `HARNESS_FILE` names no other place. */
const DEFAULT_HARNESS_FILE = 'harness.yaml';

/**
 * The agent `harness_agent` as deployed: that of `agents/harness_agent/agent.ts` or of the harness file, and the
 * variables that win over its members. `modules` are the agents in code [those of `AGENTS_DIR`].
 */
export async function readHarnessAgent(
  config: Config,
  warn?: (text: string) => void,
  modules?: ReadonlyMap<string, AgentModule>,
): Promise<{ definition: AgentDefinition; model: ModelChoice }> {
  const file = await readHarnessFile(config, warn);
  const inCode = (modules ?? (await loadAgentModules(config.AGENTS_DIR))).get(HARNESS_APP)?.definition;
  const model = chooseModel(config, file);
  const definition = toAgentDefinition(
    file,
    {
      modelName: model.name,
      instruction: config.SYSTEM_PROMPT,
      tools: given(config.TOOLS),
      skills: given(config.SKILLS),
      mcpServers: config.MCP_SERVERS === undefined ? undefined : parseMcpServers(config.MCP_SERVERS, config.variables),
      maxLlmCalls: config.MAX_LLM_CALLS,
    },
    config.variables,
    inCode,
  );
  return { definition, model };
}

/** Applications in code, for those who embed the runtime. */
export interface HostedSources {
  /** By name, `harness_agent` too, beside those of `AGENTS_DIR`; one of the same name takes the place of that. */
  agents?: Record<string, AgentSource>;
  /** Answers instead of the provider of the settings, in tests for instance. */
  model?: Model;
  /** Waits for MCP servers [3 s to connect, 10 s to list], longer in tests on a busy machine. */
  mcpTimeouts?: Pick<McpTimeouts, 'connectMs' | 'listMs'>;
}

/**
 * The applications that this process serves, by name: `harness_agent`, and those of `AGENTS_DIR`.
 * `warn` receives what is worth a look.
 * @throws {ConfigError} for what cannot work: a wrong file, a tool or skill that does not exist, a model without a
 * name.
 */
export async function hostAgents(
  config: Config,
  warn?: (text: string) => void,
  sources: HostedSources = {},
): Promise<Map<string, HostedAgent>> {
  const modules = new Map([...(await loadAgentModules(config.AGENTS_DIR)), ...toAgentModules(sources.agents ?? {})]);
  const { definition, model } = await readHarnessAgent(config, warn, modules);
  const environment = { ...toEnvironment(config, model, sources), ...(sources.model ? { model: sources.model } : {}) };
  const harness: AgentModule = { definition, tools: modules.get(HARNESS_APP)?.tools ?? new Map() };
  const hosted = new Map<string, HostedAgent>();
  for (const [name, module] of new Map([[HARNESS_APP, harness], ...modules]).set(HARNESS_APP, harness)) {
    const folder = join(config.AGENTS_DIR, name);
    const tools = new Map([...(await loadTools(join(folder, 'tools'))), ...module.tools]);
    const agent = await host(module.definition, withTools(environment, tools));
    const hasTransactions = [...tools.values()].some(({ transactional }) => transactional);
    hosted.set(name, { ...agent, hasTransactions, evals: await loadEvalModule(folder) });
  }
  return hosted;
}

/** Returns the output of `check`: applications, model, and `harness_agent` as YAML. @throws as {@link hostAgents} */
export async function describeHarness(config: Config, warn?: (text: string) => void): Promise<string> {
  const agents = await hostAgents(config, warn);
  const { definition, model } = await readHarnessAgent(config);
  const { toDefinitionText } = await import('../agent/definition/harness-yaml.ts');
  const names = [...agents.keys()].join(', ');
  return `# Applications: ${names}. Model: ${modelText(model)}.\n${toDefinitionText(definition)}`;
}

async function host(definition: AgentDefinition, environment: AgentEnvironment): Promise<HostedAgent> {
  await check(definition, environment);
  return {
    name: definition.name,
    hasLiveApi: environment.model.live !== undefined && (definition.kind ?? 'llm') === 'llm',
    prepare: (overrides, signal, userId, serverTools) =>
      prepareAgent(definition, overrides, environment, signal, userId, serverTools),
    ...(definition.skills.length > 0 ? { listSkills: () => loadSkills(environment.skillsDir, definition.skills) } : {}),
    describe: () => describeAgent(definition, environment.builtInTools, environment.modelName),
  };
}

/** Prepares the agent once without its MCP servers, which may be away now and there when they are needed. */
async function check(definition: AgentDefinition, environment: AgentEnvironment): Promise<void> {
  try {
    const prepared = await prepareAgent(definition, { mcpServers: [] }, environment, new AbortController().signal);
    await prepared.close();
  } catch (error) {
    if (error instanceof AgentError) throw new ConfigError(`${definition.name}: ${error.message}`, { cause: error });
    throw error;
  }
}

async function readHarnessFile({ HARNESS_FILE }: Config, warn?: (text: string) => void): Promise<HarnessFile> {
  const path = HARNESS_FILE ?? DEFAULT_HARNESS_FILE;
  if (HARNESS_FILE === undefined && !existsSync(path)) return {};
  if (!existsSync(path)) throw new ConfigError(`HARNESS_FILE: there is no file ${path}.`);
  // YAML is loaded where there is a file.
  const { parseHarnessFile } = await import('../agent/definition/harness-yaml.ts');
  return parseHarnessFile(readFileSync(path, 'utf8'), path, warn);
}

/** Which model of which provider. */
export interface ModelChoice {
  provider: NonNullable<Config['MODEL_PROVIDER']>;
  name: string;
  baseUrl: string | undefined;
}

/** A model as one or two words for people. */
export const modelText = ({ provider, name }: ModelChoice): string =>
  provider === name ? name : `${provider} ${name}`;

function chooseModel(config: Config, file: HarnessFile): ModelChoice {
  const provider = config.MODEL_PROVIDER ?? file.model?.provider ?? 'offline';
  const name = config.MODEL_NAME ?? (file.model?.name || undefined) ?? (provider === 'offline' ? 'offline' : undefined);
  const baseUrl = config.MODEL_BASE_URL ?? file.model?.base_url;
  if (name === undefined)
    throw new ConfigError(`MODEL_NAME: found nothing; the provider ${provider} needs the name of a model.`);
  if (provider === 'openai-compatible' && baseUrl === undefined) {
    throw new ConfigError(
      'MODEL_BASE_URL: found nothing; openai-compatible needs the base URL, e.g. http://localhost:11434/v1.',
    );
  }
  if (config.MODEL_LIVE_NAME !== undefined && provider !== 'google') {
    throw new ConfigError(
      `MODEL_LIVE_NAME: ${provider} has no live API that this runtime speaks, google has; unset it.`,
    );
  }
  return { provider, name, baseUrl };
}

/** Connections of one user to one MCP server: no user takes all that a server accepts from this process. */
const MCP_CONNECTIONS_PER_USER = 32;

function toEnvironment(
  config: Config,
  { provider, name, baseUrl }: ModelChoice,
  { mcpTimeouts }: HostedSources,
): AgentEnvironment {
  // Callers from elsewhere must not reach what listens on this machine for itself.
  const allowLoopback = config.auth.mode === 'local' && !config.ALLOW_ANONYMOUS;
  const mcpHosts = config.MCP_ALLOWED_HOSTS;
  const liveName = config.MODEL_LIVE_NAME;
  return {
    model: createModel({
      provider,
      ...(config.MODEL_API_KEY === undefined ? {} : { apiKey: config.MODEL_API_KEY }),
      ...(baseUrl === undefined ? {} : { baseUrl }),
      timeoutMs: config.MODEL_TIMEOUT_MS,
      maxRetries: config.MODEL_MAX_RETRIES,
      ...(liveName ? { live: { modelName: liveName } } : {}),
    }),
    modelName: name,
    builtInTools: builtInTools({ egress: { allowLoopback: false } }),
    ...(config.SKILLS_DIR === undefined ? {} : { skillsDir: config.SKILLS_DIR }),
    mcp: {
      egress: { allowLoopback, ...(mcpHosts.length > 0 ? { allowedHosts: mcpHosts } : {}) },
      timeouts: { ...mcpTimeouts, callMs: config.MCP_CALL_TIMEOUT_MS },
      onFailure: config.MCP_ON_FAILURE,
      connections: new McpConnections(MCP_CONNECTIONS_PER_USER),
    },
  };
}

const withTools = (environment: AgentEnvironment, tools: ReadonlyMap<string, Tool>): AgentEnvironment => ({
  ...environment,
  builtInTools: new Map([...environment.builtInTools, ...tools]),
});

const given = (list: string[]) => (list.length > 0 ? list : undefined);
