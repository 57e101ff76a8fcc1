import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { cloneJson, hasExactIntegers, isExactInteger } from '../../core/exact-json.ts';

/** Zod types that JSON Schema cannot express. `bigint` is not among them, because its JSON Schema is `integer`. */
const WITHOUT_SCHEMA = new Set([
  'symbol',
  'undefined',
  'void',
  'date',
  'map',
  'set',
  'transform',
  'nan',
  'function',
  'custom',
]);

/** @throws {Error} for a zod schema that JSON Schema cannot express */
export const toJsonSchema = (parameters: z.ZodObject): JsonObject =>
  z.toJSONSchema(parameters, {
    io: 'input',
    target: 'draft-7',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      const { type } = zodSchema._zod.def;
      if (WITHOUT_SCHEMA.has(type)) throw new Error(`JSON Schema cannot say z.${type}().`);
      if (type === 'bigint') jsonSchema.type = 'integer';
    },
  });

export const TOO_MANY_DIGITS =
  'The tool cannot hold a number of that many digits. Pass it as a text if its schema allows that.';

/**
 * Parses the arguments of a tool call with zod. An integer becomes a `bigint` if the schema says so.
 * @throws {Error} with a message for the model, if an integer would have to be rounded
 */
export async function parseTyped<Parameters extends z.ZodObject>(
  parameters: Parameters,
  args: JsonObject,
): Promise<z.output<Parameters>> {
  const first = await parameters.safeParseAsync(args);
  if (first.success) return first.data;
  const bigints = first.error.issues.filter((issue) => issue.code === 'invalid_type' && issue.expected === 'bigint');
  const copy = bigints.length === 0 ? args : cloneJson(args);
  for (const { path } of bigints) toBigInt(copy, path);
  const second = await parameters.safeParseAsync(copy);
  if (second.success) return second.data;
  if (second.error.issues.some(({ path }) => isExactInteger(valueAt(copy, path)))) throw new Error(TOO_MANY_DIGITS);
  throw second.error;
}

function toBigInt(args: JsonObject, path: PropertyKey[]): void {
  const holder = valueAt(args, path.slice(0, -1)) as Record<PropertyKey, unknown> | undefined;
  const name = path.at(-1);
  if (holder === undefined || name === undefined) return;
  const value = holder[name];
  if (isExactInteger(value)) holder[name] = BigInt(value.rawJSON);
  else if (Number.isInteger(value)) holder[name] = BigInt(value as number);
}

const valueAt = (value: unknown, path: PropertyKey[]): unknown =>
  path.reduce<unknown>(
    (node, name) => (typeof node === 'object' && node !== null ? Reflect.get(node, name) : undefined),
    value,
  );

/** True if a tool failed because it computed with an integer of more than 53 bits, which it gets as an object. */
export const isExactIntegerError = (error: unknown, args: JsonObject): boolean =>
  error instanceof TypeError && /primitive|BigInt/.test(error.message) && hasExactIntegers(args);
