import { createHash } from 'node:crypto';
import type { EvalModule } from '../../agent/definition/agent-module.ts';
import type {
  AgentDefinition,
  AgentOverrides,
  MemorySettings,
  PreparedAgent,
  ServerTools,
} from '../../agent/definition/agent.ts';
import type { AgentNode, NamedModel, Tool } from '../../agent/definition/tool.ts';
import type { Skill } from '../../agent/skills.ts';
import type { JsonObject } from '../../core/content.ts';
import { parseExactJson, sortMembers } from '../../core/exact-json.ts';

/** An agent with its sub-agents, for display; tools that are only known during an invocation are missing. */
export interface AgentDescription {
  name: string;
  description: string;
  kind: 'llm' | 'sequential' | 'parallel' | 'loop';
  model: string;
  instruction: string;
  tools: Pick<Tool, 'name' | 'description' | 'parameters'>[];
  subAgents: AgentDescription[];
}

/** Lists the agent and all its descendants, parents before children. */
export const listAgents = (agent: AgentDescription): AgentDescription[] => [
  agent,
  ...agent.subAgents.flatMap(listAgents),
];

/** @param modelName - the model of an agent if neither the agent nor any of its parents names one */
export function describeAgent(
  definition: AgentDefinition,
  known: ReadonlyMap<string, Tool>,
  modelName: string,
): AgentDescription {
  const describe = (agent: AgentDefinition, modelAbove: string): AgentDescription => {
    const model = agent.remote ? agent.name : (agent.model?.name ?? agent.modelName ?? modelAbove);
    return {
      name: agent.name,
      description: agent.description,
      kind: agent.kind ?? 'llm',
      model,
      instruction: agent.instruction,
      tools: agent.tools.flatMap((name) => known.get(name) ?? []).map(describeTool),
      subAgents: (agent.subAgents ?? []).map((child) => describe(child, model)),
    };
  };
  return describe(definition, modelName);
}

const describeTool = ({ name, description, parameters }: Tool) => ({ name, description, parameters });

export interface AgentVersion {
  /** SHA-256 (hex) of the definition as canonical JSON. */
  digest: string;
  /** Agents and tools by name, with every setting that a deployment may change; no secrets. */
  definition: JsonObject;
}

/** @param root - the agent tree prepared from the definition, without MCP servers */
export function toAgentVersion(definition: AgentDefinition, root: PreparedAgent, runtime: string): AgentVersion {
  const nodes = new Map(listNodes(root).map((node) => [node.name, node]));
  const agents = listDefinitions(definition).flatMap((agent) => {
    const node = nodes.get(agent.name);
    return node ? [[agent.name, describe(agent, node)] as const] : [];
  });
  const { maxLlmCalls, compaction, loopStop, model } = root;
  const { embeddings, remember } = definition.memory ?? {};
  const rule = Array.isArray(remember) ? remember.map(String) : typeof remember === 'function' ? 'code' : remember;
  const memory = definition.memory && [embeddings?.name, embeddings?.dimensions, rule];
  const settings = { runtime, provider: model.provider, maxLlmCalls, compaction, loopStop, memory, root: root.name };
  const text = JSON.stringify({ ...settings, agents: Object.fromEntries(agents) }, sortMembers);
  const digest = createHash('sha256').update(text).digest('hex');
  return { digest, definition: parseExactJson(text) as JsonObject };
}

const listDefinitions = (agent: AgentDefinition): AgentDefinition[] => [
  agent,
  ...(agent.subAgents ?? []).flatMap(listDefinitions),
];

const listNodes = (node: AgentNode): AgentNode[] => [
  node,
  ...[...node.subAgents, ...node.tools.flatMap(({ calls }) => (typeof calls === 'object' ? [calls] : []))].flatMap(
    listNodes,
  ),
];

/**
 * Picks only the listed members, because other members (such as addresses and headers of servers) may contain secrets.
 */
const only = <Value>(value: Value, names: (keyof Value)[]) =>
  Object.fromEntries(names.map((name) => [name, value[name]]));

const describe = (definition: AgentDefinition, node: AgentNode) => ({
  ...only(definition, [
    'skills',
    'confirmTools',
    'toolEffects',
    'toolLimits',
    'askWhenUnknown',
    'asTool',
    'background',
  ]),
  ...only(node, ['kind', 'description', 'instruction', 'appendedInstruction', 'modelName', 'firstTokenMs']),
  ...only(node, ['sampling', 'outputKey', 'maxIterations']),
  provider: node.model.provider,
  fallbacks: node.fallbacks?.map((each) => ({ provider: each.model.provider, modelName: each.modelName })),
  tools: Object.fromEntries(
    node.tools.map((tool) => [
      tool.name,
      only(tool, ['description', 'parameters', 'needsConfirmation', 'longRunning', 'effect']),
    ]),
  ),
  mcpServers: definition.mcpServers.map((server) => only(server, ['name', 'transport', 'resources', 'prompts'])),
  subAgents: (definition.subAgents ?? []).map(({ name }) => name),
});

/** The rule for adding to users' memory without a request, and the model that the rule may ask. */
export type Remember = NamedModel & { rule: NonNullable<MemorySettings['remember']> };

/** The model that computes embeddings of memories. `dimensions`: length of its vectors; default: the model's own. */
export type Embedder = NamedModel & {
  dimensions?: number;
  /** The database schema of the pgvector extension; set after start-up has found the extension. */
  schema?: string;
};

export interface HostedAgent {
  /** Author name of the events that the runtime writes on the agent's behalf. */
  name: string;
  /** The deployed version; invocations store its digest. */
  version: AgentVersion;
  /** True if the agent's model has a live API, so that live sessions may carry audio and images. */
  hasLiveApi: boolean;
  /** True if one of the agent's own tools is transactional. */
  hasTransactions?: boolean;
  /** The embedding model, set if memory is searched by meaning as well as by words. */
  embedder?: Embedder | undefined;
  /** Set if the application adds to memory by itself; otherwise only clients add memories. */
  remember?: Remember;
  /** The agent's own evaluation metrics, and the masking of sessions that become evaluation cases. */
  evals?: EvalModule;
  /**
   * @param serverTools - descriptions of MCP tools; if given, no MCP server is contacted
   * @throws {AgentError} for an unknown tool or skill, or an MCP server that does not answer
   */
  prepare(
    overrides: AgentOverrides,
    signal: AbortSignal,
    userId: string,
    serverTools?: ServerTools,
  ): Promise<PreparedAgent>;
  /** Loads the agent's skills; absent if the agent has none. @throws {AgentError} if a skill cannot be loaded */
  listSkills?: () => Promise<Skill[]>;
  describe(): AgentDescription;
}
