import { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import { DEFAULT_MAX_LLM_CALLS, type AgentDefinition, type AgentSource, type McpServer } from './agent.ts';
import { type HarnessFile, mcpServerSchema, type SubAgentInFile } from './agent-schema.ts';
import { toDefinition } from './agent-module.ts';
import { toPlace } from './members.ts';
import { fromWritten, toWritten, toWrittenPath, withoutAbsent } from './snake-case.ts';

/** Tools of the agent if its `harness.yaml` lists none. */
const DEFAULT_TOOLS = ['current_time', 'calculator'];
const DEFAULT_PROMPT = 'You are a helpful assistant.';

/** Settings from environment variables; they override the `harness.yaml`. */
type Settings = { [Name in keyof AgentDefinition]?: AgentDefinition[Name] | undefined };
type Variables = Readonly<Record<string, string | undefined>>;

/**
 * Builds the definition of the application `harness_agent` from its `harness.yaml` and the environment. `variables`
 * replace `${NAME}` in secrets, such as headers of MCP servers. If the agent is defined in code, the file may set only
 * the model and limits. `path` is that of the file, for errors.
 * @throws {ConfigError} for a variable that is not set, and for an agent that is described in both file and code
 */
export function toAgentDefinition(
  file: HarnessFile,
  settings: Settings,
  variables: Variables,
  inCode?: AgentDefinition,
  path = 'harness.yaml',
): AgentDefinition {
  const { model, limits, maxLlmCalls, ...agent } = file;
  const [second] = Object.keys(agent);
  if (inCode && second !== undefined) {
    throw new ConfigError(
      `${path}: ${toWritten(second)}: agents/harness_agent/agent.ts describes the agent already. ` +
        `Move that file away, or keep in ${path} only model and limits.`,
    );
  }
  const source = toSource({ ...agent, name: HARNESS_APP, ...(model?.name && { model: model.name }) });
  const defaults = { instruction: file.instruction || DEFAULT_PROMPT, tools: file.tools ?? DEFAULT_TOOLS };
  const name = settings.modelName ?? model?.name ?? '';
  const { provider: _, baseUrl: __, contextTokens: ___, ...chain } = { ...model, name };
  const calls = limits?.maxLlmCalls ?? maxLlmCalls;
  const tokenBudget = limits?.compactAboveTokens;
  return {
    maxLlmCalls: DEFAULT_MAX_LLM_CALLS,
    ...(inCode ?? { ...toDefinition(fillIn(source, HARNESS_APP, variables)), ...defaults }),
    ...(calls === undefined ? {} : { maxLlmCalls: calls }),
    ...(tokenBudget === undefined ? {} : { compaction: { ...file.compaction, tokenBudget } }),
    ...withoutAbsent(settings),
    ...((model?.fallbacks || model?.firstTokenMs) && { model: fillIn(chain, name, variables) }),
  };
}

/** Converts an agent of the file to what it would be in code. */
function toSource({
  model,
  subAgents,
  ...agent
}: SubAgentInFile & Pick<HarnessFile, 'memory' | 'compaction' | 'loopStop'>): AgentSource & { name: string } {
  return {
    ...agent,
    ...(typeof model === 'string' && { modelName: model }),
    ...(typeof model === 'object' && { model }),
    ...(subAgents && { subAgents: subAgents.map(toSource) }),
  };
}

/** Members in whose values `${NAME}` is replaced by an environment variable. */
const FILLED = new Set(['headers', 'env', 'apiKey', 'clientSecret']);

/**
 * Replaces `${NAME}` in the secrets of a value. `owner` is the name of the agent or server in errors. JSON Schema is
 * left as it is.
 */
function fillIn<Value>(value: Value, owner: string, variables: Variables, isFilled = false): Value {
  if (typeof value === 'string') return (isFilled ? fill(value, owner, variables) : value) as Value;
  if (Array.isArray(value)) return value.map((each: unknown) => fillIn(each, owner, variables, isFilled)) as Value;
  if (typeof value !== 'object' || value === null) return value;
  const name = !isFilled && 'name' in value && typeof value.name === 'string' ? value.name : owner;
  const entries = Object.entries(value).map(([key, each]: [string, unknown]) => [
    key,
    key === 'outputSchema' ? each : fillIn(each, name, variables, isFilled || FILLED.has(key)),
  ]);
  return Object.fromEntries(entries) as Value;
}

/** Replaces `${NAME}` by the value of the environment variable, so that no secret needs to be in the file. */
const fill = (value: string, server: string, variables: Variables) =>
  value.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (_whole, name: string) => {
    const variable = variables[name];
    if (variable !== undefined) return variable;
    throw new ConfigError(`\`${server}\` needs the variable ${name}, which is not set.`);
  });

const mcpServersSchema = z.array(mcpServerSchema);

/**
 * Reads the setting `MCP_SERVERS`: a JSON array with the structure of `mcp_servers` in `harness.yaml`, or
 * comma-separated URLs. A server given as a URL has its host as name.
 * @throws {ConfigError} that says what is allowed, without quoting the setting, because it may contain a secret
 */
export function parseMcpServers(text: string, variables: Variables): McpServer[] {
  const servers = text.trim().startsWith('[') ? parseJson(text) : text.split(',').map(toNamedUrl);
  const { value, unknown } = fromWritten(mcpServersSchema, servers);
  const parsed = mcpServersSchema.safeParse(value);
  if (parsed.success && unknown.length === 0) return fillIn(parsed.data, 'MCP_SERVERS', variables);
  const issue = parsed.error?.issues[0] ?? { path: [], message: 'a list' };
  const path = unknown[0] ?? toWrittenPath(issue.path, servers);
  const place = toPlace(['MCP_SERVERS', ...path]);
  const what = unknown[0] ? 'there is no such member' : `found a wrong value; allowed: ${issue.message}`;
  throw new ConfigError(`${place}: ${what}.`);
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
