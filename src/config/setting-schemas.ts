import ipaddr from 'ipaddr.js';
import { z } from 'zod';

/** The values of settings, as `Config` has them. */
export type SettingValues<Settings> = {
  [Name in keyof Settings]: Settings[Name] extends z.ZodType ? z.output<Settings[Name]> : never;
};

/** Documents a setting in `docs/configuration.md`. `otherwise` describes a default that the schema does not have. */
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
export const splitAtCommas = (value: string) =>
  value
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean);
export const list = (meaning: string, otherwise?: string) =>
  documented(z.string().transform(splitAtCommas).default([]), meaning, 'comma-separated', otherwise);

/**
 * Removes a slash at the end of a URL. `undefined` for a URL with credentials, a query, a fragment, or a scheme other
 * than http and https.
 */
function toPublicUrl(value: string): string | undefined {
  const address = URL.parse(value);
  if (!address || !/^https?:$/.test(address.protocol) || address.username || address.password) return undefined;
  return /[?#]/.test(value) ? undefined : address.href.replace(/\/+$/, '');
}
const PUBLIC_URL = 'an http or https URL, which may have a path';
export const publicUrl = (meaning: string, otherwise?: string) =>
  documented(z.string().transform(toPublicUrl).refine(Boolean, PUBLIC_URL).optional(), meaning, PUBLIC_URL, otherwise);

/** True for an origin as browsers send it. `null` is not accepted, because every sandboxed page has that origin. */
export const isOrigin = (value: string) => /^https?:/.test(value) && URL.parse(value)?.origin === value;
/** True for an IP address or a network in CIDR notation. */
export const isNetwork = (value: string) => ipaddr.isValid(value) || ipaddr.isValidCIDR(value);

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
