import type { QueryConfig } from 'pg';

/** What is given to `query` as one object: drizzle gives a statement and its values. */
export function toConfig(args: unknown[]): QueryConfig {
  const [statement, values] = args as [string | QueryConfig, unknown[] | undefined];
  const config = typeof statement === 'string' ? { text: statement } : statement;
  return values === undefined ? config : { ...config, values };
}
