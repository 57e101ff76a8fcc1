import type { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import {
  DEFAULT_MAX_LLM_CALLS,
  type AgentDefinition,
  type AgentModel,
  type HarnessFile,
  type McpServer,
  type MemorySettings,
  type OpenApiSource,
} from './agent.ts';
import { mcpServersSchema } from './harness-schema.ts';
import { toOutputSchema } from './output-schema.ts';
import { toSampling, withoutAbsent } from './snake-case.ts';
import type { ToolLimits } from './tool.ts';

/** Tools of an agent for which none are named. */
const DEFAULT_TOOLS = ['current_time', 'calculator'];
const DEFAULT_PROMPT = 'You are a helpful assistant.';

type SubAgent = NonNullable<HarnessFile['sub_agents']>[number];
type WrittenLimits = NonNullable<SubAgent['tool_limits']>[string];
type WrittenApi = NonNullable<SubAgent['openapi']>[number];
type WrittenModel = Exclude<SubAgent['model'], string | undefined>;

/** Members that are given win over the file's: what the environment says of the agent. */
type Settings = { [Name in keyof AgentDefinition]?: AgentDefinition[Name] | undefined };
type Variables = Readonly<Record<string, string | undefined>>;

/**
 * The agent `harness_agent` of a file and the environment; `variables` fill `${NAME}` in headers of MCP servers. With
 * an agent in code the file says model and limits only.
 * @throws {ConfigError} for a variable that is not set, and for an agent that both describe.
 */
export function toAgentDefinition(
  file: HarnessFile,
  settings: Settings,
  variables: Variables,
  inCode?: AgentDefinition,
): AgentDefinition {
  const { model, limits, max_llm_calls, ...agent } = file;
  const [second] = Object.keys(agent);
  if (inCode && second !== undefined) {
    throw new ConfigError(
      `harness.yaml: ${second}: agents/harness_agent/agent.ts describes the agent; keep one of them.`,
    );
  }
  const inFile = toDefinition({ ...agent, name: HARNESS_APP, model: model?.name || undefined }, variables);
  const name = settings.modelName ?? model?.name ?? '';
  const { provider: _, base_url: __, ...chain } = { ...model, name };
  const defaults = { instruction: file.system_prompt || DEFAULT_PROMPT, tools: file.tools ?? DEFAULT_TOOLS };
  const maxLlmCalls = limits?.max_llm_calls ?? max_llm_calls;
  const tokenBudget = limits?.compact_above_tokens;
  return {
    maxLlmCalls: DEFAULT_MAX_LLM_CALLS,
    ...(inCode ?? { ...inFile, ...defaults }),
    ...(maxLlmCalls === undefined ? {} : { maxLlmCalls }),
    ...(tokenBudget === undefined ? {} : { compaction: { tokenBudget } }),
    ...withoutAbsent(settings),
    ...(file.memory && { memory: toMemory(file.memory, variables) }),
    ...((model?.fallbacks || model?.first_token_ms) && { model: toModel(chain, variables) }),
  };
}

function toDefinition(agent: SubAgent, variables: Variables): AgentDefinition {
  return withoutAbsent({
    name: agent.name,
    description: agent.description ?? '',
    instruction: agent.system_prompt ?? '',
    tools: agent.tools ?? [],
    skills: agent.skills ?? [],
    mcpServers: (agent.mcp_servers ?? []).map((server) => fillHeaders(server, variables)),
    confirmTools: agent.confirm_tools,
    toolEffects: agent.tool_effects,
    toolLimits: agent.tool_limits && mapValues(agent.tool_limits, toLimits),
    openapi: agent.openapi?.map((source) => toOpenApi(source, variables)),
    askWhenUnknown: agent.ask_when_unknown,
    kind: agent.type,
    modelName: typeof agent.model === 'string' ? agent.model : undefined,
    model: typeof agent.model === 'object' ? toModel(agent.model, variables) : undefined,
    sampling: agent.sampling && toSampling(agent.sampling),
    subAgents: agent.sub_agents?.map((each) => toDefinition(each, variables)),
    asTool: agent.as_tool,
    remote: agent.remote && {
      url: agent.remote.url,
      headers: fillAll(agent.remote.headers, agent.name, variables),
    },
    outputSchema: agent.output_schema && toOutputSchema(agent.output_schema),
    outputKey: agent.output_key,
    maxIterations: agent.max_iterations,
  });
}

function toModel(
  { fallbacks, first_token_ms: firstTokenMs, ...model }: WrittenModel,
  variables: Variables,
): AgentModel {
  const toTarget = ({ api_key, base_url: baseUrl, ...rest }: WrittenModel) =>
    withoutAbsent({ ...rest, baseUrl, apiKey: api_key && fill(api_key, rest.name, variables) });
  return withoutAbsent({ ...toTarget(model), fallbacks: fallbacks?.map(toTarget), firstTokenMs });
}

function toMemory({ embeddings, ...rest }: NonNullable<HarnessFile['memory']>, variables: Variables): MemorySettings {
  if (!embeddings) return withoutAbsent(rest);
  const { dimensions, ...model } = embeddings;
  return withoutAbsent({ ...rest, embeddings: withoutAbsent({ ...toModel(model, variables), dimensions }) });
}

const mapValues = <From, To>(map: Record<string, From>, change: (value: From) => To): Record<string, To> =>
  Object.fromEntries(Object.entries(map).map(([name, value]) => [name, change(value)]));

const toLimits = ({ timeout_ms, max_result_characters, ...rest }: WrittenLimits): ToolLimits =>
  withoutAbsent({ ...rest, timeoutMs: timeout_ms, maxResultCharacters: max_result_characters });

function toOpenApi(source: WrittenApi, variables: Variables): OpenApiSource {
  const { base_url: baseUrl, headers, user_oauth, ...rest } = source;
  const userOauth = user_oauth && { ...toUserOauth(user_oauth, rest.name, variables), issuer: user_oauth.issuer };
  return withoutAbsent({ ...rest, baseUrl, headers: fillAll(headers, rest.name, variables), userOauth });
}

type WrittenAccess = NonNullable<z.output<typeof mcpServersSchema>[number]['user_oauth']>;

const toUserOauth = (
  { client_id: clientId, client_secret: secret, ...more }: WrittenAccess,
  name: string,
  variables: Variables,
) => ({ ...more, clientId, clientSecret: secret && fill(secret, name, variables) });

function fillHeaders(server: z.output<typeof mcpServersSchema>[number], variables: Variables): McpServer {
  const { name, headers, env, call_timeout_ms: callTimeoutMs, on_failure: onFailure, user_oauth, ...more } = server;
  const oauth = server.oauth && {
    clientId: server.oauth.client_id,
    clientSecret: fill(server.oauth.client_secret, name, variables),
    issuer: server.oauth.issuer,
    scope: server.oauth.scope,
  };
  const userOauth = user_oauth && toUserOauth(user_oauth, name, variables);
  const filled = { headers: fillAll(headers, name, variables), env: fillAll(env, name, variables) };
  return withoutAbsent({ ...more, name, ...filled, callTimeoutMs, onFailure, oauth, userOauth });
}

const fillAll = (texts: Record<string, string> | undefined, name: string, variables: Variables) =>
  texts && mapValues(texts, (value) => fill(value, name, variables));

/** A secret stands in the environment and not in the file. */
const fill = (value: string, server: string, variables: Variables) =>
  value.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (_whole, name: string) => {
    const found = variables[name];
    if (found !== undefined) return found;
    throw new ConfigError(`\`${server}\` needs the variable ${name}, which is not set.`);
  });

/**
 * Reads `MCP_SERVERS`: a JSON array as in `harness.yaml`, or URLs with commas between them, each named by its host.
 * @throws {ConfigError} that says what is allowed, without the text: it may hold a secret.
 */
export function parseMcpServers(text: string, variables: Variables): McpServer[] {
  const given = text.trim().startsWith('[') ? parseJson(text) : text.split(',').map(toNamedUrl);
  const parsed = mcpServersSchema.safeParse(given);
  if (parsed.success) return parsed.data.map((server) => fillHeaders(server, variables));
  const [issue] = parsed.error.issues;
  const place = issue?.path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('') ?? '';
  throw new ConfigError(`MCP_SERVERS${place}: found a wrong value; allowed: ${issue?.message ?? 'a list'}.`);
}

function toNamedUrl(text: string) {
  const url = text.trim();
  return { name: URL.parse(url)?.host ?? 'server', url };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
