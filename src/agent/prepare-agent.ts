import {
  DEFAULT_MAX_LLM_CALLS,
  type AgentDefinition,
  type AgentOverrides,
  type AgentModel,
  type McpServer,
  type ModelTarget,
  type ServerTools,
  type PreparedAgent,
  type RemoteAgent,
} from './definition/agent.ts';
import type { AgentNode, NamedModel, Tool } from './definition/tool.ts';
import { addClientTools } from './definition/client-tools.ts';
import { SchemaSandbox } from './arguments/schema-sandbox.ts';
import { toUntrustedSchema } from './definition/output-schema.ts';
import { agentTool } from './loop/agent-tree.ts';
import { connectMcpServers, type McpSettings } from './mcp/mcp-tools.ts';
import type { JsonObject } from '../core/content.ts';
import { AgentError } from '../core/errors.ts';
import type { Hooks } from './definition/hooks.ts';
import type { Model } from './definition/model.ts';
import { loadSkills, skillsInstruction, skillTools } from './skills.ts';
import { limitTool } from './tools/limit-tool.ts';
import { findTools } from './tools/registry.ts';
import { promptPerson } from './tools/waits.ts';

export interface AgentEnvironment {
  model: Model;
  /** Name of the model of agents that neither name nor inherit one. */
  modelName: string;
  /** Context window of that model, in tokens. Default: what is known of the model. */
  contextTokens?: number | undefined;
  /** Returns the model for another provider or address. Default: `model` for all agents. */
  findModel?: (target: ModelTarget) => Model;
  builtInTools: ReadonlyMap<string, Tool>;
  /** Directory with skills. Default: agents have no skills. */
  skillsDir?: string;
  /** Settings of MCP connections. Default: only public https addresses may be reached. */
  mcp?: McpSettings;
  /** Receives the reason for each tool or server that an agent cannot use. Default: messages are dropped. */
  warn?: ((text: string) => void) | undefined;
}

/** True if a request overrides anything but `mcpServers`; it is `overwrite` in the response of `/harness/invoke`. */
export const hasGeneralOverride = (overrides: AgentOverrides): boolean =>
  Object.entries(overrides).some(
    ([name, value]) => name !== 'mcpServers' && name !== 'unsupported' && value !== undefined,
  );

/** The model of the same provider with another name; the window is that of the one before. */
function renamed(model: AgentModel, name: string): AgentModel {
  const { contextTokens: _, ...others } = model;
  return { ...others, name };
}

/** `tools` and `skills` of a request are added to the agent's own; other members replace the agent's. */
function applyOverrides(
  definition: AgentDefinition,
  overrides: AgentOverrides,
): AgentDefinition & Pick<PreparedAgent, 'maxLlmCalls'> {
  return {
    ...definition,
    instruction: overrides.instruction ?? definition.instruction,
    ...(overrides.modelName !== undefined && { modelName: overrides.modelName }),
    ...(overrides.modelName !== undefined &&
      definition.model && { model: renamed(definition.model, overrides.modelName) }),
    tools: [...new Set([...definition.tools, ...(overrides.tools ?? [])])],
    skills: [...new Set([...definition.skills, ...(overrides.skills ?? [])])],
    // A failed connection is an error, because a client that names a server needs the tools of that server.
    mcpServers:
      overrides.mcpServers?.map((server) => ({ onFailure: 'fail' as const, ...server })) ?? definition.mcpServers,
    sampling: { ...definition.sampling, ...overrides.sampling },
    maxLlmCalls: Math.min(
      overrides.maxLlmCalls ?? definition.maxLlmCalls ?? DEFAULT_MAX_LLM_CALLS,
      overrides.llmCallsAtMost ?? Infinity,
    ),
  };
}

/**
 * The caller must always call `close()` on the result. MCP connections count towards the limit of `userId`. If
 * `serverTools` is given, it supplies the tools of MCP servers, and no server is contacted.
 * @throws {AgentError} for an unknown tool or skill, a failed MCP server, more than 16 servers, or an abort; all
 * connections are closed then
 */
export async function prepareAgent(
  definition: AgentDefinition,
  overrides: AgentOverrides,
  environment: AgentEnvironment,
  signal: AbortSignal,
  userId?: string,
  serverTools?: ServerTools,
): Promise<PreparedAgent> {
  if (overrides.unsupported !== undefined)
    throw new AgentError(
      'unsupported_override',
      `\`harness.${overrides.unsupported}\` is not supported here: leave it out.`,
    );
  const effective = applyOverrides(definition, overrides);
  // The request's list of MCP servers replaces those of all agents, including sub-agents.
  const source =
    overrides.mcpServers === undefined ? effective : { ...effective, subAgents: withoutMcp(effective.subAgents) };
  const unconnected: UnconnectedNode[] = [];
  const inherited = { model: { name: environment.modelName }, sampling: {}, plugins: effective.plugins ?? [] };
  const root = await toNode(source, inherited, environment, unconnected);
  if (overrides.instruction !== undefined) root.isBrought = { instruction: true };
  // Stored tools may belong to an agent whose servers are not known any more.
  const nodes = serverTools ? unconnected : unconnected.filter(({ servers }) => servers.length > 0);
  const isBrought = overrides.mcpServers !== undefined;
  const close = await connectAll(nodes, { environment, signal, userId, serverTools, isBrought });
  try {
    if (overrides.clientTools) addClientTools(root, overrides.clientTools);
    if (overrides.outputSchema) await setOutputSchema(root, overrides.outputSchema, signal);
    if (overrides.toolChoice && !hasTools(root))
      throw new AgentError('unsupported_override', 'The agent has no tool that it could be made to call.');
  } catch (error) {
    await close();
    throw error;
  }
  return {
    ...root,
    maxLlmCalls: effective.maxLlmCalls,
    maxTokens: overrides.tokensAtMost,
    contextTokensAtMost: overrides.contextTokensAtMost,
    ...(effective.compaction && { compaction: effective.compaction }),
    ...(effective.loopStop && { loopStop: effective.loopStop }),
    ...(overrides.toolChoice && { toolChoice: overrides.toolChoice }),
    close,
  };
}

const hasTools = ({ tools, subAgents }: AgentNode): boolean => tools.length > 0 || subAgents.some(hasTools);

/**
 * Sets the output schema of a request on the agents that may give the final answer.
 * @throws {AgentError} for an invalid schema, and if several agents give final answers in parallel
 */
async function setOutputSchema(root: AgentNode, schema: JsonObject, signal: AbortSignal): Promise<void> {
  const outputSchema = toUntrustedSchema(schema, new SchemaSandbox());
  const { UNUSABLE_OUTPUT } = await import('./arguments/check-arguments.ts');
  const isUnusable = (await outputSchema.check(null, signal)) === UNUSABLE_OUTPUT;
  const set = (node: AgentNode): void => {
    if (isUnusable || node.kind === 'parallel') {
      const why = isUnusable ? UNUSABLE_OUTPUT : `\`${node.name}\` has several last answers`;
      throw new AgentError('unsupported_override', `\`harness.output_schema\`: ${why}.`);
    }
    if (node.kind === 'llm') Object.assign(node, { outputSchema, isBrought: { ...node.isBrought, form: true } });
    for (const child of node.kind === 'llm' ? node.subAgents : node.subAgents.slice(-1)) set(child);
  };
  set(root);
}

const MAX_MCP_SERVERS = 16;
const PUBLIC_ONLY: McpSettings = { egress: { allowLoopback: false } };

const withoutMcp = (agents: AgentDefinition[] = []): AgentDefinition[] =>
  agents.map((agent) => ({ ...agent, mcpServers: [], subAgents: withoutMcp(agent.subAgents) }));

interface UnconnectedNode {
  node: AgentNode;
  servers: McpServer[];
  definition: ToolSettings;
}

/** Finds the model: of the environment's provider, unless the target has its own provider, address or API key. */
export function findNamedModel(environment: AgentEnvironment, target: ModelTarget): NamedModel {
  const { name, provider, baseUrl, apiKey } = target;
  const isOwn = (provider ?? baseUrl ?? apiKey) !== undefined;
  const model = (isOwn && environment.findModel?.(target)) || environment.model;
  const isServices = model === environment.model && name === environment.modelName;
  const contextTokens =
    target.contextTokens ?? (isServices ? environment.contextTokens : undefined) ?? model.contextTokens?.(name);
  return { model, modelName: name, ...(contextTokens !== undefined && { contextTokens }) };
}

/** Members that a sub-agent inherits if it does not set them. */
type Inherited = Pick<AgentNode, 'sampling'> & { model: AgentModel; plugins: Hooks[] };

async function toNode(
  definition: AgentDefinition,
  { model: above, sampling, plugins }: Inherited,
  environment: AgentEnvironment,
  unconnected: UnconnectedNode[],
): Promise<AgentNode> {
  const { name, description, kind = 'llm', instruction, outputSchema, outputKey, maxIterations, remote } = definition;
  const model = definition.model ?? (definition.modelName === undefined ? above : renamed(above, definition.modelName));
  // A remote agent does not inherit its parent's sampling parameters, because those limit the parent's output.
  const own = { model, sampling: definition.sampling ?? (remote ? {} : sampling) };
  const { fallbacks, firstTokenMs, ...target } = model;
  if (definition.model && !remote) warnOfKeys(name, [target, ...(fallbacks ?? [])], environment);
  const hooks = [...plugins, ...(definition.hooks ? [definition.hooks] : [])];
  const tools = remote ? [promptPerson] : findTools(environment.builtInTools, definition.tools);
  const skills = await loadSkills(environment.skillsDir, definition.skills, environment.warn);
  const children = await Promise.all(
    (definition.subAgents ?? []).map(async (child) => ({
      isTool: (child.asTool === true || (child.background ?? false) !== false) && kind === 'llm',
      background: child.background,
      node: await toNode(child, { ...own, plugins }, environment, unconnected),
    })),
  );
  const node: AgentNode = {
    name,
    description,
    kind,
    instruction,
    appendedInstruction: skillsInstruction(skills),
    ...(remote
      ? await toRemote(name, remote, environment)
      : {
          ...findNamedModel(environment, target),
          ...(fallbacks && { fallbacks: fallbacks.map((each) => findNamedModel(environment, each)) }),
          ...(firstTokenMs !== undefined && { firstTokenMs }),
        }),
    sampling: own.sampling,
    tools: [
      ...tools,
      ...skillTools(skills),
      ...children.flatMap((child) => (child.isTool ? [agentTool(child.node, child.background)] : [])),
    ].map((tool) => withSettings(tool, definition)),
    subAgents: children.flatMap((child) => (child.isTool ? [] : [child.node])),
    ...(hooks.length > 0 && { hooks }),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    ...(outputKey === undefined ? {} : { outputKey }),
    ...(maxIterations === undefined ? {} : { maxIterations }),
  };
  unconnected.push({ node, servers: definition.mcpServers, definition });
  return node;
}

/** Warns of models that an agent names itself and that have no key; `MODEL_API_KEY` is that of the others. */
function warnOfKeys(name: string, targets: readonly ModelTarget[], environment: AgentEnvironment): void {
  for (const target of targets) {
    const { model } = findNamedModel(environment, target);
    if (model.lacksKey !== true || model === environment.model) continue;
    environment.warn?.(
      `${name}: no key is set for its model of ${model.provider}, so each call of it fails; set \`api_key\` of that model, in code \`apiKey\`.`,
    );
  }
}

async function toRemote(name: string, remote: RemoteAgent, { mcp = PUBLIC_ONLY }: AgentEnvironment) {
  const { remoteModel } = await import('./a2a/remote.ts');
  return { model: remoteModel(name, remote, mcp), modelName: name, isRemote: true };
}

type ToolSettings = Pick<AgentDefinition, 'confirmTools' | 'toolEffects' | 'toolLimits' | 'askWhenUnknown'>;

/** Gives a tool what the definition of its agent says about the tool. */
function withSettings(
  tool: Tool,
  { confirmTools = [], toolEffects = {}, toolLimits = {}, askWhenUnknown = [] }: ToolSettings,
): Tool {
  const effect = Object.hasOwn(toolEffects, tool.name) ? toolEffects[tool.name] : tool.effect;
  const limits = Object.hasOwn(toolLimits, tool.name) ? toolLimits[tool.name] : tool.limits;
  const prepared = {
    ...tool,
    needsConfirmation: tool.needsConfirmation || confirmTools.includes(tool.name),
    ...(effect && { effect }),
    ...(askWhenUnknown.includes(tool.name) && { onUnknown: 'ask' as const }),
  };
  return limits ? limitTool(prepared, limits) : prepared;
}

/** How the tools of MCP servers are found: by connections to the servers, unless `serverTools` supplies them. */
interface Connecting {
  environment: AgentEnvironment;
  signal: AbortSignal;
  userId: string | undefined;
  serverTools: ServerTools | undefined;
  /** True: the MCP servers come from a request and are untrusted. */
  isBrought: boolean;
}

/** Adds the tools of one agent's MCP servers to it. Returns a function that closes the connections, if there are any. */
async function connectNode(
  { node, servers, definition }: UnconnectedNode,
  { environment: { mcp = PUBLIC_ONLY, warn }, signal, userId, serverTools, isBrought }: Connecting,
): Promise<(() => Promise<void>) | undefined> {
  const taken = node.tools.map((tool) => tool.name);
  const { tools, close } = serverTools
    ? { tools: serverTools(node.name, servers), close: undefined }
    : await connectMcpServers(servers, { ...mcp, warn }, taken, signal, userId);
  const added = tools.map((tool) => withSettings(isBrought ? { ...tool, isBrought } : tool, definition));
  node.tools = [...node.tools, ...added];
  return close;
}

/**
 * Connects in parallel. If one connection fails, all others are closed.
 * @throws {AgentError} if there are too many servers
 */
async function connectAll(nodes: UnconnectedNode[], connecting: Connecting): Promise<() => Promise<void>> {
  const servers = nodes.reduce((sum, node) => sum + node.servers.length, 0);
  if (servers > MAX_MCP_SERVERS)
    throw new AgentError(
      'mcp_failed',
      `${servers} MCP servers are more than one invocation may have: ${MAX_MCP_SERVERS}.`,
    );
  const results = await Promise.allSettled(nodes.map((node) => connectNode(node, connecting)));
  const closers = results.flatMap((result) => (result.status === 'fulfilled' && result.value) || []);
  const close = async () => void (await Promise.all(closers.map((each) => each())));
  const failure = results.find((result) => result.status === 'rejected');
  if (!failure) return close;
  await close();
  throw failure.reason;
}
