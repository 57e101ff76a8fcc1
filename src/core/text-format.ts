import { z } from 'zod';

/** Returns how a text breaks a rule, as a sentence without a full stop; `undefined` if the text keeps the rule. */
export type FindError = (text: string) => string | undefined;

const formats = new Map<string, FindError>();

/** All rules for texts that are implemented as code, by the `format` that the OpenAPI document publishes. */
export const TEXT_FORMATS: ReadonlyMap<string, FindError> = formats;

/** Counts code points, as pydantic and JSON Schema do; JavaScript's `length` counts UTF-16 units. */
export const countCharacters = (text: string): number => Array.from(text).length;

/**
 * A text with a rule that JSON Schema cannot express. The OpenAPI document publishes the rule's name as `format`; zod,
 * the document's validator and the error messages all call `findError`.
 * @param text the schema with the text's other rules
 * @throws {Error} if another rule has the same name
 */
export function textFormat(name: string, findError: FindError, text: z.ZodString = z.string()): z.ZodString {
  if ((formats.get(name) ?? findError) !== findError) throw new Error(`Two rules have the format ${name}.`);
  formats.set(name, findError);
  const error = ({ input }: { input?: unknown }) => findError(String(input));
  return text.check(z.stringFormat(name, (sent) => findError(sent) === undefined, { error }));
}
