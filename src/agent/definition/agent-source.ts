import { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import { MODEL_SOURCES } from '../providers/index.ts';
import type {
  AgentModel,
  AgentSource,
  CompactionSettings,
  McpServer,
  MemorySettings,
  ModelTarget,
  OpenApiSource,
} from './agent.ts';
import { isCheck } from './guardrail.ts';
import { isOneServer, ONE_SERVER } from './harness-schema.ts';
import type { Hooks } from './hooks.ts';
import { EFFORTS, type Model, type Sampling } from './model.ts';
import { isSchema, type WrittenSchema } from './output-schema.ts';
import { EFFECTS, type Tool, type ToolLimits } from './tool.ts';

/** @throws {ConfigError} for a tool that is both transactional and long-running */
export function isTool(value: unknown): value is Tool {
  const tool = value as Partial<Tool> | null | undefined;
  if (typeof tool !== 'object' || typeof tool?.run !== 'function' || !('name' in tool)) return false;
  if (tool.transactional && tool.longRunning)
    throw new ConfigError(`\`${tool.name}\` is transactional, so its answer cannot come later (longRunning).`);
  return true;
}

const name = z.string().min(1);
const names = z.array(name).optional();
const text = z.string().optional();
const count = z.int().min(1).optional();
const number = z.number().optional();
const userOauth = z.strictObject({ clientId: text, clientSecret: text, issuer: z.url().optional(), scope: text });
const limits = z.strictObject({
  timeoutMs: count,
  retries: z.int().min(0).max(10).optional(),
  concurrency: count,
  maxResultCharacters: count,
} satisfies Record<keyof ToolLimits, z.ZodType>);
const serverMembers = z.strictObject({
  name,
  url: z.url().optional(),
  command: text,
  args: z.array(z.string()).optional(),
  env: z.record(z.string(), z.string()).optional(),
  transport: z.enum(['streamable-http', 'sse']).optional(),
  headers: z.record(z.string(), z.string()).optional(),
  resources: z.boolean().optional(),
  prompts: z.boolean().optional(),
  callTimeoutMs: z.int().min(1).max(3_600_000).optional(),
  connectTimeoutMs: z.int().min(1).max(300_000).optional(),
  onFailure: z.enum(['fail', 'skip']).optional(),
  oauth: z.strictObject({ clientId: name, clientSecret: name, issuer: z.url(), scope: text }).optional(),
  userOauth: userOauth
    .refine(({ clientId, issuer }) => clientId === undefined || issuer !== undefined, 'a client with its issuer')
    .optional(),
} satisfies Record<keyof McpServer, z.ZodType>);
const servers = serverMembers.refine(isOneServer, ONE_SERVER);

const HOOKS = ['beforeAgent', 'afterAgent', 'beforeModel', 'afterModel', 'beforeTool', 'afterTool', 'onError'];
const NO_HOOKS = `an object with a name and functions among ${HOOKS.join(', ')}`;
const OPTIONS = { name: 'string', timeoutMs: 'number', passesText: 'boolean', guard: 'object' };
const types: Record<string, string> = { ...OPTIONS, ...Object.fromEntries(HOOKS.map((hook) => [hook, 'function'])) };

const isHooks = (value: unknown): value is Hooks =>
  typeof value === 'object' &&
  value !== null &&
  'name' in value &&
  Object.entries(value).every(([key, member]) => typeof member === types[key] || member === undefined);

const isModel = (value: unknown): value is Model => typeof (value as Model | null)?.generate === 'function';
const target = {
  provider: z
    .union([z.enum(MODEL_SOURCES), z.custom<Model>(isModel)], `a model, or ${MODEL_SOURCES.join(', ')}`)
    .optional(),
  name,
  baseUrl: z.url().optional(),
  apiKey: text,
} satisfies Record<keyof ModelTarget, z.ZodType>;

const REMEMBER = '`always`, patterns, a judge, or a function';

const members = {
  description: text,
  kind: z.enum(['llm', 'sequential', 'parallel', 'loop']).optional(),
  instruction: text,
  modelName: text,
  model: z
    .strictObject({
      ...target,
      fallbacks: z.array(z.strictObject(target)).optional(),
      firstTokenMs: count,
    } satisfies Record<keyof AgentModel, z.ZodType>)
    .optional(),
  tools: z.array(z.union([name, z.custom<Tool>(isTool)], 'the name of a tool, or one of `defineTool`')).optional(),
  skills: names,
  mcpServers: z.array(servers).optional(),
  confirmTools: names,
  askWhenUnknown: names,
  toolEffects: z.record(z.string(), z.enum(EFFECTS, 'none, idempotent or once')).optional(),
  toolLimits: z.record(z.string(), limits).optional(),
  openapi: z
    .array(
      z.strictObject({
        name,
        document: z.union([name, z.record(z.string(), z.unknown())], 'an OpenAPI document, or the path of one'),
        operations: z.array(name),
        baseUrl: z.url().optional(),
        headers: z.record(z.string(), z.string()).optional(),
        userOauth: userOauth.extend({ issuer: z.url() }).optional(),
      } satisfies Record<keyof OpenApiSource, z.ZodType>),
    )
    .optional(),
  sampling: z
    .strictObject({
      temperature: number,
      topP: number,
      maxOutputTokens: count,
      presencePenalty: number,
      frequencyPenalty: number,
      seed: z.int().optional(),
      stopSequences: names,
      reasoningEffort: z.enum(EFFORTS).optional(),
      promptCaching: z.boolean().optional(),
    } satisfies Record<keyof Sampling, z.ZodType>)
    .optional(),
  asTool: z.boolean().optional(),
  remote: z
    .strictObject({
      url: z.url('a URL'),
      headers: z.record(z.string(), z.string()).optional(),
      keys: z.url('a URL').optional(),
      userOauth: userOauth.extend({ issuer: z.url() }).optional(),
    })
    .optional(),
  outputKey: text,
  hooks: z.custom<Hooks>(isHooks, NO_HOOKS).optional(),
  plugins: z.array(z.custom<Hooks>(isHooks, NO_HOOKS)).optional(),
  outputSchema: z.custom<WrittenSchema>(isSchema, 'a zod schema, or JSON Schema').optional(),
  maxIterations: count,
  maxLlmCalls: count,
  compaction: z
    .strictObject({ tokenBudget: z.int().min(1), keepInvocations: count } satisfies Record<
      keyof CompactionSettings,
      z.ZodType
    >)
    .optional(),
  memory: z
    .strictObject({
      embeddings: z.strictObject({ ...target, dimensions: count }).optional(),
      remember: z.custom((value) => value === 'always' || isCheck(value), REMEMBER).optional(),
    } satisfies Record<keyof MemorySettings, z.ZodType>)
    .optional(),
} satisfies Record<Exclude<keyof AgentSource, 'subAgents'>, z.ZodType>;

const subAgent: z.ZodType = z.lazy(() => z.strictObject({ ...members, name, subAgents }));
const subAgents = z.array(subAgent).optional();
const source = z.strictObject({ ...members, subAgents });

/**
 * Checks an agent at run time, because its author may not run a type checker. `path` is used in errors only.
 * @throws {ConfigError} for the first unknown member or wrong value
 */
export function checkSource(agent: AgentSource, path: string): void {
  const issue = source.safeParse(agent).error?.issues[0];
  if (!issue) return;
  const steps = issue.code === 'unrecognized_keys' ? [...issue.path, issue.keys[0] ?? ''] : issue.path;
  const place = steps.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('');
  const what = issue.code === 'unrecognized_keys' ? 'there is no such member' : issue.message;
  throw new ConfigError(`${path}: ${place.replace(/^\./, '')}: ${what}.`);
}
