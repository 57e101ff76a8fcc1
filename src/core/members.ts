import { z } from 'zod';
import { base64Error } from './base64.ts';
import { INPUT_LIMITS } from './limits.ts';
import { textFormat } from './text-format.ts';

/** Optional members of the wire's objects with their OpenAPI sentences; pydantic clients send them as `null` too. */

/**
 * Bounds of what only its body bounds: the top of `MAX_BODY_BYTES`, and the values of a body. They stand in the
 * document; nothing checks them again.
 */
export const BODY_CHARACTERS = 104_857_600;
export const BODY_VALUES = INPUT_LIMITS.requestBody.values;

/** Content: a text as long as its body may be. */
export const bodyText = z.string().meta({ maxLength: BODY_CHARACTERS });
/** A list of as many elements as its body may have. */
export const bodyList = <Element extends z.ZodType>(element: Element) =>
  z.array(element).meta({ maxItems: BODY_VALUES });

/** A string. @param max its characters [those of the body] */
export const text = (meaning: string, max?: number) =>
  (max === undefined ? bodyText : z.string().max(max)).nullish().describe(meaning);
/** A string that names something. */
export const name = (meaning: string) => text(meaning, 1_024);
/** Bytes as base64, as long as their body may be. */
export const base64 = textFormat('byte', base64Error).meta({ maxLength: BODY_CHARACTERS });
/** Bytes as base64. */
export const bytes = (meaning: string) => base64.nullish().describe(meaning);
/** A boolean. */
export const flag = (meaning: string) => z.boolean().nullish().describe(meaning);
/** A number, fractions included. */
export const number = (meaning: string) => z.number().nullish().describe(meaning);
/** An array of strings. */
export const texts = (meaning: string) => bodyList(bodyText).nullish().describe(meaning);
/** An array of numbers. */
export const numbers = (meaning: string) => bodyList(z.number()).nullish().describe(meaning);
/** An open enumeration: the specification shows only `sample`; any other string is accepted and kept. */
export const openEnum = (sample: string, meaning: string) =>
  text(`${meaning} Open enumeration; the specification shows the value ${sample}.`, 256);
/** An object or another value by its own schema. */
export const optional = <Schema extends z.ZodType>(schema: Schema, meaning: string) =>
  schema.nullish().describe(meaning);
/**
 * A rule of a body that takes the place of something: at least one of these members is there. What is to go is said by
 * null, never by what was left out or is misspelt.
 */
export const saysOneOf =
  <Name extends string>(...names: Name[]) =>
  (body: { [Key in Name]?: unknown }) =>
    names.some((each) => body[each] !== undefined);
/** An object with these members; further ones are kept. */
export const looseObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.looseObject(shape).describe(meaning);
/** The definitions of objects whose further members are data. */
const keeping = new WeakSet<object>();
/**
 * An object of another's format, with these members; further ones, of later versions of it, are data: they are kept and
 * given back, so they are no mistake of a request.
 */
export function keepingObject<Shape extends z.ZodRawShape>(meaning: string, shape: Shape) {
  const schema = z.looseObject(shape).describe(meaning);
  keeping.add(schema._zod.def);
  return schema;
}
/** True for an object of {@link keepingObject}. */
export const isKeeping = (schema: z.core.$ZodType): boolean => keeping.has(schema._zod.def);
/** An object with these members and no others. */
export const strictObject = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  z.strictObject(shape).describe(meaning);
/** An object of these members. */
export const object = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(z.strictObject(shape), meaning);
/** An array of such objects. */
export const objects = <Shape extends z.ZodRawShape>(meaning: string, shape: Shape) =>
  optional(bodyList(z.strictObject(shape)), meaning);
