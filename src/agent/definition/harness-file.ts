import { LineCounter, isMap, isNode, isScalar, parseDocument, type Document } from 'yaml';
import type { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import type { AgentDefinition, McpServer, SubAgentDefinition } from './agent.ts';
import { harnessSchema, mcpServersSchema, type HarnessFile, type HarnessSubAgent } from './harness-schema.ts';
import type { Sampling } from './model.ts';

/** Tools of an agent for which none are named. */
const DEFAULT_TOOLS = ['current_time', 'calculator'];
const DEFAULT_PROMPT = 'You are a helpful assistant.';
const DEFAULT_MAX_LLM_CALLS = 500;
/** Maximum number of problems that one error lists. */
const MAX_PROBLEMS = 20;

/**
 * Reads a `harness.yaml`; `path` only appears in errors.
 * @throws {ConfigError} with one line per problem: file, line, member, and what is allowed.
 */
export function parseHarnessFile(text: string, path: string): HarnessFile {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const at = (offset: number) => `${path}:${lines.linePos(offset).line}`;
  const [broken] = document.errors;
  if (broken) throw new ConfigError(`${at(broken.pos[0])}: ${broken.message.split('\n')[0]}`);
  const parsed = harnessSchema.safeParse(toPlain(document, path));
  if (!parsed.success) {
    const problems = parsed.error.issues.map((issue) => describe(document, issue, at));
    problems.sort((one, other) => one.offset - other.offset);
    const listed = problems.slice(0, MAX_PROBLEMS).map((problem) => problem.text);
    throw new ConfigError(listed.join('\n'));
  }
  checkNames(parsed.data, path);
  return parsed.data;
}

function toPlain(document: Document, path: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 }) ?? {};
  } catch {
    throw new ConfigError(`${path}: it has too many aliases.`);
  }
}

function describe(document: Document, issue: z.core.$ZodIssue, at: (offset: number) => string) {
  const key = issue.code === 'unrecognized_keys' ? issue.keys[0] : undefined;
  const path = key === undefined ? issue.path : [...issue.path, key];
  const place = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('');
  const allowed = issue.message.replace(/^Invalid input: expected (\w+), received undefined$/, 'a $1; it is missing');
  const what = key === undefined ? `allowed: ${allowed}` : 'there is no such member';
  const offset = offsetOf(document, path);
  return { offset, text: `${at(offset)}: ${place.replace(/^\./, '') || 'the file'}: ${what}.` };
}

/** Where a member stands; a missing one stands where its parent does. */
function offsetOf(document: Document, path: PropertyKey[]): number {
  for (let length = path.length; length > 0; length -= 1) {
    const last = path[length - 1];
    const parent = length === 1 ? document.contents : document.getIn(path.slice(0, length - 1), true);
    const pair = isMap(parent) ? parent.items.find(({ key }) => isScalar(key) && key.value === last) : undefined;
    const node = pair ? pair.key : document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return node.range[0];
  }
  return 0;
}

function checkNames(file: HarnessFile, path: string): void {
  const seen = new Set(['harness_agent']);
  const visit = (agents: HarnessSubAgent[] = []): void => {
    for (const { name, sub_agents } of agents) {
      if (seen.has(name)) throw new ConfigError(`${path}: sub_agents: the name \`${name}\` is there twice.`);
      seen.add(name);
      visit(sub_agents);
    }
  };
  visit(file.sub_agents);
}

/** What the environment says of the agent; each member that is given wins over the file's. */
export interface AgentSettings {
  modelName?: string | undefined;
  instruction?: string | undefined;
  tools?: string[] | undefined;
  skills?: string[] | undefined;
  mcpServers?: McpServer[] | undefined;
  maxLlmCalls?: number | undefined;
}

/**
 * The agent `harness_agent` of a file and the environment; `variables` fill `${NAME}` in headers of MCP servers.
 * @throws {ConfigError} for a variable that is not set.
 */
export function toAgentDefinition(
  file: HarnessFile,
  settings: AgentSettings,
  variables: Readonly<Record<string, string | undefined>>,
): AgentDefinition {
  const { name: _name, ...common } = toSubAgent({ ...file, model: undefined, name: 'harness_agent' }, variables);
  const budget = file.limits?.compact_above_tokens;
  return {
    ...common,
    name: 'harness_agent',
    instruction: settings.instruction ?? file.system_prompt ?? DEFAULT_PROMPT,
    modelName: settings.modelName ?? file.model?.name ?? 'offline',
    tools: settings.tools ?? file.tools ?? DEFAULT_TOOLS,
    skills: settings.skills ?? common.skills,
    mcpServers: settings.mcpServers ?? common.mcpServers,
    sampling: common.sampling ?? {},
    maxLlmCalls: settings.maxLlmCalls ?? file.limits?.max_llm_calls ?? DEFAULT_MAX_LLM_CALLS,
    ...(budget === undefined ? {} : { compaction: { tokenBudget: budget } }),
  };
}

type Variables = Readonly<Record<string, string | undefined>>;

function toSubAgent(agent: HarnessSubAgent, variables: Variables): SubAgentDefinition {
  const { name, description = '', type, system_prompt, model, tools, skills, mcp_servers } = agent;
  return {
    name,
    description,
    instruction: system_prompt ?? '',
    tools: tools ?? [],
    skills: skills ?? [],
    mcpServers: (mcp_servers ?? []).map((server) => toMcpServer(server, variables)),
    ...(agent.confirm_tools === undefined ? {} : { confirmTools: agent.confirm_tools }),
    ...(type === undefined ? {} : { kind: type }),
    ...(model === undefined ? {} : { modelName: model }),
    ...(agent.sampling === undefined ? {} : { sampling: toSampling(agent.sampling) }),
    ...(agent.sub_agents === undefined
      ? {}
      : { subAgents: agent.sub_agents.map((each) => toSubAgent(each, variables)) }),
    ...(agent.as_tool === undefined ? {} : { asTool: agent.as_tool }),
    ...(agent.output_key === undefined ? {} : { outputKey: agent.output_key }),
    ...(agent.max_iterations === undefined ? {} : { maxIterations: agent.max_iterations }),
  };
}

function toSampling(written: NonNullable<HarnessFile['sampling']>): Sampling {
  const members = {
    temperature: written.temperature,
    topP: written.top_p,
    maxOutputTokens: written.max_tokens,
    presencePenalty: written.presence_penalty,
    frequencyPenalty: written.frequency_penalty,
  };
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

type WrittenServer = z.output<typeof mcpServersSchema>[number];

function toMcpServer({ name, url, transport, headers }: WrittenServer, variables: Variables): McpServer {
  const filled = Object.entries(headers ?? {}).map(([header, value]) => [header, fill(value, name, variables)]);
  return {
    name,
    url,
    ...(transport === undefined ? {} : { transport }),
    ...(headers === undefined ? {} : { headers: Object.fromEntries(filled) as Record<string, string> }),
  };
}

/** A secret stands in the environment and not in the file. */
const fill = (value: string, server: string, variables: Variables) =>
  value.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (_whole, name: string) => {
    const found = variables[name];
    if (found !== undefined) return found;
    throw new ConfigError(`mcp_servers: the headers of \`${server}\` need the variable ${name}, which is not set.`);
  });

/**
 * The servers in the text of `MCP_SERVERS`: a JSON array as in `harness.yaml`, or URLs separated by commas, each named
 * by its host.
 * @throws {ConfigError} that says what is allowed, without the text: it may hold a secret.
 */
export function parseMcpServers(text: string, variables: Variables): McpServer[] {
  const given = text.trim().startsWith('[') ? parseJson(text) : text.split(',').map(toNamedUrl);
  const parsed = mcpServersSchema.safeParse(given);
  if (parsed.success) return parsed.data.map((server) => toMcpServer(server, variables));
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
