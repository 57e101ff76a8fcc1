import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, parse } from 'node:path';
import type { z } from 'zod';
import { parseTyped, toJsonSchema } from './typed-arguments.ts';
import { ConfigError } from '../../core/errors.ts';
import { HARNESS_APP } from '../../core/names.ts';
import type { AgentDefinition, AgentSource } from './agent.ts';
import { isTool, sourceSchema } from './agent-schema.ts';
import { toPlace } from './members.ts';
import { toOutputSchema } from './output-schema.ts';
import type { Tool, ToolContext } from './tool.ts';
import { pathToFileURL } from 'node:url';
import { ownLines } from '../../core/own-stack.ts';
import type { JsonObject } from '../../core/content.ts';

/** An agent application with the tools that it defines itself, by tool name. */
export interface AgentModule {
  definition: AgentDefinition;
  tools: Map<string, Tool>;
}

const APP_NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
/** Name that no agent may have, because it is the author of the user's messages. */
const USER = 'user';

/** Gives the export `agent` of an `agents/<name>/agent.ts` its type; returns its argument. */
export const defineAgent = (source: AgentSource): AgentSource => source;

/** A custom tool whose arguments are described by a zod object: `run` receives the parsed, typed arguments. */
export interface TypedTool<Parameters extends z.ZodObject> extends ToolOptions {
  /** Zod schema of the arguments, an object; the model sees it, and arguments that violate it never reach `run`. */
  parameters: Parameters;
  /** The return value, or the message of a thrown error, becomes the function response that the model reads. */
  run(args: z.output<Parameters>, context: ToolContext): Promise<unknown>;
}

/** A custom tool whose arguments are described by JSON Schema. */
export interface PlainTool extends ToolOptions, Pick<Tool, 'parameters' | 'run'> {}

/** Members of a tool that the runtime sets itself. */
type OfRuntime = 'isOfClient' | 'isBrought' | 'calls' | 'checkArguments';
type ToolOptions = Omit<Tool, 'needsConfirmation' | 'parameters' | 'run' | OfRuntime> &
  Partial<Pick<Tool, 'needsConfirmation'>>;

/**
 * Makes a tool. The model sees the schema `parameters`; arguments that violate it never reach `run`. With a zod schema, an integer
 * beyond the precision of a double arrives as a `bigint` if the schema says `bigint`, and is rejected by `z.number()`.
 * With JSON Schema, such an integer arrives as an opaque object that `JSON.stringify` writes exactly, so that a tool
 * may pass it on.
 * @throws {Error} for a zod object that JSON Schema cannot express, such as one with a transformed member
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
 * Loads the agent applications in a directory, sorted by name; none if the directory is missing.
 * @throws {ConfigError} that names the file, if a file cannot be loaded or exports no agent
 */
export async function loadAgentModules(directory: string): Promise<Map<string, AgentModule>> {
  const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  const modules = new Map<string, AgentModule>();
  for (const name of names.sort()) {
    const path = join(directory, name, 'agent.ts');
    // The application of the harness file has no `agent.ts`; its folder has only `tools/` and `evals/`.
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
 * Loads the tools that the files of an application's `tools/` export, by tool name; none if the folder is missing.
 * @throws {ConfigError} that names the file, if it cannot be loaded, exports no tool, or repeats the name of a tool
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
 * Converts agents that a program passes as values, instead of files, to applications by name.
 * @throws {ConfigError} for an invalid application name, and for two agents or two tools with the same name
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
  checkNames({ ...source, name }, path, new Set());
  const tools = new Map<string, Tool>();
  return { definition: toDefinition({ ...source, name }, (tool) => addTool(tool, tools, path)), tools };
}

/**
 * Checks an agent at run time, because its author may not run a type checker. `path` is used in errors only.
 * @throws {ConfigError} for the first unknown member or wrong value
 */
function checkSource(agent: AgentSource, path: string): void {
  const issue = sourceSchema.safeParse(agent).error?.issues[0];
  if (!issue) return;
  const isUnknown = issue.code === 'unrecognized_keys';
  const place = toPlace(isUnknown ? [...issue.path, issue.keys[0] ?? ''] : issue.path);
  throw new ConfigError(`${path}: ${place}: ${isUnknown ? 'there is no such member' : issue.message}.`);
}

function checkNames({ name, subAgents = [] }: AgentSource & { name: string }, path: string, seen: Set<string>): void {
  if (seen.has(name)) throw new ConfigError(`${path}: the agent \`${name}\` is there twice.`);
  seen.add(name);
  for (const agent of subAgents) checkNames(agent, path, seen);
}

/** @param nameOf returns the name of a tool. Default: the agent has tools by name only. */
export function toDefinition(
  agent: AgentSource & { name: string },
  nameOf = (tool: string | Tool) => (typeof tool === 'string' ? tool : tool.name),
): AgentDefinition {
  const { subAgents, outputSchema, ...plain } = agent;
  return {
    description: '',
    instruction: '',
    skills: [],
    mcpServers: [],
    ...plain,
    tools: (agent.tools ?? []).map(nameOf),
    ...(outputSchema === undefined ? {} : { outputSchema: toOutputSchema(outputSchema) }),
    ...(subAgents === undefined ? {} : { subAgents: subAgents.map((each) => toDefinition(each, nameOf)) }),
  };
}

/** Returns the tool's name. Adds a tool object to the application's tools (`own`); a name is that of a built-in one. */
function addTool(tool: string | Tool, own: Map<string, Tool>, path: string): string {
  if (typeof tool === 'string') return tool;
  const existing = own.get(tool.name);
  if (existing && existing !== tool) throw new ConfigError(`${path}: two tools are named \`${tool.name}\`.`);
  own.set(tool.name, tool);
  return tool.name;
}

/** @throws {ConfigError} that names the file, and the line in the file where the error occurred */
export async function importFile(path: string): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError([`${path}: it cannot be loaded: ${reason}`, ...ownLines(error)].join('\n'), { cause: error });
  }
}

/** One turn of a conversation, for a custom metric. */
export interface MetricTurn {
  /** The text of the user's message. */
  question: string;
  /** The text of the agent's final answer. */
  answer: string;
  /** The calls of tools in order. */
  toolCalls: { name: string; args: JsonObject }[];
}

/** A custom evaluation metric. It scores each turn from 0 to 1; the score of an eval case is the mean of its turns. */
export interface OwnMetric {
  /** A sentence for people about what the metric measures. */
  description: string;
  /** Returns the score from 0 to 1; null if the turn cannot be scored. `expected` is undefined if the eval case has no expected conversation. */
  score(actual: MetricTurn, expected: MetricTurn | undefined): number | null | Promise<number | null>;
}

/** Removes private data from an eval case made from a user's session. The case has the JSON form of the API. */
export type Mask = (evalCase: JsonObject) => JsonObject | Promise<JsonObject>;

export interface EvalModule {
  /** Custom metrics by the name of their file. */
  metrics: ReadonlyMap<string, OwnMetric>;
  mask?: Mask;
}

/** Gives the export `metric` of an `evals/<metric>.ts` its type; returns its argument. */
export const defineMetric = (metric: OwnMetric): OwnMetric => metric;
/** Gives the export `mask` of a file in `evals/` its type; returns its argument. */
export const defineMask = (mask: Mask): Mask => mask;

const METRIC_NAME = /^[a-z][a-z0-9_]{0,63}$/;

/**
 * Loads the metrics and the mask of an application's folder `evals/`; none if the folder is missing.
 * @throws {ConfigError} that names the file, if a file cannot be loaded or exports neither a metric nor a mask
 */
export async function loadEvalModule(directory: string): Promise<EvalModule> {
  const folder = join(directory, 'evals');
  const files = await readdir(folder).catch(() => []);
  const metrics = new Map<string, OwnMetric>();
  let ownMask: Mask | undefined;
  for (const file of files.filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts')).sort()) {
    const path = join(folder, file);
    const { metric, mask } = (await importFile(path)) as { metric?: OwnMetric; mask?: Mask };
    const name = parse(file).name;
    if (metric === undefined && mask === undefined)
      throw new ConfigError(`${path}: it exports neither \`metric\` nor \`mask\`.`);
    if (metric !== undefined) {
      if (!METRIC_NAME.test(name)) throw new ConfigError(`${path}: \`${name}\` cannot be the name of a metric.`);
      if (typeof metric.score !== 'function' || typeof metric.description !== 'string')
        throw new ConfigError(`${path}: \`metric\` needs a description and a function \`score\`.`);
      metrics.set(name, metric);
    }
    if (mask === undefined) continue;
    if (typeof mask !== 'function') throw new ConfigError(`${path}: \`mask\` is no function.`);
    if (ownMask) throw new ConfigError(`${path}: the application has a \`mask\` already.`);
    ownMask = mask;
  }
  return { metrics, ...(ownMask ? { mask: ownMask } : {}) };
}
