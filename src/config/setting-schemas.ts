import ipaddr from 'ipaddr.js';
import { z } from 'zod';

/** A setting as `docs/configuration.md` shows it: meaning, allowed values, and the default that the schema lacks. */
export const documented = <Schema extends z.ZodType>(
  schema: Schema,
  meaning: string,
  allowed = '',
  otherwise = '',
): Schema => schema.meta({ description: meaning, allowed, otherwise });

/** Text that is not empty. */
export const text = (meaning: string, otherwise?: string) =>
  documented(z.string().min(1).optional(), meaning, '', otherwise);
/** Text with a default. */
export const textOr = (fallback: string, meaning: string) => documented(z.string().min(1).default(fallback), meaning);
/** An address. */
export const url = (meaning: string, otherwise?: string) =>
  documented(z.url('a URL').optional(), meaning, 'a URL', otherwise);
/** Yes or no. */
export const flag = (fallback: boolean, meaning: string) =>
  documented(
    z
      .enum(['true', 'false'], 'true or false')
      .transform((value) => value === 'true')
      .default(fallback),
    meaning,
    '`true`, `false`',
  );
/** The members of a list, without blanks. */
export const splitAtCommas = (value: string) =>
  value
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean);
/** Texts with commas between them. */
export const list = (meaning: string, otherwise?: string) =>
  documented(z.string().transform(splitAtCommas).default([]), meaning, 'comma-separated', otherwise);

/** Returns an address that clients reach, without a slash at its end; `undefined` for what is none, or says more. */
function toPublicUrl(value: string): string | undefined {
  const found = URL.parse(value);
  if (!found || !/^https?:$/.test(found.protocol) || found.username || found.password) return undefined;
  return /[?#]/.test(value) ? undefined : found.href.replace(/\/+$/, '');
}
const PUBLIC_URL = 'an http or https URL, which may have a path';
/** An address that clients reach. */
export const publicUrl = (meaning: string, otherwise?: string) =>
  documented(z.string().transform(toPublicUrl).refine(Boolean, PUBLIC_URL).optional(), meaning, PUBLIC_URL, otherwise);

/** True for an origin as browsers send it; `null` is none: every sandboxed page has it. */
export const isOrigin = (value: string) => /^https?:/.test(value) && URL.parse(value)?.origin === value;
/** True for an IP address or a network (CIDR). */
export const isNetwork = (value: string) => ipaddr.isValid(value) || ipaddr.isValidCIDR(value);

/** A whole number in a range, as text. */
export const integer = ([minimum, maximum]: [number, number]) =>
  z
    .string()
    .regex(/^\d{1,12}$/, `a whole number from ${minimum} to ${maximum}`)
    .transform(Number)
    .refine((value) => value >= minimum && value <= maximum, `a whole number from ${minimum} to ${maximum}`);
/** A range as the page of settings shows it. */
export const rangeText = ([minimum, maximum]: [number, number]) =>
  `${minimum.toLocaleString('en')}–${maximum.toLocaleString('en')}`;
/** A whole number with a default. */
export const whole = (fallback: number, range: [number, number], meaning: string) =>
  documented(integer(range).default(fallback), meaning, rangeText(range));

const valuesText = (values: readonly string[]) => values.map((value) => `\`${value}\``).join(', ');
/** One of some words. */
export const choice = <const Values extends readonly [string, ...string[]]>(
  values: Values,
  meaning: string,
  otherwise?: string,
) => documented(z.enum(values, values.join(', ')).optional(), meaning, valuesText(values), otherwise);
/** One of some words, with a default. */
export const choiceOr = <const Values extends readonly [string, ...string[]]>(
  fallback: Values[number],
  values: Values,
  meaning: string,
) => documented(z.enum(values, values.join(', ')).default(fallback), meaning, valuesText(values));
