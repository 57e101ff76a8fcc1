import {
  DEFAULT_MAX_LLM_CALLS,
  type AgentDefinition,
  type AgentNode,
  type AgentOverrides,
  type AgentModel,
  type McpServer,
  type ModelTarget,
  type NamedModel,
  type ServerTools,
  type PreparedAgent,
  type RemoteAgent,
} from './definition/agent.ts';
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
import type { Tool } from './definition/tool.ts';
import { limitTool } from './tools/limit-tool.ts';
import { findTools } from './tools/registry.ts';
import { promptPerson } from './tools/waits.ts';

/** Services of the process that every agent uses. */
export interface AgentEnvironment {
  model: Model;
  /** Name of the model for agents that name none, and none above them does. */
  modelName: string;
  /** Returns the model of a provider that an agent names [that of all]. */
  findModel?: (target: ModelTarget) => Model;
  builtInTools: ReadonlyMap<string, Tool>;
  /** Directory of the skills; without one an agent has none. */
  skillsDir?: string;
  /** How MCP servers are reached [public addresses by https]. */
  mcp?: McpSettings;
  /** Takes what an agent has to do without, and why [nobody is told]. */
  warn?: ((text: string) => void) | undefined;
}

/** True when a member other than `mcpServers` is given: the `overwrite` of `/harness/invoke` (specification). */
export const hasGeneralOverride = (overrides: AgentOverrides): boolean =>
  Object.entries(overrides).some(
    ([name, value]) => name !== 'mcpServers' && name !== 'unsupported' && value !== undefined,
  );

/** Returns the definition with one request's overrides: `tools` and `skills` are appended, the rest is replaced. */
function applyOverrides(
  definition: AgentDefinition,
  overrides: AgentOverrides,
): AgentDefinition & Pick<PreparedAgent, 'maxLlmCalls'> {
  return {
    ...definition,
    instruction: overrides.instruction ?? definition.instruction,
    ...(overrides.modelName !== undefined && { modelName: overrides.modelName }),
    ...(overrides.modelName !== undefined &&
      definition.model && { model: { ...definition.model, name: overrides.modelName } }),
    tools: [...new Set([...definition.tools, ...(overrides.tools ?? [])])],
    skills: [...new Set([...definition.skills, ...(overrides.skills ?? [])])],
    // Who names a server in the request wants its tools in this answer.
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
 * Makes an agent and those below it ready for one invocation. Call `close()` on the result in any case.
 * `userId` is whose connections those to MCP servers are. With `serverTools` no server is contacted: it gives what
 * their tools are instead.
 * @throws {AgentError} for an unknown tool or skill, an MCP server that does not answer, more than 16 of them, or an
 * abort; nothing stays open then.
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
  const wanted = applyOverrides(definition, overrides);
  // The request's list replaces the full one, that of sub-agents too.
  const below = overrides.mcpServers === undefined ? wanted : { ...wanted, subAgents: withoutMcp(wanted.subAgents) };
  const unconnected: UnconnectedNode[] = [];
  const inherited = { model: { name: environment.modelName }, sampling: {}, plugins: wanted.plugins ?? [] };
  const root = await toNode(below, inherited, environment, unconnected);
  const servers = unconnected.reduce((sum, node) => sum + node.servers.length, 0);
  if (servers > MAX_MCP_SERVERS) {
    throw new AgentError(
      'mcp_failed',
      `${servers} MCP servers are more than one invocation may have: ${MAX_MCP_SERVERS}.`,
    );
  }
  const connect = async (node: UnconnectedNode) => {
    const { mcp = PUBLIC_ONLY, warn } = environment;
    if (!serverTools) return connectNode(node, { ...mcp, warn }, signal, userId);
    addTools(node, serverTools(node.node.name, node.servers));
    return async () => {};
  };
  if (overrides.instruction !== undefined) root.isBrought = { instruction: true };
  if (overrides.mcpServers !== undefined) for (const node of unconnected) node.isBrought = true;
  const close = await connectAll(unconnected, connect);
  try {
    addClientTools(root, overrides.clientTools ?? []);
    if (overrides.outputSchema) await setOutputSchema(root, overrides.outputSchema, signal);
    if (overrides.toolChoice && !hasTools(root))
      throw new AgentError('unsupported_override', 'The agent has no tool that it could be made to call.');
  } catch (error) {
    await close();
    throw error;
  }
  const compaction = wanted.compaction ? { compaction: wanted.compaction } : {};
  const choice = overrides.toolChoice ? { toolChoice: overrides.toolChoice } : {};
  return {
    ...root,
    maxLlmCalls: wanted.maxLlmCalls,
    maxTokens: overrides.tokensAtMost,
    ...compaction,
    ...choice,
    close,
  };
}

const hasTools = ({ tools, subAgents }: AgentNode): boolean => tools.length > 0 || subAgents.some(hasTools);

/**
 * Gives the form of a request to the agents that may give the last answer.
 * @throws {AgentError} for a schema that is none, and where several agents answer side by side
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

/** Maximum number of MCP servers of an agent and all below it. */
const MAX_MCP_SERVERS = 16;
const PUBLIC_ONLY: McpSettings = { egress: { allowLoopback: false } };

const withoutMcp = (agents: AgentDefinition[] = []): AgentDefinition[] =>
  agents.map((agent) => ({ ...agent, mcpServers: [], subAgents: withoutMcp(agent.subAgents) }));

/** A node whose MCP servers are not connected yet. */
interface UnconnectedNode {
  node: AgentNode;
  servers: McpServer[];
  /** True where a request has named its servers. */
  isBrought?: boolean | undefined;
  definition: Pick<AgentDefinition, 'confirmTools' | 'toolEffects' | 'toolLimits' | 'askWhenUnknown'>;
}

/** Tells whether a model is asked elsewhere, or with another key, than that of all. */
const isOther = ({ provider, baseUrl, apiKey }: ModelTarget): boolean => (provider ?? baseUrl ?? apiKey) !== undefined;

/** Returns the model of a target: that of all, by its name, where it is asked there. */
export const findNamedModel = (environment: AgentEnvironment, target: ModelTarget): NamedModel => ({
  model: (isOther(target) && environment.findModel?.(target)) || environment.model,
  modelName: target.name,
});

/** Members that a sub-agent inherits where it does not define them. */
type Inherited = Pick<AgentNode, 'sampling'> & { model: AgentModel; plugins: Hooks[] };

async function toNode(
  definition: AgentDefinition,
  { model: above, sampling, plugins }: Inherited,
  environment: AgentEnvironment,
  unconnected: UnconnectedNode[],
): Promise<AgentNode> {
  const { name, description, kind = 'llm', instruction, outputSchema, outputKey, maxIterations, remote } = definition;
  const model =
    definition.model ?? (definition.modelName === undefined ? above : { ...above, name: definition.modelName });
  // What bounds the answers of the agent above says nothing of one elsewhere.
  const own = { model, sampling: definition.sampling ?? (remote ? {} : sampling) };
  const toModel = (target: ModelTarget) => findNamedModel(environment, target);
  const toModels = ({ fallbacks, firstTokenMs, ...target }: AgentModel) => ({
    ...toModel(target),
    ...(fallbacks && { fallbacks: fallbacks.map(toModel) }),
    ...(firstTokenMs !== undefined && { firstTokenMs }),
  });
  const hooks = [...plugins, ...(definition.hooks ? [definition.hooks] : [])];
  const tools = remote ? [promptPerson] : findTools(environment.builtInTools, definition.tools);
  const skills = await loadSkills(environment.skillsDir, definition.skills, environment.warn);
  const children = await Promise.all(
    (definition.subAgents ?? []).map(async (child) => ({
      isTool: child.asTool === true && kind === 'llm',
      node: await toNode(child, { ...own, plugins }, environment, unconnected),
    })),
  );
  const node: AgentNode = {
    name,
    description,
    kind,
    instruction,
    appendedInstruction: skillsInstruction(skills),
    ...(remote ? await toRemote(name, remote, environment) : toModels(model)),
    sampling: own.sampling,
    tools: [
      ...tools,
      ...skillTools(skills),
      ...children.flatMap((child) => (child.isTool ? [agentTool(child.node)] : [])),
    ],
    subAgents: children.flatMap((child) => (child.isTool ? [] : [child.node])),
    ...(hooks.length > 0 && { hooks }),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    ...(outputKey === undefined ? {} : { outputKey }),
    ...(maxIterations === undefined ? {} : { maxIterations }),
  };
  unconnected.push({ node, servers: definition.mcpServers, definition });
  return node;
}

/** Returns the model of an agent of another service. */
async function toRemote(name: string, remote: RemoteAgent, { mcp = PUBLIC_ONLY }: AgentEnvironment) {
  const { remoteModel } = await import('./a2a/remote.ts');
  return { model: remoteModel(name, remote, mcp), modelName: name, isRemote: true };
}

/** Connects the servers of one agent and gives the node their tools. @returns what closes the connections */
async function connectNode(
  { node, servers, definition, isBrought }: UnconnectedNode,
  settings: McpSettings,
  signal: AbortSignal,
  userId: string | undefined,
): Promise<() => Promise<void>> {
  const taken = node.tools.map((tool) => tool.name);
  const mcp = servers.length > 0 ? await connectMcpServers(servers, settings, taken, signal, userId) : undefined;
  addTools({ node, definition, isBrought }, mcp?.tools ?? []);
  return mcp?.close ?? (async () => {});
}

function addTools({ node, definition, isBrought = false }: Omit<UnconnectedNode, 'servers'>, tools: Tool[]): void {
  const { confirmTools = [], toolEffects = {}, toolLimits = {}, askWhenUnknown = [] } = definition;
  const found = isBrought ? tools.map((tool) => ({ ...tool, isBrought })) : tools;
  node.tools = [...node.tools, ...found].map((tool) => {
    const effect = Object.hasOwn(toolEffects, tool.name) ? toolEffects[tool.name] : tool.effect;
    const limits = Object.hasOwn(toolLimits, tool.name) ? toolLimits[tool.name] : tool.limits;
    const made = {
      ...tool,
      needsConfirmation: tool.needsConfirmation || confirmTools.includes(tool.name),
      ...(effect && { effect }),
      ...(askWhenUnknown.includes(tool.name) && { onUnknown: 'ask' as const }),
    };
    return limits ? limitTool(made, limits) : made;
  });
}

/** Connects the servers of all agents at once; those that could be are closed again where one could not. */
async function connectAll(
  nodes: UnconnectedNode[],
  connect: (node: UnconnectedNode) => Promise<() => Promise<void>>,
): Promise<() => Promise<void>> {
  const results = await Promise.allSettled(nodes.map(connect));
  const closers = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const close = async () => void (await Promise.all(closers.map((each) => each())));
  const failure = results.find((result) => result.status === 'rejected');
  if (!failure) return close;
  await close();
  throw failure.reason;
}
