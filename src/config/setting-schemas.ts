import ipaddr from 'ipaddr.js';
import { z } from 'zod';

/** A setting for `docs/configuration.md`; `otherwise` is a default that the schema lacks. */
export const documented = <Schema extends z.ZodType>(
  schema: Schema,
  meaning: string,
  allowed = '',
  otherwise = '',
): Schema => schema.meta({ description: meaning, allowed, otherwise });

export const text = (meaning: string, otherwise?: string) =>
  documented(z.string().min(1).optional(), meaning, '', otherwise);
export const textOr = (fallback: string, meaning: string) => documented(z.string().min(1).default(fallback), meaning);
export const url = (meaning: string, otherwise?: string) =>
  documented(z.url('a URL').optional(), meaning, 'a URL', otherwise);
export const flag = (fallback: boolean, meaning: string) =>
  documented(
    z
      .enum(['true', 'false'], 'true or false')
      .transform((value) => value === 'true')
      .default(fallback),
    meaning,
    '`true`, `false`',
  );
/** Drops blanks and empty members. */
export const splitAtCommas = (value: string) =>
  value
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean);
export const list = (meaning: string, otherwise?: string) =>
  documented(z.string().transform(splitAtCommas).default([]), meaning, 'comma-separated', otherwise);

/** Removes the slash at the end; `undefined` for no http address, or one with credentials, query or fragment. */
function toPublicUrl(value: string): string | undefined {
  const address = URL.parse(value);
  if (!address || !/^https?:$/.test(address.protocol) || address.username || address.password) return undefined;
  return /[?#]/.test(value) ? undefined : address.href.replace(/\/+$/, '');
}
const PUBLIC_URL = 'an http or https URL, which may have a path';
export const publicUrl = (meaning: string, otherwise?: string) =>
  documented(z.string().transform(toPublicUrl).refine(Boolean, PUBLIC_URL).optional(), meaning, PUBLIC_URL, otherwise);

/** An origin as browsers send it, but not `null`, which every sandboxed page has. */
export const isOrigin = (value: string) => /^https?:/.test(value) && URL.parse(value)?.origin === value;
/** An IP address or a network (CIDR). */
export const isNetwork = (value: string) => ipaddr.isValid(value) || ipaddr.isValidCIDR(value);

/** Reads text. */
export const integer = ([minimum, maximum]: [number, number]) =>
  z
    .string()
    .regex(/^\d{1,12}$/, `a whole number from ${minimum} to ${maximum}`)
    .transform(Number)
    .refine((value) => value >= minimum && value <= maximum, `a whole number from ${minimum} to ${maximum}`);
export const rangeText = ([minimum, maximum]: [number, number]) =>
  `${minimum.toLocaleString('en')}–${maximum.toLocaleString('en')}`;
export const whole = (fallback: number, range: [number, number], meaning: string) =>
  documented(integer(range).default(fallback), meaning, rangeText(range));

const valuesText = (values: readonly string[]) => values.map((value) => `\`${value}\``).join(', ');
export const choice = <const Values extends readonly [string, ...string[]]>(
  values: Values,
  meaning: string,
  otherwise?: string,
) => documented(z.enum(values, values.join(', ')).optional(), meaning, valuesText(values), otherwise);
export const choiceOr = <const Values extends readonly [string, ...string[]]>(
  fallback: Values[number],
  values: Values,
  meaning: string,
) => documented(z.enum(values, values.join(', ')).default(fallback), meaning, valuesText(values));
