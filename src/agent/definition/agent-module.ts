import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ConfigError } from '../../core/errors.ts';
import type { AgentDefinition, SubAgentDefinition } from './agent.ts';
import type { Tool } from './tool.ts';

/** An agent below another in code: tools are built-in names or tools of your own. */
export type SubAgentSource = Partial<Omit<SubAgentDefinition, 'tools' | 'subAgents'>> & {
  name: string;
  tools?: (string | Tool)[];
  subAgents?: SubAgentSource[];
};

/**
 * An agent application in code. Its name is that of its directory; what is left out has the defaults of `harness.yaml`.
 */
export type AgentSource = Omit<SubAgentSource, 'name' | 'asTool'> &
  Partial<Pick<AgentDefinition, 'maxLlmCalls' | 'compaction'>>;

/** An agent application that was loaded: its definition, and its own tools by name. */
export interface AgentModule {
  definition: AgentDefinition;
  tools: Map<string, Tool>;
}

const APP_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
const RESERVED = new Set(['harness_agent', 'user']);

/** Says what an `agents/<name>/agent.ts` exports as `agent`; returns it as it is. */
export const defineAgent = (source: AgentSource): AgentSource => source;

/** A tool of your own; by default it needs no confirmation. */
export const defineTool = (tool: Omit<Tool, 'needsConfirmation'> & Partial<Tool>): Tool => ({
  needsConfirmation: false,
  ...tool,
});

/**
 * Loads the agent applications below a directory that the operator names, in the order of their names; none where it
 * does not exist.
 * @throws {ConfigError} that names the file, for one that cannot be loaded or exports no agent.
 */
export async function loadAgentModules(directory: string, defaultModel: string): Promise<Map<string, AgentModule>> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  const modules = new Map<string, AgentModule>();
  for (const name of names.sort()) modules.set(name, await loadAgentModule(directory, name, defaultModel));
  return modules;
}

async function loadAgentModule(directory: string, name: string, defaultModel: string): Promise<AgentModule> {
  const path = join(directory, name, 'agent.ts');
  if (!APP_NAME.test(name) || RESERVED.has(name))
    throw new ConfigError(`${path}: \`${name}\` cannot be the name of an application.`);
  const loaded = await importAgent(path);
  if (typeof loaded !== 'object' || loaded === null) {
    throw new ConfigError(`${path}: it exports no \`agent\`. Write \`export const agent = defineAgent({…})\`.`);
  }
  return toModule(name, loaded, defaultModel, path);
}

async function importAgent(path: string): Promise<AgentSource | undefined> {
  try {
    const module = (await import(pathToFileURL(path).href)) as { agent?: AgentSource };
    return module.agent;
  } catch (error) {
    throw new ConfigError(
      `${path}: it cannot be loaded: ${error instanceof Error ? error.message : 'unknown reason'}`,
      {
        cause: error,
      },
    );
  }
}

function toModule(name: string, source: AgentSource, defaultModel: string, path: string): AgentModule {
  const tools = new Map<string, Tool>();
  const names = new Set<string>();
  const toDefinition = (agent: SubAgentSource): SubAgentDefinition => {
    if (names.has(agent.name)) throw new ConfigError(`${path}: the agent \`${agent.name}\` is there twice.`);
    names.add(agent.name);
    const { subAgents, ...plain } = agent;
    return {
      description: '',
      instruction: '',
      skills: [],
      mcpServers: [],
      ...plain,
      tools: (agent.tools ?? []).map((tool) => nameOf(tool, tools, path)),
      ...(subAgents === undefined ? {} : { subAgents: subAgents.map(toDefinition) }),
    };
  };
  const { maxLlmCalls = 500, compaction, ...rest } = source;
  const definition = {
    modelName: defaultModel,
    sampling: {},
    ...toDefinition({ ...rest, name }),
    maxLlmCalls,
    ...(compaction === undefined ? {} : { compaction }),
  };
  return { definition, tools };
}

function nameOf(tool: string | Tool, own: Map<string, Tool>, path: string): string {
  if (typeof tool === 'string') return tool;
  const known = own.get(tool.name);
  if (known && known !== tool) throw new ConfigError(`${path}: two tools are named \`${tool.name}\`.`);
  own.set(tool.name, tool);
  return tool.name;
}
