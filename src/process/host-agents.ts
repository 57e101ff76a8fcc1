import { openCredentials } from '../conversation/credentials/credentials.ts';
import { CALLBACK_PATH } from '../conversation/credentials/routes.ts';
import { describeAgent, type HostedAgent, toAgentVersion } from '../conversation/apps/hosted-agent.ts';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AgentDefinition, AgentSource, PreparedAgent } from '../agent/definition/agent.ts';
import type { HarnessFile } from '../agent/definition/agent-schema.ts';
import type { Model } from '../agent/definition/model.ts';
import {
  loadEvalModule,
  type AgentModule,
  loadAgentModules,
  loadTools,
  toAgentModules,
} from '../agent/definition/agent-module.ts';
import { parseMcpServers, toAgentDefinition } from '../agent/definition/harness-file.ts';
import { McpConnections } from '../agent/mcp/mcp-connections.ts';
import type { McpSettings } from '../agent/mcp/mcp-tools.ts';
import { createModel, type ModelSettings } from '../agent/models/create-model.ts';
import { findProvider, type ModelSource, OFFLINE, PROVIDERS } from '../agent/providers/index.ts';
import { type AgentEnvironment, findNamedModel, prepareAgent } from '../agent/prepare-agent.ts';
import type { UserCredentials } from '../agent/definition/services.ts';
import { loadSkills } from '../agent/skills.ts';
import type { Tool } from '../agent/definition/tool.ts';
import { builtInTools } from '../agent/tools/registry.ts';
import type { Config } from './config.ts';
import { AgentError, ConfigError } from '../core/errors.ts';
import { HARNESS_APP } from '../core/names.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import { createSecrets } from '../platform/secrets.ts';
import { BoundedCache } from '../platform/work/bounded-cache.ts';
import type { EgressPolicy } from '../platform/net/egress.ts';
import { VERSION } from '../platform/version.ts';

const DEFAULT_HARNESS_FILE = 'harness.yaml';

/**
 * Reads the definition of the application `harness_agent` from its `agent.ts` or harness.yaml; environment variables
 * override its members. `modules` are the agents that are defined in code. Default: those in `AGENTS_DIR`.
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
      tools: unlessEmpty(config.TOOLS),
      skills: unlessEmpty(config.SKILLS),
      mcpServers: config.MCP_SERVERS === undefined ? undefined : parseMcpServers(config.MCP_SERVERS, config.variables),
      maxLlmCalls: config.MAX_LLM_CALLS,
    },
    config.variables,
    inCode,
    config.HARNESS_FILE ?? DEFAULT_HARNESS_FILE,
  );
  return { definition, model };
}

/** What a program that embeds the runtime may provide. */
export interface HostedSources {
  /** Agents by name, which may be `harness_agent`. They take precedence over those of the same name in `AGENTS_DIR`. */
  agents?: Record<string, AgentSource>;
  /** The model, instead of that of the settings, e.g. in tests. */
  model?: Model;
  /** Time-outs, longer in tests on a busy machine, and whether an unreachable MCP server makes an agent fail. */
  mcp?: Pick<McpSettings, 'timeouts' | 'onFailure'>;
}

/**
 * Returns the applications that this process serves, by name: `harness_agent` and those in `AGENTS_DIR`.
 * @param openGrants returns the credentials that a user has granted to an application. Default: users can grant none.
 * @throws {ConfigError} for an invalid file, an unknown tool or skill, or a model without a name
 */
export async function hostAgents(
  config: Config,
  warn?: (text: string) => void,
  sources: HostedSources = {},
  openGrants?: (user: { appName: string; userId: string }) => UserCredentials | undefined,
): Promise<Map<string, HostedAgent>> {
  const modules = new Map([...(await loadAgentModules(config.AGENTS_DIR)), ...toAgentModules(sources.agents ?? {})]);
  const { definition, model } = await readHarnessAgent(config, warn, modules);
  const environment = {
    ...toEnvironment(config, model, sources),
    ...(sources.model ? { model: sources.model } : {}),
    ...(warn && { warn: once(warn) }),
  };
  const harness: AgentModule = { definition, tools: modules.get(HARNESS_APP)?.tools ?? new Map() };
  const hosted = new Map<string, HostedAgent>();
  for (const [name, module] of new Map([[HARNESS_APP, harness], ...modules]).set(HARNESS_APP, harness)) {
    const folder = join(config.AGENTS_DIR, name);
    const tools = new Map([...(await loadTools(join(folder, 'tools'))), ...module.tools]);
    const open = openGrants && ((userId: string) => openGrants({ appName: name, userId }));
    const own = { ...environment, mcp: { ...environment.mcp, openCredentials: open } };
    const apis = await readApis(module.definition, { ...own.mcp, warn: own.warn });
    const agent = await host(apis.definition, withTools(own, new Map([...tools, ...apis.tools])));
    const hasTransactions = [...tools.values()].some(({ transactional }) => transactional);
    hosted.set(name, { ...agent, hasTransactions, evals: await loadEvalModule(folder) });
  }
  return hosted;
}

/** Logs a warning at most once an hour, because each invocation finds the same fault of a skill or MCP server. */
function once(warn: (text: string) => void): (text: string) => void {
  const told = new BoundedCache<number>();
  return (text) => {
    if ((told.get(text) ?? 0) > performance.now()) return;
    told.set(text, performance.now() + 3_600_000);
    warn(text);
  };
}

/** Returns applications, model and `harness_agent` as YAML, for the command `check`. @throws as {@link hostAgents} */
export async function describeHarness(config: Config, warn?: (text: string) => void): Promise<string> {
  const agents = await hostAgents(config, warn);
  const { definition, model } = await readHarnessAgent(config);
  const { toDefinitionText } = await import('../agent/definition/harness-yaml.ts');
  const names = [...agents.keys()].join(', ');
  return `# Applications: ${names}. Model: ${modelText(model)}.\n${toDefinitionText(definition)}`;
}

/** Adds a tool for each operation of an agent's OpenAPI documents. @throws {ConfigError} for an invalid document */
async function readApis(definition: AgentDefinition, settings: McpSettings) {
  const tools = new Map<string, Tool>();
  const read = async (agent: AgentDefinition): Promise<AgentDefinition> => {
    const names: string[] = [];
    for (const source of agent.openapi ?? []) {
      const { openApiTools, readDocument } = await import('../agent/tools/openapi.ts');
      for (const tool of openApiTools(source, await readDocument(source), settings)) {
        if (tools.has(tool.name))
          throw new ConfigError(`openapi ${source.name}: two tools are named \`${tool.name}\`.`);
        tools.set(tool.name, tool);
        names.push(tool.name);
      }
    }
    const subAgents = agent.subAgents && (await Promise.all(agent.subAgents.map(read)));
    return { ...agent, tools: [...agent.tools, ...names], ...(subAgents && { subAgents }) };
  };
  return { definition: await read(definition), tools };
}

async function host(definition: AgentDefinition, environment: AgentEnvironment): Promise<HostedAgent> {
  const { embeddings, remember: rule } = definition.memory ?? {};
  const length = embeddings?.dimensions ? { dimensions: embeddings.dimensions } : {};
  const root = await check(definition, environment);
  return {
    name: definition.name,
    version: toAgentVersion(definition, root, VERSION),
    ...(rule && { remember: { rule, model: root.model, modelName: root.modelName } }),
    ...(embeddings && { embedder: { ...length, ...findNamedModel(environment, embeddings) } }),
    hasLiveApi: environment.model.live !== undefined && (definition.kind ?? 'llm') === 'llm',
    prepare: (overrides, signal, userId, serverTools) =>
      prepareAgent(definition, overrides, environment, signal, userId, serverTools),
    ...(definition.skills.length > 0 ? { listSkills: () => loadSkills(environment.skillsDir, definition.skills) } : {}),
    describe: () => describeAgent(definition, environment.builtInTools, environment.modelName),
  };
}

/** Prepares the agent once to find faults at the start, without MCP servers, which may become reachable later. */
async function check(definition: AgentDefinition, environment: AgentEnvironment): Promise<PreparedAgent> {
  const { signal } = new AbortController();
  try {
    const prepared = await prepareAgent(definition, { mcpServers: [] }, environment, signal);
    await prepared.close();
    await checkSchemas(definition, signal);
    return prepared;
  } catch (error) {
    if (error instanceof AgentError) throw new ConfigError(`${definition.name}: ${error.message}`, { cause: error });
    throw error;
  }
}

/** @throws {ConfigError} if an output schema of the agent or of a sub-agent is invalid */
async function checkSchemas(
  { name, outputSchema, subAgents = [] }: AgentDefinition,
  signal: AbortSignal,
): Promise<void> {
  if (outputSchema) {
    const { UNUSABLE_OUTPUT } = await import('../agent/arguments/check-arguments.ts');
    if ((await outputSchema.check(null, signal)) === UNUSABLE_OUTPUT)
      throw new ConfigError(`${name}: the output schema is no JSON Schema.`);
  }
  for (const child of subAgents) await checkSchemas(child, signal);
}

async function readHarnessFile({ HARNESS_FILE }: Config, warn?: (text: string) => void): Promise<HarnessFile> {
  const path = HARNESS_FILE ?? DEFAULT_HARNESS_FILE;
  if (HARNESS_FILE === undefined && !existsSync(path)) return {};
  if (!existsSync(path)) throw new ConfigError(`HARNESS_FILE: there is no file ${path}.`);
  // The YAML parser is imported only if there is a harness file.
  const { parseHarnessFile } = await import('../agent/definition/harness-yaml.ts');
  return parseHarnessFile(readFileSync(path, 'utf8'), path, warn);
}

interface ModelChoice {
  provider: ModelSource;
  name: string;
  baseUrl: string | undefined;
  /** Who said so, for messages. */
  origin: NonNullable<ModelSettings['origin']>;
  /** Context window of the model, in tokens, if it is configured. */
  contextTokens: number | undefined;
}

/** How messages name a member of the model of `harness.yaml`, and of an agent's own model. */
const ofFile = (member: string) => `\`${member}\` of \`model\` in harness.yaml`;
const ofAgent = (member: string) => `\`${member}\` of the agent's model`;

export const modelText = ({ provider, name }: ModelChoice): string =>
  provider === name ? name : `${provider} ${name}`;

function chooseModel(config: Config, file: HarnessFile): ModelChoice {
  const provider = config.MODEL_PROVIDER ?? file.model?.provider ?? OFFLINE;
  const name = config.MODEL_NAME ?? (file.model?.name || undefined) ?? (provider === OFFLINE ? OFFLINE : undefined);
  const baseUrl = config.MODEL_BASE_URL ?? file.model?.baseUrl;
  if (name === undefined)
    throw new ConfigError(`MODEL_NAME: found nothing; the provider ${provider} needs the name of a model.`);
  const known = findProvider(provider);
  if (known && (baseUrl ?? known.baseUrl) === undefined) {
    throw new ConfigError(
      `MODEL_BASE_URL: found nothing; ${provider} needs the base URL, e.g. http://localhost:11434/v1.`,
    );
  }
  if (config.MODEL_LIVE_NAME !== undefined && !known?.liveApi) {
    const others = PROVIDERS.filter(({ liveApi }) => liveApi).map((each) => each.name);
    throw new ConfigError(
      `MODEL_LIVE_NAME: ${provider} has no live API that this runtime speaks, ${others.join(', ')} has; unset it.`,
    );
  }
  const isInFile = (inEnvironment: string | undefined, inFile: string | undefined) =>
    inEnvironment === undefined && inFile !== undefined;
  const origin = {
    modelName: name,
    ...(isInFile(config.MODEL_PROVIDER, file.model?.provider) && { provider: ofFile('provider') }),
    ...(isInFile(config.MODEL_NAME, file.model?.name) && { name: ofFile('name') }),
    ...(isInFile(config.MODEL_BASE_URL, file.model?.baseUrl) && { baseUrl: ofFile('base_url') }),
  };
  return { provider, name, baseUrl, contextTokens: config.MODEL_CONTEXT_TOKENS ?? file.model?.contextTokens, origin };
}

/** Maximum number of one user's connections to one MCP server, so that other users get connections too. */
const MCP_CONNECTIONS_PER_USER = 32;

/**
 * Opens what users need to grant applications access to MCP servers. The redirect address has a default only in mode
 * `local`: elsewhere a browser that an issuer redirects has no credential of this service.
 */
export function openAccess(config: Config, database: DatabasePool) {
  const base = config.PUBLIC_URL ?? `http://localhost:${config.PORT}`;
  const own = config.auth.mode === 'local' ? `${base}${CALLBACK_PATH}` : undefined;
  const grants = { egress: toMcpEgress(config), redirectUrl: config.OAUTH_REDIRECT_URL ?? own };
  const access = { database, secrets: createSecrets(config.RUNTIME_SECRET_KEY), grants };
  return { ...access, open: (user: { appName: string; userId: string }) => openCredentials(access, user) };
}

const toMcpEgress = ({ auth, ALLOW_ANONYMOUS, MCP_ALLOWED_HOSTS: allowedHosts }: Config): EgressPolicy => ({
  // Callers from other machines must not reach services on this machine's loopback address through an agent.
  allowLoopback: auth.mode === 'local' && !ALLOW_ANONYMOUS,
  ...(allowedHosts.length > 0 && { allowedHosts }),
});

function toEnvironment(
  config: Config,
  { provider, name, baseUrl, contextTokens, origin }: ModelChoice,
  { mcp }: HostedSources,
): AgentEnvironment & { mcp: McpSettings } {
  const liveName = config.MODEL_LIVE_NAME;
  return {
    model: createModel({
      provider,
      ...(config.MODEL_API_KEY === undefined ? {} : { apiKey: config.MODEL_API_KEY }),
      ...(baseUrl === undefined ? {} : { baseUrl }),
      timeoutMs: config.MODEL_TIMEOUT_MS,
      maxRetries: config.MODEL_MAX_RETRIES,
      origin,
      ...(liveName ? { live: { modelName: liveName } } : {}),
    }),
    modelName: name,
    contextTokens,
    findModel: toFindModel(config, { provider, name, baseUrl, origin }),
    builtInTools: builtInTools({ egress: { allowLoopback: false } }),
    ...(config.SKILLS_DIR === undefined ? {} : { skillsDir: config.SKILLS_DIR }),
    mcp: {
      ...mcp,
      egress: toMcpEgress(config),
      connections: new McpConnections(MCP_CONNECTIONS_PER_USER),
    },
  };
}

/**
 * Creates each model once per provider, base URL and key, so that all agents share the counts of failures and calls.
 */
function toFindModel(
  config: Config,
  all: Omit<ModelChoice, 'contextTokens'>,
): NonNullable<AgentEnvironment['findModel']> {
  const models = new Map<string, Model>();
  return ({ provider: own, baseUrl, apiKey }) => {
    const provider = own ?? all.provider;
    if (typeof provider === 'object') return provider;
    const isOfAll = provider === all.provider && (baseUrl ?? all.baseUrl) === all.baseUrl;
    const key = apiKey ?? (isOfAll ? config.MODEL_API_KEY : undefined);
    const address = baseUrl ?? (isOfAll ? all.baseUrl : undefined);
    const id = JSON.stringify([provider, address, key]);
    const model =
      models.get(id) ??
      createModel({
        provider,
        ...(key === undefined ? {} : { apiKey: key }),
        ...(address === undefined ? {} : { baseUrl: address }),
        timeoutMs: config.MODEL_TIMEOUT_MS,
        maxRetries: config.MODEL_MAX_RETRIES,
        origin: {
          provider: own === undefined ? all.origin.provider : ofAgent('provider'),
          name: ofAgent('name'),
          apiKey: apiKey === undefined && isOfAll ? undefined : ofAgent('apiKey'),
          baseUrl: baseUrl === undefined ? all.origin.baseUrl : ofAgent('baseUrl'),
        },
      });
    models.set(id, model);
    return model;
  };
}

const withTools = (environment: AgentEnvironment, tools: ReadonlyMap<string, Tool>): AgentEnvironment => ({
  ...environment,
  builtInTools: new Map([...environment.builtInTools, ...tools]),
});

const unlessEmpty = (list: string[]) => (list.length > 0 ? list : undefined);
