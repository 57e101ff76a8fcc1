import { z } from 'zod';
import { base64Error } from './base64.ts';
import { INPUT_LIMITS } from './limits.ts';
import { textFormat } from './text-format.ts';

/**
 * Zod schemas for optional members of requests. They accept `null`, which pydantic's clients send for absent members.
 */

/**
 * Maximum characters of a member that only the request body limits: the highest `MAX_BODY_BYTES`. For the OpenAPI
 * document; no member is checked for it.
 */
export const BODY_CHARACTERS = 104_857_600;
export const BODY_VALUES = INPUT_LIMITS.requestBody.values;

export const bodyText = z.string().meta({ maxLength: BODY_CHARACTERS });
export const bodyList = <Element extends z.ZodType>(element: Element) =>
  z.array(element).meta({ maxItems: BODY_VALUES });

/** @param max maximum number of characters. Default: the limit of the request body. */
export const text = (meaning: string, max?: number) =>
  (max === undefined ? bodyText : z.string().max(max)).nullish().describe(meaning);
export const name = (meaning: string) => text(meaning, 1_024);
export const base64 = textFormat('byte', base64Error).meta({ maxLength: BODY_CHARACTERS });
export const bytes = (meaning: string) => base64.nullish().describe(meaning);
export const flag = (meaning: string) => z.boolean().nullish().describe(meaning);
export const number = (meaning: string) => z.number().nullish().describe(meaning);
export const texts = (meaning: string) => bodyList(bodyText).nullish().describe(meaning);
export const numbers = (meaning: string) => bodyList(z.number()).nullish().describe(meaning);
/** An open enumeration: the specification shows only the value `sample`, so every other string is accepted too. */
export const openEnum = (sample: string, meaning: string) =>
  text(`${meaning} Open enumeration; the specification shows the value ${sample}.`, 256);
export const optional = <Schema extends z.ZodType>(schema: Schema, meaning: string) =>
  schema.nullish().describe(meaning);
/**
 * Requires one of the named members in a body that replaces settings. Only `null` removes a value, because a member
 * that is left out may be misspelt.
 */
export const saysOneOf =
  <Name extends string>(...names: Name[]) =>
  (body: { [Key in Name]?: unknown }) =>
    names.some((each) => body[each] !== undefined);
export const looseObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.looseObject(shape).describe(meaning);
const keeping = new WeakSet<object>();
/** An object that others define: unknown members, e.g. of later versions, are stored and returned as data. */
export function keepingObject<Shape extends z.ZodRawShape>(meaning: string, shape: Shape) {
  const schema = z.looseObject(shape).describe(meaning);
  keeping.add(schema._zod.def);
  return schema;
}
export const isKeeping = (schema: z.core.$ZodType): boolean => keeping.has(schema._zod.def);
export const strictObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.strictObject(shape).describe(meaning);
export const object = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(z.strictObject(shape), meaning);
export const objects = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(bodyList(z.strictObject(shape)), meaning);
