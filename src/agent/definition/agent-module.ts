import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import type { AgentDefinition, AgentSource } from './agent.ts';
import type { Tool, ToolContext } from './tool.ts';

/** An agent application that was loaded: its definition, and its own tools by name. */
interface AgentModule {
  definition: AgentDefinition;
  tools: Map<string, Tool>;
}

const APP_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
/** The application whose agent stands in the harness file. */
const HARNESS = 'harness_agent';
const RESERVED = new Set([HARNESS, 'user']);

/** Says what an `agents/<name>/agent.ts` exports as `agent`; returns it as it is. */
export const defineAgent = (source: AgentSource): AgentSource => source;

/** A tool of your own whose arguments are described by a zod object: `run` gets them parsed, with their types. */
export interface TypedTool<Parameters extends z.ZodObject> extends ToolOptions {
  parameters: Parameters;
  /** Runs the tool. Its result goes to the model; an error that it throws becomes the response. */
  run(args: z.output<Parameters>, context: ToolContext): Promise<unknown>;
}

/** A tool of your own whose arguments are described by JSON Schema. */
export interface PlainTool extends ToolOptions, Pick<Tool, 'parameters' | 'run'> {}

/** Options that every tool has; by default it needs no confirmation. */
type ToolOptions = Omit<Tool, 'needsConfirmation' | 'parameters' | 'run'> & Partial<Pick<Tool, 'needsConfirmation'>>;

/**
 * A tool of your own. The model sees `parameters`, and arguments that do not fit them never reach `run`.
 * @throws Error for a zod object that JSON Schema cannot say, one with a transformed key for instance.
 */
export function defineTool<Parameters extends z.ZodObject>(tool: TypedTool<Parameters>): Tool;
export function defineTool(tool: PlainTool): Tool;
export function defineTool(tool: TypedTool<z.ZodObject> | PlainTool): Tool {
  if (!isTyped(tool)) return { needsConfirmation: false, ...tool };
  const { parameters } = tool;
  return {
    needsConfirmation: false,
    ...tool,
    parameters: z.toJSONSchema(parameters, { io: 'input', target: 'draft-7' }),
    run: async (args, context) => tool.run(await parameters.parseAsync(args), context),
  };
}

const isTyped = (tool: TypedTool<z.ZodObject> | PlainTool): tool is TypedTool<z.ZodObject> => '_zod' in tool.parameters;

/**
 * Loads the agent applications below the operator's directory in the order of their names; none where it is absent.
 * @throws {ConfigError} that names the file, for one that cannot be loaded or exports no agent.
 */
export async function loadAgentModules(directory: string): Promise<Map<string, AgentModule>> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  const modules = new Map<string, AgentModule>();
  for (const name of names.sort()) {
    // Its folder holds its `evals/`, but no agent.
    if (name === HARNESS && !existsSync(join(directory, name, 'agent.ts'))) continue;
    modules.set(name, await loadAgentModule(directory, name));
  }
  return modules;
}

async function loadAgentModule(directory: string, name: string): Promise<AgentModule> {
  const path = join(directory, name, 'agent.ts');
  checkName(name, path);
  const loaded = await importAgent(path);
  if (typeof loaded !== 'object' || loaded === null) {
    throw new ConfigError(`${path}: it exports no \`agent\`. Write \`export const agent = defineAgent({…})\`.`);
  }
  return toModule(name, loaded, path);
}

/**
 * Agent applications that are there as values, by name.
 * @throws {ConfigError} for a name that no application can have, and for agents or tools of one name.
 */
export const toAgentModules = (sources: Record<string, AgentSource>): Map<string, AgentModule> =>
  new Map(
    Object.entries(sources).map(([name, source]) => {
      checkName(name, 'agents');
      return [name, toModule(name, source, 'agents')];
    }),
  );

function checkName(name: string, place: string): void {
  if (!APP_NAME.test(name) || RESERVED.has(name))
    throw new ConfigError(`${place}: \`${name}\` cannot be the name of an application.`);
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
