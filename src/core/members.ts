import { z } from 'zod';
import { base64Error } from './base64.ts';

/** Optional members of the wire's objects with their OpenAPI sentences; pydantic clients send them as `null` too. */

/** A string. */
export const text = (meaning: string) => z.string().nullish().describe(meaning);
const base64 = z.stringFormat('byte', (sent) => base64Error(sent) === undefined);
/** Bytes as base64. The document says `format: byte`; the same code judges bodies by the document. */
export const bytes = (meaning: string) => base64.nullish().describe(meaning);
/** A boolean. */
export const flag = (meaning: string) => z.boolean().nullish().describe(meaning);
/** A number, fractions included. */
export const number = (meaning: string) => z.number().nullish().describe(meaning);
/** An array of strings. */
export const texts = (meaning: string) => z.array(z.string()).nullish().describe(meaning);
/** An array of numbers. */
export const numbers = (meaning: string) => z.array(z.number()).nullish().describe(meaning);
/** An open enumeration: the specification shows only `sample`; any other string is accepted and kept. */
export const openEnum = (sample: string, meaning: string) =>
  text(`${meaning} Open enumeration; the specification shows the value ${sample}.`);
/** An object or another value by its own schema. */
export const optional = <Schema extends z.ZodType>(schema: Schema, meaning: string) =>
  schema.nullish().describe(meaning);
/** An object of these members, and of others that are kept. */
export const object = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(z.looseObject(shape), meaning);
