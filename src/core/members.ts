import { z } from 'zod';
import { base64Error } from './base64.ts';
import { INPUT_LIMITS } from './limits.ts';
import { textFormat } from './text-format.ts';

/** Optional members of the wire's objects with their OpenAPI sentences; pydantic clients send them as `null` too. */

/**
 * Bounds of members that only their body bounds: the maximum of `MAX_BODY_BYTES`, and the values of a body. They are in
 * the document; nothing checks them again.
 */
export const BODY_CHARACTERS = 104_857_600;
export const BODY_VALUES = INPUT_LIMITS.requestBody.values;

export const bodyText = z.string().meta({ maxLength: BODY_CHARACTERS });
export const bodyList = <Element extends z.ZodType>(element: Element) =>
  z.array(element).meta({ maxItems: BODY_VALUES });

/** @param max characters [those of the body] */
export const text = (meaning: string, max?: number) =>
  (max === undefined ? bodyText : z.string().max(max)).nullish().describe(meaning);
export const name = (meaning: string) => text(meaning, 1_024);
/** Bytes as base64, as long as their body may be. */
export const base64 = textFormat('byte', base64Error).meta({ maxLength: BODY_CHARACTERS });
/** Bytes as base64. */
export const bytes = (meaning: string) => base64.nullish().describe(meaning);
export const flag = (meaning: string) => z.boolean().nullish().describe(meaning);
/** Fractions included. */
export const number = (meaning: string) => z.number().nullish().describe(meaning);
export const texts = (meaning: string) => bodyList(bodyText).nullish().describe(meaning);
export const numbers = (meaning: string) => bodyList(z.number()).nullish().describe(meaning);
/** An open enumeration: the specification shows only `sample`; any other string is accepted and kept. */
export const openEnum = (sample: string, meaning: string) =>
  text(`${meaning} Open enumeration; the specification shows the value ${sample}.`, 256);
export const optional = <Schema extends z.ZodType>(schema: Schema, meaning: string) =>
  schema.nullish().describe(meaning);
/**
 * A rule for the body of a replacement: it has at least one of these members. Null removes a value, and an absent member
 * does not, because it may only be misspelt.
 */
export const saysOneOf =
  <Name extends string>(...names: Name[]) =>
  (body: { [Key in Name]?: unknown }) =>
    names.some((each) => body[each] !== undefined);
/** Further members are kept. */
export const looseObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.looseObject(shape).describe(meaning);
const keeping = new WeakSet<object>();
/**
 * An object of someone else's format. Further members, of its later versions, are kept and given back as data, so they
 * are no mistake of a request.
 */
export function keepingObject<Shape extends z.ZodRawShape>(meaning: string, shape: Shape) {
  const schema = z.looseObject(shape).describe(meaning);
  keeping.add(schema._zod.def);
  return schema;
}
export const isKeeping = (schema: z.core.$ZodType): boolean => keeping.has(schema._zod.def);
/** Further members are refused. */
export const strictObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.strictObject(shape).describe(meaning);
export const object = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(z.strictObject(shape), meaning);
export const objects = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(bodyList(z.strictObject(shape)), meaning);
