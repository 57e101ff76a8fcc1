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

/**
 * A statement whose text is made once for each shape of what it is given: an object of texts, numbers, lists, flags,
 * and such objects. Texts, numbers and lists are its parameters: `build` gets something in their place that can only go
 * into SQL. Flags, and what is absent, are as they are and decide on the text, so `build` looks at nothing else.
 * On a cluster the node of a user carries it out, where `toUser` says whose rows they are and all of them are there:
 * it answers with what JSON has.
 */
export function shapedStatement<Given extends object, Row>(
  build: (given: Given, db: Database) => SQL,
  toUser?: (given: Given) => string,
): (db: Database, given: Given) => Promise<Row[]> {
  const statements = new Map<string, ReturnType<typeof statement<Row>>>();
  return async (db, given) => {
    const values: Record<string, unknown> = {};
    const shape = takeValues(given, '', values);
    let found = statements.get(shape);
    if (!found) {
      found = statement<Row>(() => build(withPlaceholders(given, '') as Given, db));
      statements.set(shape, found);
    }
    return await found(db, values, toUser?.(given));
  };
}

const isParameter = (given: unknown) => typeof given === 'string' || typeof given === 'number' || Array.isArray(given);
const isObject = (given: unknown): given is object => typeof given === 'object' && given !== null;

/** Collects the parameters of what is given, by their places in it. @returns its shape: all but the parameters */
function takeValues(given: unknown, place: string, values: Record<string, unknown>): string {
  if (isParameter(given)) {
    values[place] = given;
    return '$';
  }
  if (!isObject(given)) return String(given);
  let shape = '{';
  for (const [name, member] of Object.entries(given)) {
    shape += `${name}:${takeValues(member, `${place}.${name}`, values)},`;
  }
  return `${shape}}`;
}

function withPlaceholders(given: unknown, place: string): unknown {
  if (isParameter(given)) return value(place);
  if (!isObject(given)) return given;
  return Object.fromEntries(
    Object.entries(given).map(([name, member]) => [name, withPlaceholders(member, `${place}.${name}`)]),
  );
}
