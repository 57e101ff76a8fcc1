import { getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import * as schema from '../../src/platform/db/schema/schema.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const files = globSync('src/**/*.ts', { cwd: root }).filter((file) => !file.startsWith('src/platform/db/schema/'));
/** The folder that takes the schema as a whole: the start looks whether all tables are there and where. */
const ABOUT_ALL = ['platform/db'];

/** The folder whose SQL may name a table. A feature that needs another's rows asks that feature for a piece of SQL. */
const OWNERS: Record<string, string> = {
  sessions: 'conversation/sessions',
  events: 'conversation/sessions',
  eventDeltas: 'conversation/sessions',
  appStates: 'conversation/sessions',
  userStates: 'conversation/sessions',
  invocations: 'invocations',
  agentPrompts: 'invocations',
  agentVersions: 'conversation/apps',
  toolCalls: 'invocations',
  signals: 'invocations/waits',
  tasks: 'invocations/waits',
  artifacts: 'conversation/artifacts',
  artifactVersions: 'conversation/artifacts',
  memories: 'features/memory',
  idempotencyKeys: 'conversation/idempotency',
  spans: 'observability/traces',
  evalSets: 'features/evals',
  evalCases: 'features/evals',
  evalCaseVersions: 'features/evals',
  evalRuns: 'features/evals',
  evalRunCases: 'features/evals',
  evalVerdicts: 'features/evals',
  evalSessionScores: 'features/evals',
  scoreRules: 'features/evals',
  sessionVerdicts: 'features/evals',
  cronjobs: 'features/cronjobs',
  skippedRuns: 'features/cronjobs',
  auditLog: 'platform/http/audit',
  rateLimits: 'platform/http/limits',
  userCredentials: 'conversation/credentials',
  webhooks: 'invocations/webhooks',
  webhookDeliveries: 'invocations/webhooks',
  userStorage: 'conversation/storage',
  budgetAlerts: 'conversation/budgets',
  budgetReservations: 'conversation/budgets',
  budgets: 'conversation/budgets',
  budgetTotals: 'conversation/budgets',
  budgetUses: 'conversation/budgets',
  modelPrices: 'conversation/budgets',
  legalHolds: 'conversation/holds',
  jobLanes: 'platform/jobs',
  jobs: 'platform/jobs',
  userErasures: 'features/users',
  repeatables: 'platform/db',
};

/** The owners of views in the schema. */
const VIEW_OWNERS: Record<string, string> = { cronjobRuns: 'features/cronjobs' };

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
      .filter((name) => {
        const owners = name === '*' ? ABOUT_ALL : [OWNERS[name] ?? VIEW_OWNERS[name]];
        return !owners.some((owner) => file.startsWith(`src/${owner}/`));
      })
      .map((name) => `${file}: ${name}`),
  );
  expect(others).toEqual([]);
});

test('SQL names tables by the schema, so that a renamed one does not compile', () => {
  // ADK Python's own tables have the same names; they are another database, which an import only reads.
  const ours = files.filter((file) => !file.endsWith('/adk-database.ts'));
  expect(ours.flatMap((file) => writtenTables(codeOf(file)).map((name) => `${file}: ${name}`))).toEqual([]);
});
