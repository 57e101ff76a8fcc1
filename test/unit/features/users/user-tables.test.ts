import { getTableColumns, getTableName, is } from 'drizzle-orm';
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core';
import { expect, test } from 'vitest';
import * as schema from '../../../../src/platform/db/schema/schema.ts';
import { placeTables } from '../../../../src/features/users/user-tables.ts';
import { USER_DATA } from '../../../../src/process/context.ts';

/** An erasure forgets no table: a feature names each one with a user in it, anything else is a decision. */

const USER_TABLES = placeTables(USER_DATA.userTables);

const tables = Object.values(schema).filter((table) => is(table, PgTable));
const columnsOf = (table: PgTable): string[] => Object.values(getTableColumns(table)).map(({ name }) => name);

/** Columns that name a user by another name than `user_id`, and who deletes their rows. */
const OTHERWISE: Record<string, string> = {
  'eval_sets.owner_id': 'deleteEvaluations',
  'eval_cases.owner_id': 'deleteEvaluations',
  'eval_cases.source_user_id': 'deleteEvaluations',
  'eval_case_versions.owner_id': 'deleteEvaluations',
  'eval_runs.requested_by': 'deleteEvaluations',
  'eval_run_cases.owner_id': 'deleteRunCases',
  'eval_run_cases.session_user_id': 'deleteRunCases',
  'eval_verdicts.author': 'deleteEvaluations',
  'session_verdicts.author': 'deleteEvaluations',
  'tasks.assigned_users': 'forgetInTasks',
  'tasks.decided_by': 'forgetInTasks',
  'app_states.writers': 'deleteAppStateKeys',
  // A limit that may be the user's; the lane has a user_id.
  'job_lanes.blocked_by': 'deleteUserJobs',
  // Who said it within a session: its rows have a user_id.
  'events.author': 'USER_TABLES',
  'memories.author': 'USER_TABLES',
};

/** Tables that name no user, each with what keeps it so. */
const OF_NOBODY: Record<string, string> = {
  audit_log: 'who did what, without content: it is only appended to, and ends by its own retention',
  agent_prompts: 'templates of instructions, before a state is put into them',
  agent_runtime_repeatables: 'sections of migrations',
  agent_versions: 'definitions of applications',
  budget_totals: 'sums of all users of an application',
  model_prices: 'prices',
  score_rules: 'what the operator has scored',
  rate_limits: 'digests of callers, for a minute',
};

test('every column that names a user is one that an erasure looks at', () => {
  const naming = tables.flatMap((table) =>
    columnsOf(table)
      .filter((column) => column !== 'user_id' && /user|owner|author|writer|_by$|principal|subject|actor/.test(column))
      .filter((column) => column !== 'user_simulator')
      .map((column) => `${getTableName(table)}.${column}`),
  );
  expect(naming.toSorted()).toEqual(Object.keys(OTHERWISE).toSorted());
});

test('every table with a user_id belongs to a feature, which erases it; the others are known to name nobody', () => {
  const atTheEnd = ['job_lanes', 'jobs', 'legal_holds', 'user_erasures', 'user_storage'];
  const erased = new Set([...USER_TABLES.map(({ name }) => name), ...atTheEnd]);
  const withUser = tables.filter((table) => columnsOf(table).includes('user_id')).map(getTableName);
  expect(USER_TABLES.length).toBe(erased.size - atTheEnd.length);
  expect(withUser.filter((name) => !erased.has(name))).toEqual([]);
  const named = new Set(Object.keys(OTHERWISE).map((column) => column.split('.')[0]));
  const others = tables.map(getTableName).filter((name) => !erased.has(name) && !named.has(name));
  expect(others.toSorted()).toEqual(Object.keys(OF_NOBODY).toSorted());
});

test('what refers to a table of users is a table of users, and is deleted before it', () => {
  const places = new Map(USER_TABLES.map(({ name }, place) => [name, place]));
  for (const table of tables) {
    for (const key of getTableConfig(table).foreignKeys) {
      const parent = places.get(getTableName(key.reference().foreignTable));
      // A table may refer to itself: rows are deleted with those above them.
      if (parent === undefined || key.reference().foreignTable === table) continue;
      expect([getTableName(table), places.get(getTableName(table))]).toEqual([getTableName(table), expect.any(Number)]);
      expect(places.get(getTableName(table))).toBeGreaterThan(parent);
    }
  }
});
