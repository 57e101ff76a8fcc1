import { DrizzleQueryError, fillPlaceholders, type Placeholder, type Query, type SQL, sql } from 'drizzle-orm';
import { PgDialect } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';

const dialect = new PgDialect();

/** A value of a {@link statement}, by its name. */
export const value = (name: string): Placeholder => sql.placeholder(name);

/**
 * Makes a statement whose text is written once, with the first call: drizzle takes 0.1 to 0.2 ms of CPU for it. `build`
 * uses {@link value} for what differs between calls. The driver gets it past drizzle's session, which is slower.
 */
export function statement<Row>(build: () => SQL): (db: Database, values: Record<string, unknown>) => Promise<Row[]> {
  let query: Query | undefined;
  return async (db, given) => {
    const { sql: text, params } = (query ??= dialect.sqlToQuery(build()));
    const values = fillPlaceholders(params, given);
    try {
      const { rows } = await db.$client.query({ text, values });
      return rows as Row[];
    } catch (error) {
      throw new DrizzleQueryError(text, values, error as Error);
    }
  };
}

/** The statements of the calls by the name of the function, with its parameters as they were first given. */
const calls = new Map<string, ReturnType<typeof statement>>();

/**
 * Calls a function of `migrations/functions` that returns one row. Its types follow from its signature; `undefined` is
 * null. The call is the whole statement, so that a cluster can send it to the node of its user.
 */
export async function callFunction<Row>(db: Database, name: string, parameters: Record<string, unknown>): Promise<Row> {
  let call = calls.get(name);
  if (!call) {
    const given = Object.keys(parameters).map((each) => sql`${sql.raw(each)} => ${value(each)}`);
    call = statement(() => sql`select * from ${sql.raw(name)}(${sql.join(given, sql`, `)})`);
    calls.set(name, call);
  }
  const values = Object.fromEntries(Object.entries(parameters).map(([each, given]) => [each, given ?? null]));
  const [row] = await call(db, values);
  return row as Row;
}
