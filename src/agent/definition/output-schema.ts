import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';

/** The form of an answer as an author writes it: a zod schema, including its refinements, or JSON Schema. */
export type WrittenSchema = z.ZodType | JsonObject;

export interface OutputSchema {
  /** JSON Schema, for the model. */
  schema: JsonObject;
  /** Returns the first violation as a sentence; `undefined` if the value fits. */
  check(value: unknown, signal: AbortSignal): Promise<string | undefined>;
}

export const isSchema = (value: unknown): value is WrittenSchema => typeof value === 'object' && value !== null;

const isZod = (schema: WrittenSchema): schema is z.ZodType => '_zod' in schema;

/** @throws {Error} for a zod schema without a JSON Schema form */
export function toOutputSchema(written: WrittenSchema): OutputSchema {
  if (isZod(written)) {
    const { $schema: _, ...schema } = z.toJSONSchema(written);
    return { schema, check: (value) => zodProblem(written, value) };
  }
  const check = async (value: unknown) => {
    const { schemaError } = await import('../arguments/check-arguments.ts');
    return schemaError(written, value, 'output');
  };
  return { schema: written, check };
}

async function zodProblem(schema: z.ZodType, value: unknown): Promise<string | undefined> {
  // Zod checks a rounded copy, because it has no integers beyond a float's precision. The value itself stays exact.
  const { error } = await schema.safeParseAsync(mapExactIntegers(value, toRounded));
  const [first] = error?.issues ?? [];
  return first && `\`/${first.path.join('/')}\` ${first.message}`;
}

/** Returns the form that a request brings, checked in the sandbox. */
export const toUntrustedSchema = (schema: JsonObject, sandbox: SchemaSandbox): OutputSchema => ({
  schema,
  check: (value, signal) => sandbox.check(schema, value, signal, 'output'),
});
