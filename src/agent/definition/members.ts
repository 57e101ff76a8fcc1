import { z } from 'zod';

/** Zod schemas from which the agent's schema is made. */

/**
 * The type of an object with the members of a shape. Public types are made of a shape and not of its schema, because
 * only a shape's declaration file has the comments, which editors show.
 */
export type Of<Shape extends z.ZodRawShape> = z.output<z.ZodObject<Shape>>;

/**
 * A member that may be left out. `undefined` passes too, as agents in code write it; the type does not say so, because
 * then every reader would have to tell a member that is left out from one that is `undefined`.
 */
export const optional = <Schema extends z.ZodType>(schema: Schema) =>
  schema.optional() as unknown as z.ZodExactOptional<Schema>;

export const positive = z.int('a whole number').min(1, 'a whole number from 1');
export const name = z.string().min(1);
export const names = z.array(name);
export const urlText = z.url('a URL');
export const headers = z.record(z.string(), z.string());

/** The path of a member as errors have it: `subAgents[0].name`. */
export const toPlace = (path: PropertyKey[]): string =>
  path
    .map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`))
    .join('')
    .replace(/^\./, '');
