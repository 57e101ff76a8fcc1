import type { QueryConfig } from 'pg';

/** What drizzle gives to `query`, a statement and its values, as one object. */
export function toConfig(args: unknown[]): QueryConfig {
  const [statement, values] = args as [string | QueryConfig, unknown[] | undefined];
  const config = typeof statement === 'string' ? { text: statement } : statement;
  return { ...config, ...(values === undefined ? {} : { values }) };
}
