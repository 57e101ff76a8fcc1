import { createHash } from 'node:crypto';
import type { AgentDefinition, PreparedAgent } from '../../agent/definition/agent.ts';
import type { AgentNode } from '../../agent/definition/tool.ts';
import type { JsonObject } from '../../core/content.ts';
import { parseExactJson } from '../../core/exact-json.ts';

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
  const { maxLlmCalls, compaction, model } = root;
  const { embeddings, remember } = definition.memory ?? {};
  const rule = Array.isArray(remember) ? remember.map(String) : typeof remember === 'function' ? 'code' : remember;
  const memory = definition.memory && [embeddings?.name, embeddings?.dimensions, rule];
  const settings = { runtime, provider: model.provider, maxLlmCalls, compaction, memory, root: root.name };
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
  ...only(definition, ['skills', 'confirmTools', 'toolEffects', 'toolLimits', 'askWhenUnknown', 'asTool']),
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

/** Sorts object members, so that their order in the source does not change the version's digest. */
const sortMembers = (_name: string, value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
    : value;
