import { z } from 'zod';

/** Returns why a text breaks a rule, a sentence without a full stop; `undefined` if it keeps it. */
export type FindError = (text: string) => string | undefined;

const formats = new Map<string, FindError>();

/** The rules of code on texts, by the `format` that the document publishes for each. */
export const TEXT_FORMATS: ReadonlyMap<string, FindError> = formats;

/**
 * A text with a rule that JSON Schema cannot express. The document publishes the name of the rule as `format`; zod, the
 * OpenAPI validator and the wording of refusals call the same function.
 * @param text the text's other rules
 * @throws Error for a name that another rule has
 */
export function textFormat(name: string, findError: FindError, text: z.ZodString = z.string()): z.ZodString {
  if ((formats.get(name) ?? findError) !== findError) throw new Error(`Two rules have the format ${name}.`);
  formats.set(name, findError);
  const error = ({ input }: { input?: unknown }) => findError(String(input));
  return text.check(z.stringFormat(name, (sent) => findError(sent) === undefined, { error }));
}
