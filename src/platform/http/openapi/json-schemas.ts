import { z } from 'zod';
import type { Operation } from '../operation/operation.ts';

export type JsonSchema = Record<string, unknown>;

const TEMPORARY = 'operation-schema-';
const refTo = (name: string) => ({ $ref: `#/components/schemas/${name}` });

/**
 * Writes all schemas of bodies and answers at once, so that references stay; those without a name are written out.
 * @throws Error when an unnamed schema contains itself or is used inside another
 */
export function namedSchemas(
  operations: Operation[],
  components: Record<string, z.ZodType>,
): { named: Record<string, JsonSchema>; of: (schema: z.ZodType) => JsonSchema } {
  const registry = z.registry<{ id: string }>();
  const names = new Map<z.ZodType, string>();
  const add = (schema: z.ZodType | undefined, id: string) => {
    if (!schema || names.has(schema)) return;
    registry.add(schema, { id });
    names.set(schema, id);
  };
  for (const [name, schema] of Object.entries(components)) add(schema, name);
  for (const [index, { body, success }] of operations.entries()) {
    add(body?.schema, `${TEMPORARY}${index}-body`);
    add(success?.schema, `${TEMPORARY}${index}-success`);
  }
  const all = convert(registry);
  const schemaNamed = (name: string): JsonSchema => {
    const schema = all[name];
    if (!schema) throw new Error(`There is no schema ${name}.`);
    return schema;
  };
  return {
    named: Object.fromEntries(Object.keys(components).map((name) => [name, schemaNamed(name)])),
    of: (schema) => {
      const name = names.get(schema) ?? '';
      return name.startsWith(TEMPORARY) ? schemaNamed(name) : refTo(name);
    },
  };
}

const OPTIONS = {
  target: 'draft-2020-12',
  // 'output' would close every object with `additionalProperties: false`.
  io: 'input',
  unrepresentable: 'any',
  override: ({ jsonSchema }: { jsonSchema: JsonSchema }) => simplify(jsonSchema),
} as const;

/** The JSON Schema of a parameter: of what is sent, not of what the handler gets. */
export function toJsonSchema(schema: z.core.$ZodType): JsonSchema {
  const { $schema: _, ...converted } = z.toJSONSchema(schema, OPTIONS);
  return converted;
}

function convert(registry: z.core.$ZodRegistry<{ id: string }>): Record<string, JsonSchema> {
  const { schemas } = z.toJSONSchema(registry, { ...OPTIONS, uri: (id) => refTo(id).$ref });
  for (const [name, schema] of Object.entries(schemas)) {
    delete schema.$schema;
    delete schema.$id;
    const unnamed = JSON.stringify(schema).includes(`"#/components/schemas/${TEMPORARY}`);
    if (unnamed)
      throw new Error(`The schema ${name} refers to one without a name: name it in src/process/components.ts.`);
  }
  return schemas;
}

/** Takes off what zod adds and no reader needs, and writes "or null" as a type array, as OpenAPI 3.1 can. */
function simplify(schema: JsonSchema): void {
  delete schema.propertyNames;
  const isOpenObject = schema.properties !== undefined || schema.$ref !== undefined;
  if (isEmptySchema(schema.additionalProperties) && isOpenObject) delete schema.additionalProperties;
  joinNull(schema);
  if (![schema.type].flat().includes('integer')) return;
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
}

function joinNull(schema: JsonSchema): void {
  const [value, none] = Array.isArray(schema.anyOf) && schema.anyOf.length === 2 ? (schema.anyOf as JsonSchema[]) : [];
  if (value === undefined || none?.type !== 'null' || typeof value.type !== 'string' || 'enum' in value) return;
  if ('const' in value) return;
  delete schema.anyOf;
  Object.assign(schema, value, { ...schema, type: [value.type, 'null'] });
}

const isEmptySchema = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;
