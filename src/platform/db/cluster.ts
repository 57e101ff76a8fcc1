import { readFileSync } from 'node:fs';
import type { Client } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { getTableColumns, getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import * as tables from './schema/schema.ts';

/**
 * Tables that stay on the coordinator of a distributed database: their statements span all users (due jobs, an
 * application's usage), and their size depends on configuration, not on conversations.
 */
const ON_COORDINATOR = new Set([
  'cronjobs',
  'job_lanes',
  'jobs',
  'skipped_runs',
  'user_credentials',
  'webhooks',
  'webhook_deliveries',
]);

/** Reference tables, which Citus copies to every node, because users' statements read them. Writes go to all nodes. */
export const COPIED_TABLES: readonly string[] = [
  'agent_prompts',
  'app_states',
  'budgets',
  'legal_holds',
  'model_prices',
];

/** Tables distributed by user (Citus): the data of conversations. */
export const DISTRIBUTED_TABLES: readonly string[] = Object.values(tables)
  .flatMap((table) => (is(table, PgTable) && 'userId' in getTableColumns(table) ? [getTableName(table)] : []))
  .filter((name) => !ON_COORDINATOR.has(name) && !COPIED_TABLES.includes(name))
  .toSorted();

/**
 * What is refused on a cluster, in words for the operator: the statements of a user run on the node that has the user's
 * rows, and what they would write is on the coordinator or in tables that no node knows.
 */
export const REFUSED_ON_CLUSTER = {
  cronjobs: 'CRONJOBS: the database is a cluster, whose other nodes cannot end a run. Set it to false.',
  toolTables: 'it is a cluster, where tools have no tables of their own',
  transactionalTools: 'it is a cluster, where a tool cannot be `transactional`: its rows would be on other nodes',
  budgetWebhooks: 'No webhook can be told about a budget where the database is a cluster: leave `webhookId` out.',
  scoreRules: 'There are no rules where the database is a cluster.',
};

/** Maximum pause between two looks for jobs on a cluster, because jobs that nodes add are not announced. */
export const MAX_JOB_PAUSE_ON_CLUSTER_MS = 1_000;

const STATEMENTS = new URL('../../../migrations/citus/distribute.sql', import.meta.url);

/** True if the database is the coordinator of a Citus cluster. */
export async function isOnCluster(client: Pick<Client, 'query'>): Promise<boolean> {
  const { rowCount } = await client.query(`select from pg_extension where extname = 'citus'`);
  return rowCount === 1;
}

/** Lists tables that should be distributed and are not. Needs the extension Citus. */
export async function listUndistributed(client: Client, schema: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select name from unnest($2::text[]) name where not exists (
       select from pg_dist_partition p join pg_class c on c.oid = p.logicalrelid
       where c.relname = name and c.relnamespace = (select oid from pg_namespace where nspname = $1))
     order by name collate "C"`,
    [schema, [...DISTRIBUTED_TABLES, ...COPIED_TABLES]],
  );
  return rows.map(({ name }) => name);
}

/** Prepares a migration's transaction for a cluster: one connection per node, so that it can be distributed at once. */
export const prepareDistribution = async (client: Client): Promise<void> => {
  await client.query(`set local citus.multi_shard_modify_mode = 'sequential'`);
  // Our triggers only read rows of the same user, which are on the same node.
  await client.query('set local citus.enable_unsafe_triggers = on');
  // Timestamps in definitions travel to other nodes as text; without these settings nodes may read them differently.
  await client.query(`set local datestyle = 'ISO'; set local timezone = 'UTC'`);
};

/** Distributes what is not distributed yet, in a transaction that {@link prepareDistribution} has prepared. */
export const distributeTables = async (client: Client): Promise<void> => {
  // The nodes get functions before the tables that their bodies name. A message of its own, because the nodes get its
  // whole text; and after the sections, because Citus resets the setting behind each `create function`.
  await client.query(`set local citus.propagate_set_commands = 'local'`);
  await client.query('set local check_function_bodies = off');
  await client.query(`set local citus.propagate_set_commands = 'none'`);
  await client.query(readFileSync(STATEMENTS, 'utf8'));
};

/** @throws {ConfigError} that names the tables that are not distributed, and the remedy */
export async function checkDistributed(client: Client, schema: string): Promise<void> {
  const names = await listUndistributed(client, schema);
  if (names.length === 0) return;
  throw new ConfigError(
    `its cluster does not spread ${names.join(', ')}: the deletion of a session would leave rows there. ` +
      'Apply the migrations, which spread them: npm run db:migrate, or agent-runtime migrate',
  );
}
