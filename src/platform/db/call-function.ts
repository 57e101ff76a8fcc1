import { sql } from 'drizzle-orm';
import type { Database } from './database.ts';
import { statement, value } from './statement.ts';

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
