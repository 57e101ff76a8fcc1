import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { z } from 'zod';
import { parseTyped, toJsonSchema } from './typed-arguments.ts';
import { ConfigError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { AgentDefinition, AgentSource } from './agent.ts';
import { checkSource, isTool } from './agent-source.ts';
import { importFile } from './import-file.ts';
import { toOutputSchema } from './output-schema.ts';
import type { Tool, ToolContext } from './tool.ts';

/** A loaded agent application; `tools` are the application's own tools by name. */
export interface AgentModule {
  definition: AgentDefinition;
  tools: Map<string, Tool>;
}

const APP_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
/** Reserved: the author of user messages. */
const USER = 'user';

/** Types what an `agents/<name>/agent.ts` exports as `agent`; returns it unchanged. */
export const defineAgent = (source: AgentSource): AgentSource => source;

/** A custom tool whose arguments are described by a zod object: `run` receives the parsed, typed arguments. */
export interface TypedTool<Parameters extends z.ZodObject> extends ToolOptions {
  parameters: Parameters;
  /** Runs the tool. The result goes to the model; a thrown error becomes the response. */
  run(args: z.output<Parameters>, context: ToolContext): Promise<unknown>;
}

/** A custom tool whose arguments are described by JSON Schema. */
export interface PlainTool extends ToolOptions, Pick<Tool, 'parameters' | 'run'> {}

type ToolOptions = Omit<Tool, 'needsConfirmation' | 'parameters' | 'run'> & Partial<Pick<Tool, 'needsConfirmation'>>;

/**
 * Defines a custom tool. The model sees `parameters`; arguments that violate them never reach `run`. An integer beyond
 * a float's precision arrives as a `bigint` if the zod schema says `bigint`; `z.number()` rejects it. With JSON Schema
 * it arrives as an opaque object that `JSON.stringify` writes exactly, so that a tool may pass it on.
 * @throws Error for a zod object without a JSON Schema form, such as one with a transformed key
 */
export function defineTool<Parameters extends z.ZodObject>(tool: TypedTool<Parameters>): Tool;
export function defineTool(tool: PlainTool): Tool;
export function defineTool(tool: TypedTool<z.ZodObject> | PlainTool): Tool {
  if (!isTyped(tool)) return { needsConfirmation: false, ...tool };
  const { parameters } = tool;
  return {
    needsConfirmation: false,
    ...tool,
    parameters: toJsonSchema(parameters),
    run: async (args, context) => tool.run(await parseTyped(parameters, args), context),
  };
}

const isTyped = (tool: TypedTool<z.ZodObject> | PlainTool): tool is TypedTool<z.ZodObject> => '_zod' in tool.parameters;

/**
 * Loads the agent applications in the operator's directory, sorted by name; none if the directory is missing.
 * @throws {ConfigError} that names the file, if it cannot be loaded or exports no agent
 */
export async function loadAgentModules(directory: string): Promise<Map<string, AgentModule>> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  const modules = new Map<string, AgentModule>();
  for (const name of names.sort()) {
    const path = join(directory, name, 'agent.ts');
    // The agent may be defined in the harness file; its folder then holds only `tools/` and `evals/`.
    if (name === HARNESS_APP && !existsSync(path)) continue;
    checkName(name, path);
    const { agent } = await importFile(path);
    if (typeof agent !== 'object' || agent === null)
      throw new ConfigError(`${path}: it exports no \`agent\`. Write \`export const agent = defineAgent({…})\`.`);
    modules.set(name, toModule(name, agent, path));
  }
  return modules;
}

/**
 * Loads the tools exported by the files of an application's `tools/`, by name; none if the folder is missing.
 * @throws {ConfigError} that names the file, if it cannot be loaded or exports no tool, or if two tools share a name
 */
export async function loadTools(directory: string): Promise<Map<string, Tool>> {
  const files = (await readdir(directory).catch(() => [])).filter((name) => /(?<!\.test|\.d)\.ts$/.test(name));
  const tools = new Map<string, Tool>();
  for (const file of files.sort()) {
    const path = join(directory, file);
    const exported = Object.values(await importFile(path)).filter(isTool);
    if (exported.length === 0)
      throw new ConfigError(`${path}: it exports no tool. Write \`export const lookup = defineTool({…})\`.`);
    for (const tool of exported) addTool(tool, tools, path);
  }
  return tools;
}

/**
 * Returns agent applications that are passed as values, by name.
 * @throws {ConfigError} for an invalid application name and for two agents or tools of one name
 */
export const toAgentModules = (sources: Record<string, AgentSource>): Map<string, AgentModule> =>
  new Map(
    Object.entries(sources).map(([name, source]) => {
      checkName(name, 'agents');
      return [name, toModule(name, source, 'agents')];
    }),
  );

function checkName(name: string, place: string): void {
  if (!APP_NAME.test(name) || name === USER)
    throw new ConfigError(`${place}: \`${name}\` cannot be the name of an application.`);
}

function toModule(name: string, source: AgentSource, path: string): AgentModule {
  checkSource(source, path);
  const tools = new Map<string, Tool>();
  const names = new Set<string>();
  const toDefinition = (agent: AgentSource & { name: string }): AgentDefinition => {
    if (names.has(agent.name)) throw new ConfigError(`${path}: the agent \`${agent.name}\` is there twice.`);
    names.add(agent.name);
    const { subAgents, outputSchema, ...plain } = agent;
    return {
      description: '',
      instruction: '',
      skills: [],
      mcpServers: [],
      ...plain,
      tools: (agent.tools ?? []).map((tool) => addTool(tool, tools, path)),
      ...(outputSchema === undefined ? {} : { outputSchema: toOutputSchema(outputSchema) }),
      ...(subAgents === undefined ? {} : { subAgents: subAgents.map(toDefinition) }),
    };
  };
  return { definition: toDefinition({ ...source, name }), tools };
}

/** Returns the tool's name. Registers the tool if it is the application's own. */
function addTool(tool: string | Tool, own: Map<string, Tool>, path: string): string {
  if (typeof tool === 'string') return tool;
  const existing = own.get(tool.name);
  if (existing && existing !== tool) throw new ConfigError(`${path}: two tools are named \`${tool.name}\`.`);
  own.set(tool.name, tool);
  return tool.name;
}
