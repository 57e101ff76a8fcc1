import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';

/** The form of an answer as an author writes it: a zod schema, whose refinements count too, or JSON Schema. */
export type WrittenSchema = z.ZodType | JsonObject;

/** The form of an agent's answer. */
export interface OutputSchema {
  /** JSON Schema, for the model. */
  schema: JsonObject;
  /** Returns the first problem of a value in words, `undefined` where it fits. */
  check(value: unknown, signal: AbortSignal): Promise<string | undefined>;
}

/** True for what {@link toOutputSchema} takes. */
export const isSchema = (value: unknown): value is WrittenSchema => typeof value === 'object' && value !== null;

const isZod = (schema: WrittenSchema): schema is z.ZodType => '_zod' in schema;

/** Returns the form that the agent's author wrote. @throws {Error} for a zod schema that JSON Schema cannot say */
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
  // The value itself is kept; zod knows no integers that a float does not hold.
  const { error } = await schema.safeParseAsync(mapExactIntegers(value, toRounded));
  const [first] = error?.issues ?? [];
  return first && `\`/${first.path.join('/')}\` ${first.message}`;
}

/** Returns the form that a request brings, which is checked where it can do no harm. */
export const toUntrustedSchema = (schema: JsonObject, sandbox: SchemaSandbox): OutputSchema => ({
  schema,
  check: (value, signal) => sandbox.check(schema, value, signal, 'output'),
});
