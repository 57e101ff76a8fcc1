import { sql } from 'drizzle-orm';
import type { Database } from './database.ts';
import { COPIED_TABLES, DISTRIBUTED_TABLES } from './distribution.ts';

/**
 * Statements that a cluster (Citus) carries out whole on the node of one user, on the parts of the tables that are
 * there. Sent as any other, one that writes in several steps is as many commands to that node, in two phases, each of
 * which the extension plans.
 */
interface NodeStatement {
  /** A template of PostgreSQL's `format`: first come the tables, then the values. */
  template: string;
  tables: string[];
}

/** Tokens that are no SQL, table names, values, and place-holders of `format`. */
const TOKENS = new RegExp(
  [
    /--[^\n]*|'(?:[^']|'')*'/,
    /(?<!\.)"(?<owner>\w+)"(?=\.)/,
    /(?<=\b(?:from|join|into|update|using)\s+)"(?<table>\w+)"/,
    /\$(?<value>\d+)|%/,
  ]
    .map(({ source }) => source)
    .join('|'),
  'gi',
);
const WRITTEN = /\b(?:update|delete from|insert into)\s+"(\w+)"/gi;

/** A statement as the node of a user takes it; `undefined` for one that looks at or writes what is elsewhere too. */
export function toNodeStatement(text: string): NodeStatement | undefined {
  const code = text.replaceAll(/--[^\n]*|'(?:[^']|'')*'/g, '');
  if ([...code.matchAll(WRITTEN)].some(([, table = '']) => !DISTRIBUTED_TABLES.includes(table))) return undefined;
  const found = [...code.matchAll(TOKENS)].flatMap(({ groups }) => groups?.['table'] ?? groups?.['owner'] ?? []);
  const tables = [...new Set(found)];
  if (tables.some((table) => !DISTRIBUTED_TABLES.includes(table) && !COPIED_TABLES.includes(table))) return undefined;
  const template = text.replaceAll(TOKENS, (token, ...rest) => {
    const { owner, table = owner, value } = rest.at(-1) as Record<'owner' | 'table' | 'value', string | undefined>;
    if (table !== undefined) return `%${tables.indexOf(table) + 1}$I`;
    if (value !== undefined) return `%${tables.length + Number(value)}$L`;
    return token.startsWith('--') ? '' : token.replaceAll('%', '%%');
  });
  return { template, tables };
}

/** Carries a statement out on the node of a user. @param values texts, as PostgreSQL reads them, and nulls */
export async function runForUser<Row>(
  db: Database,
  userId: string,
  { template, tables }: NodeStatement,
  values: (string | null)[],
): Promise<Row[]> {
  const { rows } = await db.execute<{ row: Row }>(
    sql`select row from run_for_user(${userId}, ${sql.param(tables)}::text[], ${template},
                                     ${sql.param(values)}::text[]) as row`,
  );
  return rows.map(({ row }) => row);
}
