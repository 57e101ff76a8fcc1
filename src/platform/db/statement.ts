import { DrizzleQueryError, fillPlaceholders, type Placeholder, type Query, type SQL, sql } from 'drizzle-orm';
import { PgDialect } from 'drizzle-orm/pg-core';
import type { Database } from './database.ts';
import { runForUser, toNodeStatement } from './user-node.ts';

const dialect = new PgDialect();

/** A value of a {@link statement}, by its name. */
export const value = (name: string): Placeholder => sql.placeholder(name);

/**
 * Makes a statement whose text is written once, with the first call: drizzle takes 0.1 to 0.2 ms of CPU to write one
 * that is made of pieces. `build` uses {@link value} for what differs between calls. It goes to the driver past
 * drizzle's session, whose promises and copies took 30 µs of each call.
 */
export function statement<Row>(
  build: () => SQL,
): (db: Database, values: Record<string, unknown>, userId?: string) => Promise<Row[]> {
  let query: Query | undefined;
  let onNode: ReturnType<typeof toNodeStatement>;
  return async (db, given, userId) => {
    if (!query) {
      query = dialect.sqlToQuery(build());
      onNode = toNodeStatement(query.sql);
    }
    const { sql: text, params } = query;
    const values = fillPlaceholders(params, given);
    const texts = db.isOnCluster && onNode ? values.map(toText) : [];
    if (db.isOnCluster && onNode && userId !== undefined && texts.every((each) => each !== undefined)) {
      return await runForUser<Row>(db, userId, onNode, texts);
    }
    try {
      const { rows } = await db.$client.query({ text, values });
      return rows as Row[];
    } catch (error) {
      throw new DrizzleQueryError(text, values, error as Error);
    }
  };
}

/** A value as PostgreSQL reads it in quotes; `undefined` for a list, which no statement of a user's own rows has. */
function toText(given: unknown): string | null | undefined {
  if (given === null || typeof given === 'string') return given;
  return typeof given === 'number' || typeof given === 'boolean' ? String(given) : undefined;
}
