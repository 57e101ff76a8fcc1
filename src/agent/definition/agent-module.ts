import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ConfigError } from '../../core/errors.ts';
import type { AgentDefinition, AgentSource } from './agent.ts';
import type { Tool } from './tool.ts';

/** An agent application that was loaded: its definition, and its own tools by name. */
interface AgentModule {
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
export async function loadAgentModules(directory: string): Promise<Map<string, AgentModule>> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  const modules = new Map<string, AgentModule>();
  for (const name of names.sort()) modules.set(name, await loadAgentModule(directory, name));
  return modules;
}

async function loadAgentModule(directory: string, name: string): Promise<AgentModule> {
  const path = join(directory, name, 'agent.ts');
  if (!APP_NAME.test(name) || RESERVED.has(name))
    throw new ConfigError(`${path}: \`${name}\` cannot be the name of an application.`);
  const loaded = await importAgent(path);
  if (typeof loaded !== 'object' || loaded === null) {
    throw new ConfigError(`${path}: it exports no \`agent\`. Write \`export const agent = defineAgent({…})\`.`);
  }
  return toModule(name, loaded, path);
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

function toModule(name: string, source: AgentSource, path: string): AgentModule {
  const tools = new Map<string, Tool>();
  const names = new Set<string>();
  const toDefinition = (agent: AgentSource & { name: string }): AgentDefinition => {
    if (names.has(agent.name)) throw new ConfigError(`${path}: the agent \`${agent.name}\` is there twice.`);
    names.add(agent.name);
    const { subAgents, ...plain } = agent;
    return {
      description: '',
      instruction: '',
      skills: [],
      mcpServers: [],
      ...plain,
      tools: (agent.tools ?? []).map((tool) => addTool(tool, tools, path)),
      ...(subAgents === undefined ? {} : { subAgents: subAgents.map(toDefinition) }),
    };
  };
  return { definition: toDefinition({ ...source, name }), tools };
}

/** The tool's name; a tool of the application's own is kept under it. */
function addTool(tool: string | Tool, own: Map<string, Tool>, path: string): string {
  if (typeof tool === 'string') return tool;
  const known = own.get(tool.name);
  if (known && known !== tool) throw new ConfigError(`${path}: two tools are named \`${tool.name}\`.`);
  own.set(tool.name, tool);
  return tool.name;
}
