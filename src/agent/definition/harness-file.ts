import type { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import { DEFAULT_MAX_LLM_CALLS, type AgentDefinition, type HarnessFile, type McpServer } from './agent.ts';
import { mcpServersSchema } from './harness-schema.ts';
import { toMcpServer, toSampling, withoutAbsent } from './snake-case.ts';

/** Tools of an agent for which none are named. */
const DEFAULT_TOOLS = ['current_time', 'calculator'];
const DEFAULT_PROMPT = 'You are a helpful assistant.';

type SubAgent = NonNullable<HarnessFile['sub_agents']>[number];

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
  const defaults = { instruction: file.system_prompt || DEFAULT_PROMPT, tools: file.tools ?? DEFAULT_TOOLS };
  const maxLlmCalls = limits?.max_llm_calls ?? max_llm_calls;
  const tokenBudget = limits?.compact_above_tokens;
  return {
    maxLlmCalls: DEFAULT_MAX_LLM_CALLS,
    ...(inCode ?? { ...inFile, ...defaults }),
    ...(maxLlmCalls === undefined ? {} : { maxLlmCalls }),
    ...(tokenBudget === undefined ? {} : { compaction: { tokenBudget } }),
    ...withoutAbsent(settings),
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
    askWhenUnknown: agent.ask_when_unknown,
    kind: agent.type,
    modelName: agent.model,
    sampling: agent.sampling && toSampling(agent.sampling),
    subAgents: agent.sub_agents?.map((each) => toDefinition(each, variables)),
    asTool: agent.as_tool,
    outputKey: agent.output_key,
    maxIterations: agent.max_iterations,
  });
}

function fillHeaders(server: z.output<typeof mcpServersSchema>[number], variables: Variables): McpServer {
  const { name, headers } = server;
  const filled = Object.entries(headers ?? {}).map(
    ([header, value]) => [header, fill(value, name, variables)] as const,
  );
  const oauth = server.oauth && {
    clientId: server.oauth.client_id,
    clientSecret: fill(server.oauth.client_secret, name, variables),
    issuer: server.oauth.issuer,
    scope: server.oauth.scope,
  };
  return toMcpServer({ ...server, headers: headers && Object.fromEntries(filled), oauth });
}

/** A secret stands in the environment and not in the file. */
const fill = (value: string, server: string, variables: Variables) =>
  value.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (_whole, name: string) => {
    const found = variables[name];
    if (found !== undefined) return found;
    throw new ConfigError(`mcp_servers: the headers of \`${server}\` need the variable ${name}, which is not set.`);
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
