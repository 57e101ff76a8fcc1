import { ConfigError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import { DEFAULT_MAX_LLM_CALLS, type AgentDefinition, type HarnessFile, type McpServer } from './agent.ts';
import { mcpServersSchema } from './harness-schema.ts';
import { toOutputSchema } from './output-schema.ts';
import { toSampling, withoutAbsent } from './snake-case.ts';

/** Tools of the agent if its `harness.yaml` lists none. */
const DEFAULT_TOOLS = ['current_time', 'calculator'];
const DEFAULT_PROMPT = 'You are a helpful assistant.';

type SubAgent = NonNullable<HarnessFile['sub_agents']>[number];

/** Settings from environment variables; they override the `harness.yaml`. */
type Settings = { [Name in keyof AgentDefinition]?: AgentDefinition[Name] | undefined };
type Variables = Readonly<Record<string, string | undefined>>;

/**
 * Builds the definition of the application `harness_agent` from its `harness.yaml` and the environment. `variables`
 * replace `${NAME}` in secrets, such as headers of MCP servers. If the agent is defined in code, the file may set only
 * the model and limits.
 * @throws {ConfigError} for a variable that is not set, and for an agent that is described in both file and code
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
    ...(file.memory && { memory: toWords(file.memory, variables, HARNESS_APP) }),
    ...((model?.fallbacks || model?.first_token_ms) && { model: toWords(chain, variables, name) }),
  };
}

function toDefinition(agent: SubAgent, variables: Variables): AgentDefinition {
  return withoutAbsent({
    name: agent.name,
    description: agent.description ?? '',
    instruction: agent.system_prompt ?? '',
    tools: agent.tools ?? [],
    skills: agent.skills ?? [],
    mcpServers: toWords(agent.mcp_servers ?? [], variables, agent.name),
    confirmTools: agent.confirm_tools,
    toolEffects: agent.tool_effects,
    toolLimits: toWords(agent.tool_limits, variables, agent.name, 'tool_limits'),
    openapi: toWords(agent.openapi, variables, agent.name),
    askWhenUnknown: agent.ask_when_unknown,
    kind: agent.type,
    modelName: typeof agent.model === 'string' ? agent.model : undefined,
    model: typeof agent.model === 'object' ? toWords(agent.model, variables, agent.name) : undefined,
    sampling: agent.sampling && toSampling(agent.sampling),
    subAgents: agent.sub_agents?.map((each) => toDefinition(each, variables)),
    asTool: agent.as_tool,
    remote: toWords(agent.remote, variables, agent.name),
    outputSchema: agent.output_schema && toOutputSchema(agent.output_schema),
    outputKey: agent.output_key,
    maxIterations: agent.max_iterations,
  });
}

type Camel<Name> = Name extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail> & string>}` : Name;
/** Converts snake_case member names to camelCase. */
type InWords<Value> = Value extends (infer Each)[]
  ? InWords<Each>[]
  : Value extends object
    ? { [Name in keyof Value as Camel<Name>]: InWords<Exclude<Value[Name], undefined>> }
    : Value;

/** Members whose keys are chosen by the author, such as header names, and are therefore not converted to camelCase. */
const RECORDS = new Set(['headers', 'env', 'tool_limits']);
/** Members in whose values `${NAME}` is replaced by an environment variable. */
const FILLED = new Set(['headers', 'env', 'api_key', 'client_secret']);

/**
 * Converts a value of the `harness.yaml`: its keys to camelCase, and `${NAME}` to the value of the variable. `owner` is
 * the name of the agent or server in errors.
 */
function toWords<Value>(value: Value, variables: Variables, owner: string, member = ''): InWords<Value> {
  const convert = (): unknown => {
    if (typeof value === 'string') return FILLED.has(member) ? fill(value, owner, variables) : value;
    if (Array.isArray(value)) return value.map((each: unknown) => toWords(each, variables, owner, member));
    if (typeof value !== 'object' || value === null) return value;
    const isRecord = RECORDS.has(member);
    const name = !isRecord && 'name' in value && typeof value.name === 'string' ? value.name : owner;
    const toName = (key: string) => key.replaceAll(/_(.)/g, (_whole, letter: string) => letter.toUpperCase());
    const entries = Object.entries(withoutAbsent(value)).map(([key, each]) => [
      isRecord ? key : toName(key),
      toWords(each, variables, name, isRecord && FILLED.has(member) ? member : key),
    ]);
    return Object.fromEntries(entries);
  };
  return convert() as InWords<Value>;
}

/** Replaces `${NAME}` by the value of the environment variable, so that no secret needs to be in the file. */
const fill = (value: string, server: string, variables: Variables) =>
  value.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (_whole, name: string) => {
    const variable = variables[name];
    if (variable !== undefined) return variable;
    throw new ConfigError(`\`${server}\` needs the variable ${name}, which is not set.`);
  });

/**
 * Reads the setting `MCP_SERVERS`: a JSON array with the structure of `mcp_servers` in `harness.yaml`, or
 * comma-separated URLs. A server given as a URL has its host as name.
 * @throws {ConfigError} that says what is allowed, without quoting the setting, because it may contain a secret
 */
export function parseMcpServers(text: string, variables: Variables): McpServer[] {
  const servers = text.trim().startsWith('[') ? parseJson(text) : text.split(',').map(toNamedUrl);
  const parsed = mcpServersSchema.safeParse(servers);
  if (parsed.success) return toWords(parsed.data, variables, 'MCP_SERVERS');
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
