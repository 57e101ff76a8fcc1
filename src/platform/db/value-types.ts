import { type CustomTypesConfig, types } from 'pg';
import { LargeText } from './row-bytes.ts';

const { DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ } = types.builtins;
const TEXT: number = types.builtins.TEXT;
/** Arrays of `numeric`, `timestamptz`, `timestamp`, `interval` and `date`. */
const ARRAYS = [1231, 1185, 1115, 1187, 1182];
const AS_TEXT = new Set<number>([DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ, ...ARRAYS]);
const asItIs = (text: unknown) => text;

/** How values of rows are read: as drizzle's session does it, which leaves times to those who use them. */
export const WITH_TIMES_AS_TEXT: CustomTypesConfig = {
  getTypeParser: (id: number, format?: 'text' | 'binary') =>
    AS_TEXT.has(id) ? asItIs : types.getTypeParser(id, format),
};

/** As {@link WITH_TIMES_AS_TEXT}, for a statement whose large texts come as {@link LargeText} where they may. */
export const WITH_LARGE_TEXT: CustomTypesConfig = {
  getTypeParser: (id: number, format?: 'text' | 'binary') => {
    if (id === TEXT) return asItIs;
    const parse = WITH_TIMES_AS_TEXT.getTypeParser(id, format) as (text: unknown) => unknown;
    return (text: unknown) => parse(text instanceof LargeText ? text.toString() : text);
  },
};
