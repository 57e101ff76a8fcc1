import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';

/** Output schema as the agent's author writes it: a zod schema, which may have refinements, or JSON Schema. */
export type WrittenSchema = z.ZodType | JsonObject;

/** The schema of an agent's answer, with its check. */
export interface OutputSchema {
  /** The JSON Schema that the model receives. */
  schema: JsonObject;
  /** Checks a value; returns a message about the first violation, if there is one. */
  check(value: unknown, signal: AbortSignal): Promise<string | undefined>;
}

export const isSchema = (value: unknown): value is WrittenSchema => typeof value === 'object' && value !== null;

const isZod = (schema: WrittenSchema): schema is z.ZodType => '_zod' in schema;

/** @throws {Error} for a zod schema that JSON Schema cannot express */
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
  // Zod checks a copy in which integers of more than 53 bits are rounded, because zod does not support them.
  const { error } = await schema.safeParseAsync(mapExactIntegers(value, toRounded));
  const [first] = error?.issues ?? [];
  return first && `\`/${first.path.join('/')}\` ${first.message}`;
}

/** An output schema that came with a request. It is untrusted, so values are checked in the sandbox. */
export const toUntrustedSchema = (schema: JsonObject, sandbox: SchemaSandbox): OutputSchema => ({
  schema,
  check: (value, signal) => sandbox.check(schema, value, signal, 'output'),
});
