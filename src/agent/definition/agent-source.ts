import { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import type { AgentSource, CompactionSettings, McpServer } from './agent.ts';
import type { Sampling } from './model.ts';
import { EFFECTS, type Tool } from './tool.ts';

/** True for what `defineTool` makes. @throws {ConfigError} for a transactional one that others answer later */
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
const servers = z.strictObject({
  name,
  url: z.url(),
  transport: z.enum(['streamable-http', 'sse']).optional(),
  headers: z.record(z.string(), z.string()).optional(),
  resources: z.boolean().optional(),
  prompts: z.boolean().optional(),
  oauth: z.strictObject({ clientId: name, clientSecret: name, issuer: z.url(), scope: text }).optional(),
} satisfies Record<keyof McpServer, z.ZodType>);

const members = {
  description: text,
  kind: z.enum(['llm', 'sequential', 'parallel', 'loop']).optional(),
  instruction: text,
  modelName: text,
  tools: z.array(z.union([name, z.custom<Tool>(isTool)], 'the name of a tool, or one of `defineTool`')).optional(),
  skills: names,
  mcpServers: z.array(servers).optional(),
  confirmTools: names,
  askWhenUnknown: names,
  toolEffects: z.record(z.string(), z.enum(EFFECTS, 'none, idempotent or once')).optional(),
  sampling: z
    .strictObject({
      temperature: number,
      topP: number,
      maxOutputTokens: count,
      presencePenalty: number,
      frequencyPenalty: number,
    } satisfies Record<keyof Sampling, z.ZodType>)
    .optional(),
  asTool: z.boolean().optional(),
  outputKey: text,
  maxIterations: count,
  maxLlmCalls: count,
  compaction: z
    .strictObject({ tokenBudget: z.int().min(1), keepInvocations: count } satisfies Record<
      keyof CompactionSettings,
      z.ZodType
    >)
    .optional(),
} satisfies Record<Exclude<keyof AgentSource, 'subAgents'>, z.ZodType>;

const subAgent: z.ZodType = z.lazy(() => z.strictObject({ ...members, name, subAgents }));
const subAgents = z.array(subAgent).optional();
const source = z.strictObject({ ...members, subAgents });

/**
 * Checks an agent in code, whose author may not run a type checker; `path` names it in errors.
 * @throws {ConfigError} for the first member that does not exist or has a wrong value.
 */
export function checkSource(agent: AgentSource, path: string): void {
  const issue = source.safeParse(agent).error?.issues[0];
  if (!issue) return;
  const steps = issue.code === 'unrecognized_keys' ? [...issue.path, issue.keys[0] ?? ''] : issue.path;
  const place = steps.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`)).join('');
  const what = issue.code === 'unrecognized_keys' ? 'there is no such member' : issue.message;
  throw new ConfigError(`${path}: ${place.replace(/^\./, '')}: ${what}.`);
}
