import { readFileSync } from 'node:fs';
import { type Client, escapeIdentifier } from 'pg';
import { ConfigError } from '../../core/errors.ts';
import { getTableColumns, getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import * as tables from './schema/schema.ts';

/**
 * Tables with a user that stay on one node of a distributed database: their statements look at all users at once (what
 * is due, how much an application has used), and they grow with what people set up rather than with what is said.
 */
const ON_COORDINATOR = new Set([
  'cronjobs',
  'cronjob_runs',
  'memory_jobs',
  'score_jobs',
  'user_credentials',
  'webhooks',
  'webhook_deliveries',
]);

/** Tables copied to every node: shared by all users and read by a user's statements. Writes go to all nodes. */
export const COPIED_TABLES: readonly string[] = [
  'agent_prompts',
  'app_states',
  'budgets',
  'legal_holds',
  'model_prices',
];

/** Names of the tables that a distributed database (Citus) spreads by user, sorted: what a conversation is made of. */
export const DISTRIBUTED_TABLES: readonly string[] = Object.values(tables)
  .flatMap((table) => (is(table, PgTable) && 'userId' in getTableColumns(table) ? [getTableName(table)] : []))
  .filter((name) => !ON_COORDINATOR.has(name) && !COPIED_TABLES.includes(name))
  .toSorted();

/** Any number does, as long as every version uses the same. */
const DISTRIBUTION_LOCK = 7_240_021;
const STATEMENTS = new URL('../../../migrations/citus.sql', import.meta.url);

/** True where a database is the coordinator of a cluster: it has the extension Citus. */
export async function isOnCluster(client: Pick<Client, 'query'>): Promise<boolean> {
  const { rowCount } = await client.query(`select from pg_extension where extname = 'citus'`);
  return rowCount === 1;
}

/** Tables that are on the coordinator alone and belong on all nodes, by name; only for a cluster. */
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

/** Spreads the tables of a migrated schema over the nodes of its cluster, those that are not yet, in a transaction. */
export async function distributeTables(client: Client, schema: string): Promise<void> {
  await client.query('begin isolation level read committed');
  await client.query('set local statement_timeout = 0');
  // Replicas that start together take turns.
  await client.query('select pg_advisory_xact_lock($1)', [DISTRIBUTION_LOCK]);
  await client.query(`set local agent_runtime.all_users = 'on'`);
  // Moments in definitions go to other nodes as text, which read it in a style of their own.
  await client.query(`set local datestyle = 'ISO'; set local timezone = 'UTC'`);
  await client.query(`set local search_path = ${escapeIdentifier(schema)}`);
  await client.query(readFileSync(STATEMENTS, 'utf8'));
  await client.query('commit');
}

/** @throws {ConfigError} where a table of users is on the coordinator alone: which, and what spreads it. */
export async function checkDistributed(client: Client, schema: string): Promise<void> {
  const names = await listUndistributed(client, schema);
  if (names.length === 0) return;
  throw new ConfigError(
    `its cluster does not spread ${names.join(', ')}: the deletion of a session would leave rows there. ` +
      'Apply the migrations, which spread them: npm run db:migrate, or agent-runtime migrate',
  );
}
