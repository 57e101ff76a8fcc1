import { type CustomTypesConfig, types } from 'pg';

const { DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ } = types.builtins;
/** Arrays of `numeric`, `timestamptz`, `timestamp`, `interval` and `date`. */
const ARRAYS = [1231, 1185, 1115, 1187, 1182];
const AS_TEXT = new Set<number>([DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ, ...ARRAYS]);
const asItIs = (text: unknown) => text;

/** How values of rows are read: as drizzle's session does it, which leaves times to those who use them. */
export const WITH_TIMES_AS_TEXT: CustomTypesConfig = {
  getTypeParser: (id: number, format?: 'text' | 'binary') =>
    AS_TEXT.has(id) ? asItIs : types.getTypeParser(id, format),
};
