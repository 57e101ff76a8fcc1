import { DrizzleQueryError, fillPlaceholders, is, Placeholder, type Query, type SQL, sql } from 'drizzle-orm';
import { PgDialect } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';

const dialect = new PgDialect();

export const value = (name: string): Placeholder => sql.placeholder(name);

/**
 * A statement whose text the first call builds, because building takes drizzle 0.1 to 0.2 ms of CPU. `build` marks
 * variable parts with {@link value}. Bypasses drizzle's session, which is slower.
 */
export function statement<Row>(build: () => SQL): (db: Database, values: Record<string, unknown>) => Promise<Row[]> {
  let query: Query | undefined;
  return async (db, parameters) => {
    const { sql: text, params } = (query ??= withFewParameters(dialect.sqlToQuery(build())));
    return send(db, text, fillPlaceholders(params, parameters));
  };
}

/** Sends the value of a placeholder once, however often the text has it; drizzle numbers each occurrence. */
function withFewParameters({ sql: text, params }: Query): Query {
  const few: unknown[] = [];
  const numbers = params.map((param) => {
    const name = is(param, Placeholder) && param.name;
    const known = few.findIndex((other) => name !== false && is(other, Placeholder) && other.name === name);
    return known < 0 ? few.push(param) : known + 1;
  });
  return { sql: text.replaceAll(/\$(\d+)/g, (_, number: string) => `$${numbers[Number(number) - 1]}`), params: few };
}

/**
 * Calls a function of `migrations/repeatable/functions` that returns one row. PostgreSQL infers the argument types; the
 * driver sends `undefined` as null. The call is the whole statement, so that a distributed database can route it to the
 * user's node.
 * @throws {DrizzleQueryError} if the function has no argument of such a name, or a required argument is missing
 */
export async function callFunction<Row>(db: Database, name: string, parameters: Record<string, unknown>): Promise<Row> {
  const argumentList = Object.keys(parameters).map((argument, index) => `${argument} => $${index + 1}`);
  const [row] = await send<Row>(db, `select * from ${name}(${argumentList.join(', ')})`, Object.values(parameters));
  return row as Row;
}

/** Sends a statement without drizzle, but throws drizzle's error, so that callers handle one type. */
async function send<Row>(db: Database, text: string, values: unknown[]): Promise<Row[]> {
  try {
    const { rows } = await db.$client.query({ text, values });
    return rows as Row[];
  } catch (error) {
    throw new DrizzleQueryError(text, values, error as Error);
  }
}
