import { HARNESS_APP } from '../core/names.ts';
import { builtInTools } from '../agent/tools/registry.ts';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';

/** Returns an application with a prompt that it answers by a tool of its own, also with the offline model. */
export function findExample(agents: ReadonlyMap<string, HostedAgent>): { app: string; prompt: string } {
  const builtIn = builtInTools();
  for (const [app, agent] of agents) {
    const own = agent.describe().tools.find(({ name }) => !builtIn.has(name));
    if (own) return { app, prompt: `${own.name} ${JSON.stringify(toExample(own.parameters))}` };
  }
  return { app: HARNESS_APP, prompt: 'What is 17 * 23? Use the calculator.' };
}

/** The members of a JSON Schema that an example is made from. */
interface Schema extends Partial<Record<'default' | 'const' | 'type', unknown>> {
  examples?: unknown[];
  enum?: unknown[];
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minItems?: number;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
}

/** Returns a value that fits a schema without patterns and formats; of an object the required members. */
export function toExample(schema: Schema): unknown {
  const given = schema.default ?? schema.const ?? schema.examples?.[0] ?? schema.enum?.[0];
  if (given !== undefined) return given;
  const { type, anyOf, required = [], properties = {} } = schema;
  if (anyOf?.[0]) return toExample(anyOf[0]);
  if (type === 'string') return 'tea'.padEnd(schema.minLength ?? 0, '.').slice(0, schema.maxLength);
  if (type === 'integer' || type === 'number') return Math.max(schema.minimum ?? 1, 1);
  if (type === 'boolean') return true;
  if (type === 'array') return Array.from({ length: schema.minItems ?? 0 }, () => toExample(schema.items ?? {}));
  return Object.fromEntries(required.map((name) => [name, toExample(properties[name] ?? {})]));
}
