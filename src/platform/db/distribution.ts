import { getTableColumns, getTableName, is } from 'drizzle-orm';
import { PgTable } from 'drizzle-orm/pg-core';
import * as tables from './schema/schema.ts';

/**
 * Tables with a user that stay on one node of a distributed database: their statements look at all users at once (what
 * is due, how much an application has used), and they grow with what people set up rather than with what is said.
 */
const ON_COORDINATOR = new Set(['cronjobs', 'cronjob_runs', 'webhooks', 'webhook_deliveries']);

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
