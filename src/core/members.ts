import { z } from 'zod';
import { base64Error } from './base64.ts';
import { INPUT_LIMITS } from './limits.ts';
import { textFormat } from './text-format.ts';

/**
 * Zod schemas for optional members of JSON objects in requests, with their OpenAPI descriptions. They accept `null`,
 * because clients with pydantic send absent members as `null`.
 */

/**
 * Limits for the OpenAPI document of members that only the request body limits: the largest possible `MAX_BODY_BYTES`,
 * and the maximum number of values in a body. They are documented, but not checked again for each member.
 */
export const BODY_CHARACTERS = 104_857_600;
export const BODY_VALUES = INPUT_LIMITS.requestBody.values;

export const bodyText = z.string().meta({ maxLength: BODY_CHARACTERS });
export const bodyList = <Element extends z.ZodType>(element: Element) =>
  z.array(element).meta({ maxItems: BODY_VALUES });

/** A text. @param max maximum number of characters. Default: the limit of the body. */
export const text = (meaning: string, max?: number) =>
  (max === undefined ? bodyText : z.string().max(max)).nullish().describe(meaning);
export const name = (meaning: string) => text(meaning, 1_024);
/** A base64 text, limited only by the request body. */
export const base64 = textFormat('byte', base64Error).meta({ maxLength: BODY_CHARACTERS });
/** An optional member with bytes as base64. */
export const bytes = (meaning: string) => base64.nullish().describe(meaning);
export const flag = (meaning: string) => z.boolean().nullish().describe(meaning);
/** An optional number, with or without a fraction. */
export const number = (meaning: string) => z.number().nullish().describe(meaning);
export const texts = (meaning: string) => bodyList(bodyText).nullish().describe(meaning);
export const numbers = (meaning: string) => bodyList(z.number()).nullish().describe(meaning);
/**
 * An open enumeration. The specification shows only the value `sample`, so every other string is accepted and stored
 * too.
 */
export const openEnum = (sample: string, meaning: string) =>
  text(`${meaning} Open enumeration; the specification shows the value ${sample}.`, 256);
export const optional = <Schema extends z.ZodType>(schema: Schema, meaning: string) =>
  schema.nullish().describe(meaning);
/**
 * Returns a rule for the body of a request that replaces settings: the body has at least one of the named members. A
 * value is removed by `null`, not by leaving its member out, because the member may only be misspelt.
 */
export const saysOneOf =
  <Name extends string>(...names: Name[]) =>
  (body: { [Key in Name]?: unknown }) =>
    names.some((each) => body[each] !== undefined);
/** An object schema that accepts and keeps unknown members. */
export const looseObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.looseObject(shape).describe(meaning);
const keeping = new WeakSet<object>();
/**
 * An object schema of a format that others define. Unknown members, e.g. of later versions of the format, are stored
 * and returned as data; they do not count as mistakes in a request.
 */
export function keepingObject<Shape extends z.ZodRawShape>(meaning: string, shape: Shape) {
  const schema = z.looseObject(shape).describe(meaning);
  keeping.add(schema._zod.def);
  return schema;
}
export const isKeeping = (schema: z.core.$ZodType): boolean => keeping.has(schema._zod.def);
/** An object schema that refuses unknown members. */
export const strictObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.strictObject(shape).describe(meaning);
export const object = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(z.strictObject(shape), meaning);
export const objects = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(bodyList(z.strictObject(shape)), meaning);
