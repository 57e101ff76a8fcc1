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

/** An agent application that was loaded: its definition, and its own tools by name. */
export interface AgentModule {
  definition: AgentDefinition;
  tools: Map<string, Tool>;
}

const APP_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
/** The author of what people say. */
const USER = 'user';

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
 * A tool of your own. The model sees `parameters`, and arguments that do not fit them never reach `run`. An integer that
 * no float holds is a `bigint` where zod's schema says so; a `z.number()` refuses it. Without zod it is an object that
 * only `JSON.stringify` reads, so that a tool may hand it on.
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
    parameters: toJsonSchema(parameters),
    run: async (args, context) => tool.run(await parseTyped(parameters, args), context),
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
    const path = join(directory, name, 'agent.ts');
    // The agent may stand in the harness file; the folder then holds its `tools/` and `evals/`.
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
 * Loads the tools that the files of an application's `tools/` export, by name; none where there is no such folder.
 * @throws {ConfigError} that names the file, for one that cannot be loaded or exports no tool, and for a name twice.
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

/** The tool's name; a tool of the application's own is kept under it. */
function addTool(tool: string | Tool, own: Map<string, Tool>, path: string): string {
  if (typeof tool === 'string') return tool;
  const known = own.get(tool.name);
  if (known && known !== tool) throw new ConfigError(`${path}: two tools are named \`${tool.name}\`.`);
  own.set(tool.name, tool);
  return tool.name;
}
