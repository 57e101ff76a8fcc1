import { getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import * as schema from '../../src/db/schema.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
/**
 * The definitions; the start, which looks whether all tables are there and where, and at none of their rows; and what
 * is done with all rows of a user, whatever they mean.
 */
const ABOUT_ALL = /^src\/(db\/((\w+-)*schema|rights|distribution)|users\/user-tables)\.ts$/;
const files = globSync('src/**/*.ts', { cwd: root }).filter((file) => !ABOUT_ALL.test(file));

/** The folder whose SQL may name a table. A feature that needs another's rows asks that feature for a piece of SQL. */
const OWNERS: Record<string, string> = {
  sessions: 'sessions',
  events: 'sessions',
  appStates: 'sessions',
  userStates: 'sessions',
  invocations: 'invocations',
  agentPrompts: 'invocations',
  invocationTapes: 'invocations',
  artifacts: 'artifacts',
  artifactVersions: 'artifacts',
  memories: 'memory',
  idempotencyKeys: 'idempotency',
  spans: 'traces',
  evalSets: 'evals',
  evalCases: 'evals',
  evalCaseVersions: 'evals',
  evalRuns: 'evals',
  evalRunCases: 'evals',
  evalVerdicts: 'evals',
  evalSessionScores: 'evals',
  cronjobs: 'cronjobs',
  cronjobRuns: 'cronjobs',
  auditLog: 'audit',
  rateLimits: 'limits',
  webhooks: 'webhooks',
  webhookDeliveries: 'webhooks',
  budgets: 'budgets',
  budgetUses: 'budgets',
  modelPrices: 'budgets',
  legalHolds: 'holds',
  userErasures: 'users',
};

const tables = Object.entries(schema).flatMap(([name, table]) => (is(table, PgTable) ? [{ name, table }] : []));
const codeOf = (file: string) =>
  readFileSync(join(root, file), 'utf8')
    .replace(/\/\*[^]*?\*\//g, '')
    .replace(/^\s*\/\/.*$/gm, '');

/** The tables that a file takes from the schema, by whatever name. */
const importedTables = (code: string): string[] =>
  [...code.matchAll(/import ([^;]+?) from '[^']*\/schema\.ts'/g)].flatMap(([, clause = '']) =>
    clause.startsWith('{')
      ? clause
          .replace(/[{}]/g, '')
          .split(',')
          .map((name) =>
            name
              .trim()
              .replace(/^type /, '')
              .replace(/ as .*/, ''),
          )
          .filter(Boolean)
      : ['*'],
  );

/** The tables that SQL in a text names by themselves instead of by the schema. */
function writtenTables(code: string): string[] {
  const known = new Set<string>(tables.map(({ table }) => getTableName(table)));
  const named = code.matchAll(/\b(?:from|join|into|update|table|truncate)\s+(?:only\s+)?(?:public\.)?"?([a-z_]+)"?/gi);
  return [...named].map(([, name = '']) => name.toLowerCase()).filter((name) => known.has(name));
}

test('every table has an owner', () => {
  expect(tables.map(({ name }) => name).toSorted()).toEqual(Object.keys(OWNERS).toSorted());
});

test('only the owner of a table takes it from the schema', () => {
  const others = files.flatMap((file) =>
    importedTables(codeOf(file))
      .filter((name) => OWNERS[name] !== file.split('/')[1])
      .map((name) => `${file}: ${name}`),
  );
  expect(others).toEqual([]);
});

test('SQL names tables by the schema, so that a renamed one does not compile', () => {
  // ADK Python's own tables have the same names; they are another database, which an import only reads.
  const ours = files.filter((file) => file !== 'src/cli/adk-database.ts');
  expect(ours.flatMap((file) => writtenTables(codeOf(file)).map((name) => `${file}: ${name}`))).toEqual([]);
});

test('the readers of events are in the files that are named so, the statements in one of them', () => {
  const readers = files.filter((file) => /(?:from|join)(?:\(| \$\{)events\b/.test(codeOf(file)));
  const pieces = ['as-of', 'copies', 'first-text', 'newest', 'words'].map((name) => `src/sessions/event-${name}.ts`);
  expect(readers.toSorted()).toEqual([...pieces, 'src/sessions/event-store.ts'].toSorted());
  // What only lends pieces sends nothing itself.
  const senders = pieces.filter((file) => /\bDatabase\b|\bexecute\(/.test(codeOf(file)));
  expect(senders).toEqual([]);
});
