import type { FixedStatement } from './fixed-query.ts';

/**
 * Names of prepared statements. PostgreSQL plans an unnamed statement at each call, which costs more than to execute
 * it; of a named one a connection keeps the plan: 0.62 → 0.17 ms of the database for a session of ten events.
 */

/**
 * Texts that get a name beside the fixed ones. A store has some hundred; a text that is made of data must not fill the
 * server's memory.
 */
const MAX_NAMES = 500;
const names = new Map<string, string>();
const fixedTexts = new Set<string>();

/** A statement as node-postgres takes it. */
interface Statement {
  text: string;
  values?: unknown;
  name?: string | undefined;
}

/**
 * Notes a text that is made once and keeps one plan whatever its values. Left to itself PostgreSQL compares costs:
 * where few sessions had most of the events, it planned 2.6 of the 3 statements of an invocation anew each time.
 * @returns its name
 */
export function fixText(text: string): string {
  fixedTexts.add(text);
  const name = names.get(text) ?? `f${fixedTexts.size}`;
  names.set(text, name);
  return name;
}

/**
 * True for a text of {@link fixText}. The others are planned for their values where that looks cheaper: a generic plan
 * of a status that is a value uses no index that is limited to that status.
 */
const isFixed = (text: string): boolean => fixedTexts.has(text);

/** True of a statement that has one plan whatever its values, or has none. */
export const hasOnePlan = ({ text, values = [] }: { text: string; values?: unknown[] }): boolean =>
  values.length === 0 || isFixed(text);

/** True for a statement of node-postgres, with its values, whose text {@link fixText} has noted. */
export const isFixedStatement = (statement: unknown): statement is FixedStatement =>
  isUnnamed(statement) && isFixed(statement.text) && !('rowMode' in statement);

/** A statement with the name of its text, the same on every connection; as it was where it needs none. */
export function withName(statement: unknown, values: unknown): unknown {
  if (!isUnnamed(statement)) return statement;
  const given = values ?? statement.values;
  if (!Array.isArray(given) || given.length === 0) return statement;
  const name = nameOf(statement.text);
  return name === undefined ? statement : { ...statement, name };
}

const isUnnamed = (statement: unknown): statement is Statement =>
  typeof statement === 'object' &&
  statement !== null &&
  typeof (statement as Statement).text === 'string' &&
  (statement as Statement).name === undefined;

/** The name of a text; `undefined` where it is one too many. */
export function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined || names.size - fixedTexts.size >= MAX_NAMES) return known;
  const name = `s${names.size + 1}`;
  names.set(text, name);
  return name;
}
